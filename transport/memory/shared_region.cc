// memfds, their mappings, and the directory of weft::alloc memory. Does not depend on messages and
// ranks.
#include "transport/memory/shared_region.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <utility>

#include "topo/base/mutex.h"
#include "topo/base/status.h"
#include "transport/memory/memory.h"

namespace weft {
namespace {

constexpr std::size_t kHuge = std::size_t{2} << 20;
constexpr std::uint32_t kMaxRegions = 16384;

// One entry per allocation of the process, valid while its serial is not 0.
struct DirectoryEntry {
  std::atomic<std::uint64_t> serial;
  std::uint64_t bytes;
  std::int32_t fd;
  std::int32_t reserved;
};
static_assert(sizeof(DirectoryEntry) == 24);
constexpr std::size_t kDirectoryBytes = kMaxRegions * sizeof(DirectoryEntry);

struct Allocation {
  SharedRegion region;
  std::uint32_t index;
  std::uint64_t serial;
};

// Start value for a forked child's registry, above any generation that its threads have cached.
std::uint64_t first_generation = 1;

// All weft::alloc memory of this process.
struct Registry {
  Mutex mutex;
  SharedRegion directory =
      SharedRegion::create(kDirectoryBytes, "weft-directory", SharedRegion::Others::kRead);
  std::map<const std::byte*, Allocation> by_address WEFT_GUARDED_BY(mutex);
  std::vector<std::uint32_t> free_entries WEFT_GUARDED_BY(mutex);
  std::uint32_t used_entries WEFT_GUARDED_BY(mutex) = 0;
  std::uint64_t next_serial WEFT_GUARDED_BY(mutex) = 1;
  std::atomic<std::uint64_t> generation{first_generation};  // incremented by every alloc and free

