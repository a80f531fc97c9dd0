// Where numbers of a device wait: pinned host memory, or a file through it. Copies down are in the
// order of the compute stream, so memory of the device is free for later work at once and nobody
// waits; what has come down is written to the file by the next call. Copies up are in that order
// too: who reads a place that is still in memory never waits either.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>

namespace weft::train {

class OffloadFile;

// Of a rank's own thread, as its device is.
class DeviceOffload {
 public:
  // A folder, or kHost. Throws Error where no file can be made there.
  explicit DeviceOffload(const std::string& where);
  ~DeviceOffload();
  DeviceOffload(const DeviceOffload&) = delete;
  DeviceOffload& operator=(const DeviceOffload&) = delete;

  static constexpr const char* kHost = "host";

  std::uint64_t write(const void* from, std::size_t bytes);     // returns the place
  void read(std::uint64_t place, void* to, std::size_t bytes);  // and frees it
  void release(std::uint64_t place, std::size_t bytes);
  std::uint64_t bytes_moved() const { return moved_; }

 private:
  struct Stay {
    void* memory = nullptr;   // pinned; null once it is in the file
    void* arrived = nullptr;  // event after the copy down, of what is going to the file
    std::uint64_t at = 0;     // in the file
    std::size_t bytes = 0;
  };
  void write_what_arrived(std::size_t most);
  void leave_queue(std::uint64_t place, Stay& stay);

  std::unique_ptr<OffloadFile> file_;  // null: all of it stays in memory
  std::map<std::uint64_t, Stay> stays_;
  std::deque<std::uint64_t> queue_;  // places that are going to the file, in their order
  std::size_t queued_ = 0;           // their bytes
  std::uint64_t next_ = 0, moved_ = 0;
};

}  // namespace weft::train
