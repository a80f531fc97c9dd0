// Memory of this process that other processes of the machine can map, and the mapping of theirs.
//
// Everything is a memfd, opened by others through /proc/<pid>/fd: there is no name in /dev/shm that
// could outlive a crash. Knows nothing of ranks.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace weft {

// A mapping owned by this object, or none. Throws Error when the kernel refuses.
class SharedRegion {
 public:
  SharedRegion() = default;
  static SharedRegion create(std::size_t bytes, const char* label);
  static SharedRegion open(pid_t pid, int fd, std::size_t bytes);
  SharedRegion(SharedRegion&& other) noexcept { swap(other); }
  SharedRegion& operator=(SharedRegion&& other) noexcept {
    swap(other);
    return *this;
  }
  ~SharedRegion();
  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  int fd() const { return fd_; }  // -1 for a region opened from another process

 private:
  void swap(SharedRegion& other) noexcept;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  int fd_ = -1;
};

// Where a byte of weft::alloc memory lies, as other processes see it.
struct RegionRef {
  std::uint32_t index = 0;   // entry of the owner's directory
  std::uint64_t serial = 0;  // of the allocation; never used twice; 0: not weft::alloc memory
  std::uint64_t offset = 0;
};

// Of this process: finds the region that holds [data, data + bytes). Thread-safe; the last answer
// is remembered per thread.
RegionRef find_region(const void* data, std::size_t bytes) noexcept;

// How long the whole region is; 0 once it has been freed. Thread-safe.
std::size_t region_bytes(const RegionRef& ref) noexcept;

// The file descriptor of this process's directory of regions, which others map to follow.
int region_directory_fd();

// The regions of another process, mapped when first asked for. Not thread-safe.
class PeerRegions {
 public:
  PeerRegions(pid_t pid, int directory_fd);
  // The address here of the peer's byte; nullptr when the peer has freed that memory.
  const std::byte* resolve(const RegionRef& ref) noexcept;

 private:
  void drop_freed() noexcept;
  pid_t pid_;
  SharedRegion directory_;
  struct Mapped {
    std::uint32_t index;
    SharedRegion region;
  };
  std::unordered_map<std::uint64_t, Mapped> mapped_;  // by serial
  std::uint64_t last_serial_ = 0;
  const std::byte* last_data_ = nullptr;
};

}  // namespace weft
