// The seam to accelerators: memory that only a GPU may touch, and work in the order of streams.
//
// CUDA implements it (cuda_device.cc, built where nvcc is found); tests bring a fake that needs no
// GPU, on which everything above this seam is tested. Knows nothing of ranks or element types.
// Set-up and launches throw weft::Error, which names the call, the GPU and a remedy. Thread-safe,
// unless a function says otherwise.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace weft {

enum class MemoryKind : std::uint8_t {
  kHost,     // malloc, stack, weft::alloc
  kPinned,   // host memory that a GPU reads and writes directly
  kManaged,  // moves between host and GPU as it is touched
  kDevice,   // of one GPU; the host must not touch it
};
const char* name(MemoryKind kind) noexcept;  // "host memory", "device memory", ...

// Where a pointer points.
struct Residence {
  MemoryKind kind = MemoryKind::kHost;
  int gpu = -1;  // as this process counts them
  // kDevice: the allocation around the pointer, and a number that no other allocation of this
  // process ever had: memory given back and allocated anew has another.
  std::uintptr_t base = 0;
  std::size_t bytes = 0;
  std::uint64_t id = 0;
};

// What another process needs to map an allocation. `handle` means something to it only.
struct ExportedMemory {
  std::array<std::byte, 64> handle{};
  std::uint64_t bytes = 0;
};

// How an RDMA NIC reaches device memory: by a dma-buf, the file that lets the kernel give another
// device a way to the memory; or where the processor finds the memory, which a NIC that knows no
// GPUs can register.
struct NicMemory {
  int fd = -1;               // of the dma-buf, which the caller closes; -1: none
  std::uint64_t offset = 0;  // of the memory in the dma-buf
  void* mapped = nullptr;    // where the processor finds the memory; nullptr: nowhere
  std::string why;           // there is neither
};

// A piece of work in both its forms. `args` is copied when it is launched.
struct DeviceWork {
  // Launches it on a stream of the current GPU; nullptr where this build has no CUDA. Returns 0 or
  // what cudaGetLastError() said.
  int (*launch)(const void* args, void* stream) = nullptr;
  // Loads what `launch` may launch, also with other `args`, onto the current GPU; nullptr: nothing
  // to load. Returns what launch() does.
  int (*load)() = nullptr;
  // Does it on this processor. local(p) is where the processor finds what a GPU finds at p.
  void (*run)(const void* args, void* (*local)(const void* p)) = nullptr;
  const void* args = nullptr;
  std::size_t bytes = 0;
  const char* title = "";  // for errors
};

class Device {
 public:
  using Stream = void*;  // cudaStream_t; nullptr is the default stream
  using Event = void*;

  virtual ~Device() = default;

  virtual int count() const noexcept = 0;
  virtual std::string describe(int gpu) const = 0;  // "GPU 0 (NVIDIA H200, 0000:1b:00.0)"
  // The same text in every process that sees this GPU.
  virtual std::string identity(int gpu) const = 0;
  // Whether work on `gpu` may read and write memory of `other`; both of this process.
  virtual bool reaches(int gpu, int other) const = 0;

  virtual Residence residence(const void* pointer) const noexcept = 0;

  // Memory of a GPU, for tests and measurements.
  virtual void* alloc(int gpu, std::size_t bytes) = 0;
  virtual void free(void* memory) = 0;
  // Host memory that copies run to and from without waiting; until unpin().
  virtual void pin(void* memory, std::size_t bytes) = 0;
  virtual void unpin(void* memory) noexcept = 0;
  // Whether kernels on `gpu` read and write pinned memory where the host does.
  virtual bool kernels_use_pinned(int gpu) const {
    (void)gpu;
    return true;
  }

  // Streams that do not wait for the default stream.
  virtual Stream make_stream(int gpu) = 0;
  virtual void free_stream(Stream stream) noexcept = 0;  // what is on it must be over
  virtual Event make_event(int gpu) = 0;
  virtual void free_event(Event event) noexcept = 0;
  virtual void record(Event event, Stream stream) = 0;
  virtual bool reached(Event event) = 0;  // true also for one that was never recorded
  // What follows on the stream starts after what the event has recorded so far.
  virtual void wait_event(Stream stream, Event event) = 0;

  // Any kinds of memory; bytes may be 0. `gpu` is the stream's.
  virtual void copy(void* to, const void* from, std::size_t bytes, int gpu, Stream stream) = 0;
  virtual void launch(const DeviceWork& work, int gpu, Stream stream) = 0;
  // Loads the work's code, so that launching it does not: that may wait for all streams of the GPU
  // ("lazy loading"), also for one that waits for a word, so it is done before the first of those.
  virtual void load(const DeviceWork& work, int gpu) = 0;

  // Words of pinned memory that order a user's stream against the host: the stream writes one when
  // it gets there (after all its earlier work is visible to everybody), or waits until it has a
  // value. Zero at first.
  virtual std::atomic<std::uint32_t>* words(std::size_t count) = 0;
  virtual void free_words(std::atomic<std::uint32_t>* words) noexcept = 0;
  virtual void write_word(Stream stream, std::atomic<std::uint32_t>* word, std::uint32_t value) = 0;
  virtual void wait_word(Stream stream, std::atomic<std::uint32_t>* word, std::uint32_t value) = 0;
  // The GPU of a stream; whether what is put on it is captured in a graph instead of being run.
  virtual int gpu_of(Stream stream) = 0;
  virtual bool capturing(Stream stream) = 0;

  // Between processes: the owner exports an allocation (`inside` points into it), a peer opens it.
  // Not every allocation can be exported; the error says which.
  virtual ExportedMemory export_memory(const void* inside) = 0;
  virtual void* open(const ExportedMemory& exported, int pid, int gpu) = 0;  // where it begins
  virtual void close(void* opened) noexcept = 0;

  // Memory of a GPU that RDMA NICs write to (GPUDirect). Whether kernels and copies that start
  // after flush_remote_writes() see what a NIC has written, as its completion says, before the
  // call.
  virtual bool takes_remote_writes(int gpu) const {
    (void)gpu;
    return false;
  }
  virtual void flush_remote_writes(int gpu) { (void)gpu; }
  // How NICs reach [data, data + bytes), which is in one allocation.
  virtual NicMemory nic_memory(const void* data, std::size_t bytes) {
    (void)data, (void)bytes;
    return {.why = "this device exports none"};
  }

  // For threads of weft's own: their calls do not end a capture that the user's threads are at.
  virtual void enter_thread() noexcept {}
};

namespace detail {
extern std::atomic<Device*> active_device;
extern std::atomic<bool> device_looked_for;
Device* look_for_device();
}  // namespace detail

// Makes devices that weft does not have, for tests: the one of WEFT_DEVICE=NAME, or nullptr where
// NAME is none of its own. Set before device() is first called.
using DeviceFactory = Device* (*)(std::string_view name);
void set_device_factory(DeviceFactory factory) noexcept;

// This process's device, nullptr where there is none: CUDA, if weft was built with it and there is
// a GPU; one of the device factory where WEFT_DEVICE names it. Looked for once.
inline Device* device() {
  if (detail::device_looked_for.load(std::memory_order_acquire)) [[likely]]
    return detail::active_device.load(std::memory_order_relaxed);
  return detail::look_for_device();
}

// What is missing where device() is nullptr: "a CUDA device (this build has no CUDA)".
std::string missing_device();

#ifdef WEFT_HAVE_CUDA
// nullptr when there is no GPU, and then `why` says what the driver said.
Device* cuda_device(std::string& why);
#endif

}  // namespace weft
