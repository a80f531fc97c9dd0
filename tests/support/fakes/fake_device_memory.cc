// Memory of the fake device: memfds, each mapped twice.
#include <fcntl.h>
#include <fmt/format.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>

#include "support/fakes/fake_device.h"
#include "topo/base/status.h"

namespace weft {
namespace {

// Content of an ExportedMemory of this device.
struct Request {
  std::int32_t fd;
  std::int32_t gpu;
};

std::size_t whole_pages(std::size_t bytes) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return std::max<std::size_t>(1, (bytes + page - 1) / page) * page;
}

[[noreturn]] void fail(const char* call, int gpu, const std::string& why) {
  throw Error(fmt::format("{} on fake GPU {}: {}", call, gpu, why));
}

}  // namespace

// One allocation, mapped twice: at the user's address without access rights, and at an address that
// the stream threads use.
struct FakeDevice::Block {
  std::uint64_t id = 0;
  int gpu = 0;
  MemoryKind kind = MemoryKind::kDevice;
  bool exportable = true, opened = false;
  std::size_t bytes = 0, mapped = 0;
  int fd = -1;
  std::byte *window = nullptr, *shadow = nullptr;
  ~Block() {
    if (shadow && shadow != window) munmap(shadow, mapped);
    if (window) munmap(window, mapped);
    if (fd >= 0) ::close(fd);
  }
};

const FakeDevice::Block* FakeDevice::find(const void* pointer) const {
  const auto at = reinterpret_cast<std::uintptr_t>(pointer);
  auto next = blocks_.upper_bound(at);
  if (next == blocks_.begin()) return nullptr;
  const auto& [base, block] = *std::prev(next);
  return at < base + block->mapped ? block.get() : nullptr;
}

Residence FakeDevice::residence(const void* pointer) const noexcept {
  const MutexLock lock(mutex_);
  const Block* b = find(pointer);
  if (!b) return {};
  Residence r{b->kind, b->gpu};
  r.base = reinterpret_cast<std::uintptr_t>(b->window);
  r.bytes = b->bytes;
  r.id = b->id;
  return r;
}

void* FakeDevice::add(int gpu, std::size_t bytes, MemoryKind kind, bool exportable, int pid,
                      int fd) {
  if (gpu < 0 || gpu >= kGpus) fail("alloc", gpu, fmt::format("there are GPUs 0..{}", kGpus - 1));
  auto b = std::make_shared<Block>();
  b->gpu = gpu;
  b->kind = kind;
  b->exportable = exportable;
  b->opened = pid != 0;
  b->bytes = bytes;
  b->mapped = whole_pages(bytes);
  if (pid != 0) {
    b->fd = ::open(fmt::format("/proc/{}/fd/{}", pid, fd).c_str(), O_RDWR | O_CLOEXEC);
    if (b->fd < 0) fail("open", gpu, fmt::format("memory of process {}: {}", pid, strerror(errno)));
  } else {
    b->fd = memfd_create("weft-fake-gpu", MFD_CLOEXEC);
    if (b->fd < 0 || ftruncate(b->fd, static_cast<off_t>(b->mapped)) != 0)
      fail("alloc", gpu, fmt::format("{} bytes: {}", bytes, strerror(errno)));
  }
  const auto map = [&](int rights) {
    void* p = mmap(nullptr, b->mapped, rights, MAP_SHARED, b->fd, 0);
    if (p == MAP_FAILED) fail("alloc", gpu, fmt::format("mmap: {}", strerror(errno)));
    return static_cast<std::byte*>(p);
  };
  b->shadow = map(PROT_READ | PROT_WRITE);
  b->window = kind == MemoryKind::kDevice ? map(PROT_NONE) : b->shadow;
  const MutexLock lock(mutex_);
  b->id = next_id_++;
  blocks_[reinterpret_cast<std::uintptr_t>(b->window)] = b;
  return b->window;
}

