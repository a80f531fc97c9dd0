// Files that are there as a whole or not at all, for checkpoints. Throw Error with the path, what
// the system said, and what to do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "topo/base/status.h"

namespace weft::train {

// Bytes that are missing or not what was written.
struct Damaged : Error {
  using Error::Error;
};

// What cannot be looked at now, and may be whole.
struct Unreadable : Damaged {
  using Damaged::Damaged;
};

// Writes path.tmp, syncs it, renames it to path and syncs the folder.
void write_whole(const std::string& path, std::span<const std::span<const std::byte>> parts);
void write_whole(const std::string& path, const std::string& text);
// Afterwards what was made in it is there also when the power fails.
void sync_folder(const std::string& path);
// Reading throws Damaged where the file is missing or shorter than that, Unreadable where the
// system does not let it be read.
std::string read_whole(const std::string& path);
// `bytes` bytes at `offset`.
std::vector<std::byte> read_part(const std::string& path, std::uint64_t offset, std::size_t bytes);

// "c0ffee12"
std::string hex(std::uint32_t value);

}  // namespace weft::train
