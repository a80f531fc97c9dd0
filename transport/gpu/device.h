// Interface to accelerators: memory that only a GPU may access, and operations in stream order.
//
// Implemented by CUDA (cuda_device.cc, built if nvcc is found) and by a fake device for tests,
// which needs no GPU. This file is independent of ranks and element types. Set-up and launches
// throw weft::Error with the call, the GPU and a remedy. Thread-safe unless a function is
// documented otherwise.
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
  kManaged,  // migrates between host and GPU on access
  kDevice,   // memory of one GPU; the host must not access it
};
const char* name(MemoryKind kind) noexcept;  // "host memory", "device memory", ...

// The kind and location of the memory at a pointer.
struct Residence {
  MemoryKind kind = MemoryKind::kHost;
  int gpu = -1;  // in this process's numbering
  // kDevice: the allocation that contains the pointer, and an id that is unique in this process:
  // memory that is freed and allocated again gets a new id.
  std::uintptr_t base = 0;
  std::size_t bytes = 0;
  std::uint64_t id = 0;
};

// The data that another process needs to map an allocation. Only other processes can use `handle`.
struct ExportedMemory {
  std::array<std::byte, 64> handle{};
  std::uint64_t bytes = 0;
};

// How an RDMA NIC accesses device memory: through a dma-buf, or at a CPU address of the memory,
// which also a NIC without GPU support can register.
struct NicMemory {
  int fd = -1;               // file descriptor of the dma-buf, closed by the caller; -1: none
  std::uint64_t offset = 0;  // offset of the memory in the dma-buf
  void* mapped = nullptr;    // CPU address of the memory; nullptr: none
  std::string why;           // the reason if both are missing
};

// Work that can run on a GPU or on the CPU. launch() copies `args`.
struct DeviceWork {
  // Launches the work on a stream of the current GPU; nullptr if this build has no CUDA. Returns 0
  // or the result of cudaGetLastError().
  int (*launch)(const void* args, void* stream) = nullptr;
  // Loads onto the current GPU all code that launch() may run, for any `args`; nullptr if there is
  // nothing to load. Returns 0 or an error, like launch().
  int (*load)() = nullptr;
  // Runs the work on this CPU. local(p) converts the GPU address p to the CPU's address.
  void (*run)(const void* args, void* (*local)(const void* p)) = nullptr;
  const void* args = nullptr;
  std::size_t bytes = 0;
  const char* title = "";  // for errors
  // Identifies the code that a launch loads, by title and number (0: none); the code is already
  // loaded if the work with title `loaded_with` has been loaded.
  std::uint64_t code = 0;
  const char* loaded_with = nullptr;
};

class Device {
 public:
  using Stream = void*;  // cudaStream_t; nullptr is the default stream
  using Event = void*;

  virtual ~Device() = default;

  virtual int count() const noexcept = 0;
  virtual std::string describe(int gpu) const = 0;  // "GPU 0 (NVIDIA H200, 0000:1b:00.0)"
  // Returns the PCI address as in sysfs, "0000:1b:00.0"; empty if the GPU has none.
  virtual std::string pci(int gpu) const {
    (void)gpu;
    return {};
  }
  // Returns a text that identifies this GPU in all processes.
  virtual std::string identity(int gpu) const = 0;
  // Returns the GPU that the program has selected, or the only GPU; -1 if none is selected yet.
  virtual int chosen() const noexcept { return -1; }
  // Returns whether work on `gpu` can access the memory of `other`; both are GPUs of this process.
  virtual bool reaches(int gpu, int other) const = 0;

  virtual Residence residence(const void* pointer) const noexcept = 0;

  // Allocates memory of a GPU, for tests and measurements.
  virtual void* alloc(int gpu, std::size_t bytes) = 0;
  virtual void free(void* memory) = 0;
  // Pins host memory until unpin(): copies to and from pinned memory are asynchronous.
  virtual void pin(void* memory, std::size_t bytes) = 0;
  virtual void unpin(void* memory) noexcept = 0;
  // Returns whether kernels on `gpu` can use the host address of pinned memory.
  virtual bool kernels_use_pinned(int gpu) const {
    (void)gpu;
    return true;
  }

