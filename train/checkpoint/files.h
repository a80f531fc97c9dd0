// Atomic file writes for checkpoints: a file is complete or does not exist. All functions throw
// Error with the path, the system's reason and a remedy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "topo/base/status.h"

namespace weft::train {

// Bytes are missing, or differ from the written bytes.
struct Damaged : Error {
  using Error::Error;
};

// The file cannot be read now, but may be intact.
struct Unreadable : Damaged {
  using Damaged::Damaged;
};

// Writes path.tmp, syncs it, renames it to path and syncs the folder.
void write_whole(const std::string& path, std::span<const std::span<const std::byte>> parts);
void write_whole(const std::string& path, const std::string& text);
// Calls fsync on a folder, so that new entries survive a power failure.
void sync_folder(const std::string& path);
// Reads a file. Throws Damaged if it is missing, Unreadable if the system refuses.
std::string read_whole(const std::string& path);
// Reads `bytes` bytes at `offset`. Throws like read_whole(), and Damaged if the file is shorter.
std::vector<std::byte> read_part(const std::string& path, std::uint64_t offset, std::size_t bytes);

// Returns the name of this machine, which identifies the writer of a file.
std::string host_name();
// Returns eight digits, such as "c0ffee12".
std::string hex(std::uint32_t value);

}  // namespace weft::train