  DirectoryEntry* entry(std::uint32_t index) {
    return reinterpret_cast<DirectoryEntry*>(directory.data()) + index;
  }
};

std::atomic<Registry*> the_registry{nullptr};  // outlives every static destructor

// A forked child gets a new registry: with the parent's directory, its peers would map the parent's
// memory.
void forget_in_child() {
  if (Registry* parents = the_registry.exchange(nullptr))
    first_generation = parents->generation.load() + 1;
}

Registry& make_registry() {
  static std::once_flag once;
  std::call_once(once, [] { pthread_atfork(nullptr, nullptr, &forget_in_child); });
  auto made = std::make_unique<Registry>();
  Registry* there = nullptr;
  if (the_registry.compare_exchange_strong(there, made.get())) there = made.release();
  return *there;
}

Registry& registry() {
  Registry* one = the_registry.load(std::memory_order_acquire);
  return one ? *one : make_registry();
}

std::atomic<int> refused_with{0};  // errno of memfd_create

std::string reason(int error) {
  return std::string(strerror(error)) +
         (error == EMFILE   ? "; raise the limit with `ulimit -n` or LimitNOFILE="
          : error == ENFILE ? "; see fs.file-max: all processes of this machine have too many open"
          : error == ENOMEM ? "; see `ulimit -v`, and vm.max_map_count"
                            : "");
}

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

// Seals the file's length, since truncation would cause SIGBUS in processes that map it. Returns
// false with errno on failure.
bool seal(int fd, SharedRegion::Others others) {
  constexpr int kLength = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  if (others == SharedRegion::Others::kRead &&
      fcntl(fd, F_ADD_SEALS, kLength | F_SEAL_FUTURE_WRITE) == 0)
    return true;
  return fcntl(fd, F_ADD_SEALS, kLength) == 0;  // also if FUTURE_WRITE is unknown
}

// Returns the reason if the descriptor is not sealed memory of at least `bytes`; otherwise nullptr.
const char* unfit(int fd, std::size_t bytes) {
  const int seals = fcntl(fd, F_GET_SEALS);
  struct stat status {};
  if (seals < 0 || !(seals & F_SEAL_SHRINK)) return "its length is not sealed";
  if (fstat(fd, &status) != 0 || static_cast<std::size_t>(status.st_size) < bytes)
    return "it is shorter than announced";
  return nullptr;
}

}  // namespace

SharedRegion SharedRegion::create(std::size_t bytes, const char* label, Others others) {
  SharedRegion r;
  const std::size_t align = bytes >= kHuge ? kHuge : 4096;
  r.size_ = (std::max<std::size_t>(bytes, 1) + align - 1) / align * align;
  rlimit longest{};  // file size limit; exceeding it raises SIGXFSZ
  if (getrlimit(RLIMIT_FSIZE, &longest) == 0 && r.size_ > longest.rlim_cur)
    throw Error(
        fmt::format("cannot size shared memory to {} bytes: files may have {}; raise the "
                    "limit with `ulimit -f` or LimitFSIZE=",
                    r.size_, longest.rlim_cur));
  r.fd_ = memfd_create(label, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  const bool forbidden = r.fd_ < 0 && (errno == EPERM || errno == EACCES || errno == ENOSYS);
  if (forbidden) refused_with.store(errno, std::memory_order_relaxed);
  if (r.fd_ < 0 && !forbidden)
    throw Error(fmt::format("cannot create shared memory of {} bytes: {}", bytes, reason(errno)));
  if (!forbidden && ftruncate(r.fd_, static_cast<off_t>(r.size_)) != 0)
    throw Error(fmt::format("cannot size shared memory to {} bytes: {}", bytes, strerror(errno)));
  void* p = mmap(nullptr, r.size_, PROT_READ | PROT_WRITE,
                 forbidden ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED, r.fd_, 0);
  if (p == MAP_FAILED)
    throw Error(fmt::format("cannot map {} bytes of shared memory: {}", bytes, reason(errno)));
  r.data_ = static_cast<std::byte*>(p);
  if (!forbidden && !seal(r.fd_, others))
    throw Error(fmt::format("cannot seal shared memory of {} bytes: {}", bytes, strerror(errno)));
  if (r.size_ >= kHuge) madvise(p, r.size_, MADV_HUGEPAGE);  // a hint, for fewer page-table walks
  return r;
}

SharedRegion SharedRegion::open(pid_t pid, int fd, std::size_t bytes, Others others) {
  SharedRegion r;
  r.size_ = bytes;
  const std::string path = fmt::format("/proc/{}/fd/{}", pid, fd);
  const bool writes = others == Others::kWrite;
  const int here = ::open(path.c_str(), (writes ? O_RDWR : O_RDONLY) | O_NONBLOCK | O_CLOEXEC);
  int error = errno;
  if (here < 0)
    throw Error(fmt::format(
        "cannot open the shared memory of process {} ({}): {}{}", pid, path, reason(error),
        error == EMFILE ? "" : "; do the ranks run as one user and in one pid namespace?"));
  if (const char* why = unfit(here, bytes)) {
    close(here);
    throw Error(fmt::format("cannot use the shared memory of process {} ({}), {} bytes: {}", pid,
                            path, bytes, why));
  }
  void* p = mmap(nullptr, bytes, writes ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, here, 0);
  error = errno;
  close(here);
  if (p == MAP_FAILED)
    throw Error(fmt::format("cannot map {} bytes of process {}: {}", bytes, pid, reason(error)));
  r.data_ = static_cast<std::byte*>(p);
  if (bytes >= kHuge) madvise(p, bytes, MADV_HUGEPAGE);
  return r;
}

SharedRegion::~SharedRegion() {
  if (data_) munmap(data_, size_);
  if (fd_ >= 0) close(fd_);
}

void SharedRegion::read_only_from(std::size_t from) noexcept {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  from = (from + page - 1) / page * page;
  if (from < size_) mprotect(data_ + from, size_ - from, PROT_READ);
}

void SharedRegion::swap(SharedRegion& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(fd_, other.fd_);
}

void* alloc(std::size_t bytes) {
  SharedRegion region = SharedRegion::create(bytes, "weft-alloc", SharedRegion::Others::kRead);
  Registry& reg = registry();
  const MutexLock lock(reg.mutex);
  std::uint32_t index;
  if (!reg.free_entries.empty()) {
    index = reg.free_entries.back();
    reg.free_entries.pop_back();
  } else if (reg.used_entries < kMaxRegions) {
    index = reg.used_entries++;
  } else {
    throw Error(
        fmt::format("weft::alloc({}): {} allocations are alive already; allocate fewer, "
                    "larger buffers",
                    bytes, kMaxRegions));
  }
  DirectoryEntry* entry = reg.entry(index);
  entry->bytes = region.size();
  entry->fd = region.fd();
  // Memory that no other process can map is treated as ordinary memory.
  const std::uint64_t serial = region.fd() < 0 ? 0 : reg.next_serial++;
  entry->serial.store(serial, std::memory_order_release);
  std::byte* data = region.data();
  reg.by_address.emplace(data, Allocation{std::move(region), index, serial});
  reg.generation.fetch_add(1, std::memory_order_release);
  return data;
}

void free(void* memory) noexcept {
  if (!memory) return;
  Registry& reg = registry();
  const MutexLock lock(reg.mutex);
  const auto it = reg.by_address.find(static_cast<std::byte*>(memory));
  if (it == reg.by_address.end()) {
    std::fprintf(stderr, "weft::free(%p): not memory of weft::alloc, or freed before\n", memory);
    std::abort();
  }
  reg.entry(it->second.index)->serial.store(0, std::memory_order_release);
  reg.free_entries.push_back(it->second.index);
  reg.by_address.erase(it);
  reg.generation.fetch_add(1, std::memory_order_release);
}

RegionRef find_region(const void* data, std::size_t bytes) noexcept {
  // Cache of the last two results (regions or gaps), since a task usually uses two buffers.
  struct Last {
    const std::byte *begin = nullptr, *end = nullptr;
    std::uint32_t index = 0;
    std::uint64_t serial = 0, generation = 0;
  };
  thread_local Last last[2];
  const auto* p = static_cast<const std::byte*>(data);
  Registry& reg = registry();
  const std::uint64_t generation = reg.generation.load(std::memory_order_acquire);
  for (const Last& l : last)
    if (l.generation == generation && p >= l.begin && p + bytes <= l.end)
      return {l.index, l.serial, static_cast<std::uint64_t>(p - l.begin)};
  const MutexLock lock(reg.mutex);
  Last found{nullptr, reinterpret_cast<const std::byte*>(~std::uintptr_t{0}), 0, 0, generation};
  auto next = reg.by_address.upper_bound(p);
  if (next != reg.by_address.end()) found.end = next->first;
  if (next != reg.by_address.begin()) {
    const auto& [begin, allocation] = *std::prev(next);
    const std::byte* end = begin + allocation.region.size();
    if (p < end) {
      if (p + bytes > end) return {};
      found = {begin, end, allocation.index, allocation.serial, generation};
    } else {
      found.begin = end;
    }
  }
  last[1] = last[0];
  last[0] = found;
  return {found.index, found.serial, static_cast<std::uint64_t>(p - found.begin)};
}

std::size_t region_bytes(const RegionRef& ref) noexcept {
  if (ref.serial == 0) return 0;
  Registry& reg = registry();
  const MutexLock lock(reg.mutex);
  const DirectoryEntry* entry = reg.entry(ref.index);
  return entry->serial.load(std::memory_order_acquire) == ref.serial ? entry->bytes : 0;
}

int memory_refused() noexcept { return refused_with.load(std::memory_order_relaxed); }

int region_directory_fd() { return registry().directory.fd(); }

PeerRegions::PeerRegions(pid_t pid, int directory_fd)
    : pid_(pid),
      directory_(
          SharedRegion::open(pid, directory_fd, kDirectoryBytes, SharedRegion::Others::kRead)) {}

const std::byte* PeerRegions::resolve(const RegionRef& ref, std::size_t bytes, bool keep) noexcept {
  const auto in = [&](const SharedRegion& region) -> const std::byte* {
    const bool fits = ref.offset <= region.size() && bytes <= region.size() - ref.offset;
    return fits ? region.data() + ref.offset : nullptr;
  };
  if (ref.serial == last_serial_ && last_) return in(*last_);
  auto it = mapped_.find(ref.serial);
  if (it == mapped_.end()) {
    if (ref.index >= kMaxRegions) return nullptr;
    const auto* entry = reinterpret_cast<const DirectoryEntry*>(directory_.data()) + ref.index;
    if (entry->serial.load(std::memory_order_acquire) != ref.serial) return nullptr;
    if (!keep) drop_freed();
    try {
      it = mapped_
               .emplace(ref.serial,
                        Mapped{ref.index, SharedRegion::open(pid_, entry->fd, entry->bytes,
                                                             SharedRegion::Others::kRead)})
               .first;
    } catch (const Error&) {
      return nullptr;
    }
  }
  last_serial_ = ref.serial;
  last_ = &it->second.region;
  return in(*last_);
}

void PeerRegions::drop_freed() noexcept {
  const auto* entries = reinterpret_cast<const DirectoryEntry*>(directory_.data());
  std::erase_if(mapped_, [&](const auto& item) {
    return entries[item.second.index].serial.load(std::memory_order_acquire) != item.first;
  });
  last_serial_ = 0;
  last_ = nullptr;
}

}  // namespace weft