  // Creates a stream that does not synchronize with the default stream.
  virtual Stream make_stream(int gpu) = 0;
  virtual void free_stream(Stream stream) noexcept = 0;  // its work must be complete
  virtual Event make_event(int gpu) = 0;
  virtual void free_event(Event event) noexcept = 0;
  virtual void record(Event event, Stream stream) = 0;
  virtual bool reached(Event event) = 0;  // true for an event never recorded
  // Makes later work on the stream wait for the work that the event has recorded so far.
  virtual void wait_event(Stream stream, Event event) = 0;

  // Copies between any kinds of memory; bytes may be 0. `gpu` is the GPU of the stream.
  virtual void copy(void* to, const void* from, std::size_t bytes, int gpu, Stream stream) = 0;
  virtual void launch(const DeviceWork& work, int gpu, Stream stream) = 0;
  // Loads the work's code before its launch. A launch that loads code ("lazy loading") may wait for
  // all streams of the GPU, so callers must load before the first wait_word().
  virtual void load(const DeviceWork& work, int gpu) = 0;

  // Allocates zeroed words of pinned memory, which order a user's stream relative to the host. A
  // stream executes write_word() when all its earlier work is visible to host and GPUs; its
  // wait_word() blocks the stream until the word has the value.
  virtual std::atomic<std::uint32_t>* words(std::size_t count) = 0;
  virtual void free_words(std::atomic<std::uint32_t>* words) noexcept = 0;
  virtual void write_word(Stream stream, std::atomic<std::uint32_t>* word, std::uint32_t value) = 0;
  virtual void wait_word(Stream stream, std::atomic<std::uint32_t>* word, std::uint32_t value) = 0;
  virtual int gpu_of(Stream stream) = 0;
  // Returns whether the stream captures its work in a graph instead of running it.
  virtual bool capturing(Stream stream) = 0;

  // Exports the allocation that contains `inside` to other processes. Throws Error with the kind of
  // allocation if it cannot be exported.
  virtual ExportedMemory export_memory(const void* inside) = 0;
  // Opens memory that another process exported; returns its start address.
  virtual void* open(const ExportedMemory& exported, int pid, int gpu) = 0;
  virtual void close(void* opened) noexcept = 0;

  // GPUDirect RDMA: whether kernels and copies that start after flush_remote_writes() see a NIC's
  // writes that completed before the call.
  virtual bool takes_remote_writes(int gpu) const {
    (void)gpu;
    return false;
  }
  virtual void flush_remote_writes(int gpu) { (void)gpu; }
  // Returns how NICs access [data, data + bytes), within one allocation.
  virtual NicMemory nic_memory(const void* data, std::size_t bytes) {
    (void)data, (void)bytes;
    return {.why = "this device exports none"};
  }

  // Called at the start of weft's own threads, so that their calls do not invalidate a capture in a
  // user's thread.
  virtual void enter_thread() noexcept {}
};

namespace detail {
extern std::atomic<Device*> active_device;
extern std::atomic<bool> device_looked_for;
Device* look_for_device();
}  // namespace detail

// Creates the device of WEFT_DEVICE=NAME for tests; returns nullptr for an unknown NAME. Tests set
// the factory before the first call of device().
using DeviceFactory = Device* (*)(std::string_view name);
void set_device_factory(DeviceFactory factory) noexcept;

// Returns this process's device: CUDA, if weft was built with it and a GPU is present; the
// factory's device if WEFT_DEVICE names one; otherwise nullptr. The first call detects it.
inline Device* device() {
  if (detail::device_looked_for.load(std::memory_order_acquire)) [[likely]]
    return detail::active_device.load(std::memory_order_relaxed);
  return detail::look_for_device();
}

// Describes why device() is nullptr: "a CUDA device (this build has no CUDA)".
std::string missing_device();

#ifdef WEFT_HAVE_CUDA
// Returns the CUDA device; nullptr if there is no GPU, with the driver's reason in `why`.
Device* cuda_device(std::string& why);
#endif

}  // namespace weft
