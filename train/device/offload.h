// DeviceOffload: moves device memory to pinned host memory, or through it to a file, and back.
// Copies in both directions run on the compute stream, so write() does not block and later work can
// reuse released device memory at once. Each call first writes completed copies to the file. read()
// of a block that is still in pinned memory does not block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>

#include "train/device/context.h"

namespace weft::train {

class OffloadFile;

// Not thread-safe: for the rank's own thread only.
class DeviceOffload {
 public:
  // where: a folder, or kHost. Throws Error if no unnamed file can be created in the folder.
  explicit DeviceOffload(const std::string& where);
  ~DeviceOffload();
  DeviceOffload(const DeviceOffload&) = delete;
  DeviceOffload& operator=(const DeviceOffload&) = delete;

  static constexpr const char* kHost = "host";

  std::uint64_t write(const void* from, std::size_t bytes);     // returns the block's id
  void read(std::uint64_t place, void* to, std::size_t bytes);  // frees the block
  void release(std::uint64_t place, std::size_t bytes);
  std::uint64_t bytes_moved() const { return moved_; }

 private:
  struct Stay {
    PinnedMemory memory;   // null once the block is in the file
    DeviceMark arrived;    // mark after the copy from the device, for queued blocks
    std::uint64_t at = 0;  // offset in the file
    std::size_t bytes = 0;
  };
  void write_what_arrived(std::size_t most);
  Stay take(std::uint64_t place);

  std::unique_ptr<OffloadFile> file_;  // null: all blocks stay in pinned memory
  std::map<std::uint64_t, Stay> stays_;
  std::deque<std::uint64_t> queue_;  // blocks to write to the file, in order
  std::size_t queued_ = 0;           // bytes of the queued blocks
  std::uint64_t next_ = 0, moved_ = 0;
};

}  // namespace weft::train