void FakeDevice::remove(void* base, const char* call) {
  if (!base) return;
  // A canceled kernel of a peer may still access this memory. A GPU waits for it in cudaFree.
  constexpr std::size_t kFreedKept = 64;
  const MutexLock lock(mutex_);
  const auto found = blocks_.find(reinterpret_cast<std::uintptr_t>(base));
  if (found == blocks_.end())
    fail(call, -1, fmt::format("{} is not where an allocation begins", base));
  freed_.push_back(std::move(found->second));
  blocks_.erase(found);
  if (freed_.size() > kFreedKept) freed_.pop_front();
}

void* FakeDevice::alloc(int gpu, std::size_t bytes) {
  refuse_late("alloc", gpu);
  return add(gpu, bytes, MemoryKind::kDevice, true, 0, -1);
}
void* FakeDevice::alloc_private(int gpu, std::size_t bytes) {
  return add(gpu, bytes, MemoryKind::kDevice, false, 0, -1);
}
void* FakeDevice::alloc_managed(std::size_t bytes) {
  return add(0, bytes, MemoryKind::kManaged, false, 0, -1);
}
void FakeDevice::free(void* memory) {
  note_return("free");
  remove(memory, "free");
}

void* FakeDevice::local(const void* pointer) const {
  const MutexLock lock(mutex_);
  const Block* b = find(pointer);
  const auto* at = static_cast<const std::byte*>(pointer);
  for (const auto& old : freed_)
    if (!b && at >= old->window && at < old->window + old->mapped) b = old.get();
  if (!b) return const_cast<void*>(pointer);
  return b->shadow + (static_cast<const std::byte*>(pointer) - b->window);
}

void* FakeDevice::alias(const void* data) const noexcept {
  if (!nics_) return nullptr;
  const MutexLock lock(mutex_);
  const Block* b = find(data);
  if (!b || b->gpu == hidden_) return nullptr;
  return b->shadow + (static_cast<const std::byte*>(data) - b->window);
}

NicMemory FakeDevice::nic_memory(const void* data, std::size_t) {
  return {.mapped = alias(data), .why = "this build has no CUDA"};
}

void FakeDevice::write_remotely(void* to, std::vector<std::byte> bytes) {
  const MutexLock lock(mutex_);
  remote_writes_.push_back({to, std::move(bytes)});
}

void FakeDevice::flush_remote_writes(int gpu) {
  check_injected("flush");
  const MutexLock lock(mutex_);
  std::erase_if(remote_writes_, [&](const RemoteWrite& w) WEFT_REQUIRES(mutex_) {
    const Block* b = find(w.to);
    if (b && b->gpu != gpu) return false;
    if (b)  // not freed meanwhile
      std::memcpy(b->shadow + (static_cast<std::byte*>(w.to) - b->window), w.bytes.data(),
                  w.bytes.size());
    return true;
  });
}

std::size_t FakeDevice::allocations() const {
  const MutexLock lock(mutex_);
  return blocks_.size();
}

ExportedMemory FakeDevice::export_memory(const void* inside) {
  check_injected("export");
  const MutexLock lock(mutex_);
  const Block* b = find(inside);
  if (!b || !b->exportable || b->opened)
    fail("export", b ? b->gpu : -1, fmt::format("{} cannot be shared between processes", inside));
  ExportedMemory exported;
  const Request handle{b->fd, b->gpu};
  std::memcpy(exported.handle.data(), &handle, sizeof handle);
  exported.bytes = b->bytes;
  return exported;
}

void* FakeDevice::open(const ExportedMemory& exported, int pid, int gpu) {
  check_injected("open");
  refuse_late("open", gpu);
  Request handle;
  std::memcpy(&handle, exported.handle.data(), sizeof handle);
  if (!reaches(gpu, handle.gpu))
    fail("open", gpu, fmt::format("no way to the memory of GPU {}", handle.gpu));
  return add(handle.gpu, exported.bytes, MemoryKind::kDevice, false, pid, handle.fd);
}

void FakeDevice::close(void* opened) noexcept {
  note_return("close");
  const MutexLock lock(mutex_);
  blocks_.erase(reinterpret_cast<std::uintptr_t>(opened));
}

}  // namespace weft
