// Shared memory: regions that other processes of the machine can map, and mappings of other
// processes' regions.
//
// Each region is a memfd that other processes open through /proc/<pid>/fd, so no name in /dev/shm
// remains after a crash. The length is sealed, so that no process can truncate memory that another
// process uses; open() rejects unsealed regions. Does not depend on ranks.
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

// Owns one mapping, or none. create() and open() throw Error if the system call fails. If
// memfd_create is forbidden (sandbox), create() returns memory that no other process can map.
class SharedRegion {
 public:
  // Access rights of processes other than the creator. kRead is enforced since Linux 5.1.
  enum class Others : std::uint8_t { kRead, kWrite };

  SharedRegion() = default;
  static SharedRegion create(std::size_t bytes, const char* label, Others others);
  static SharedRegion open(pid_t pid, int fd, std::size_t bytes, Others others);
  // Write-protects this mapping from the first page boundary at or after `from`.
  void read_only_from(std::size_t from) noexcept;
  SharedRegion(SharedRegion&& other) noexcept { swap(other); }
  SharedRegion& operator=(SharedRegion&& other) noexcept {
    swap(other);
    return *this;
  }
  ~SharedRegion();
  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  // -1 for a region of another process, and for a region that no other process can map.
  int fd() const { return fd_; }

 private:
  void swap(SharedRegion& other) noexcept;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  int fd_ = -1;
};

// Identifies a byte of weft::alloc memory to other processes.
struct RegionRef {
  std::uint32_t index = 0;   // entry of the owner's directory
  std::uint64_t serial = 0;  // unique per allocation; 0: not weft::alloc memory
  std::uint64_t offset = 0;  // offset of the byte in the region
};

// Returns this process's region that contains [data, data + bytes); serial 0 if no region does.
// Thread-safe; each thread caches its last results.
RegionRef find_region(const void* data, std::size_t bytes) noexcept;

// Returns the length of the whole region; 0 if it was freed. Thread-safe.
std::size_t region_bytes(const RegionRef& ref) noexcept;

// Returns the file descriptor of this process's directory of regions, which other processes map; -1
// if they cannot map it.
int region_directory_fd();
// Returns the errno with which memfd_create failed in this process, or 0.
int memory_refused() noexcept;

// The regions of another process; resolve() maps a region on first use. Not thread-safe.
class PeerRegions {
 public:
  PeerRegions(pid_t pid, int directory_fd);
  // Returns the local address of `bytes` bytes of the peer; nullptr if the peer freed the memory or
  // the range exceeds it. With `keep`, pointers returned earlier stay valid.
  const std::byte* resolve(const RegionRef& ref, std::size_t bytes, bool keep) noexcept;

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
  const SharedRegion* last_ = nullptr;
};

}  // namespace weft
