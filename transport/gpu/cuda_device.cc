// Implements Device with the CUDA runtime; cuda_stream_memops.cc orders streams relative to the
// host. This file is independent of ranks.
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <cctype>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "topo/base/log.h"
#include "topo/base/mutex.h"
#include "topo/base/status.h"
#include "transport/gpu/cuda_call.h"
#include "transport/gpu/cuda_dmabuf.h"
#include "transport/gpu/cuda_stream_memops.h"
#include "transport/gpu/device.h"

namespace weft {
namespace {

using cuda::driver_function;
using cuda::fail;
using cuda::OnAnyGpu;
using cuda::OnGpu;
using cuda::Relaxed;

cudaStream_t native(Device::Stream stream) { return static_cast<cudaStream_t>(stream); }
cudaEvent_t native_event(Device::Event event) { return static_cast<cudaEvent_t>(event); }

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(int count)
      : count_(count), enabled_(static_cast<std::size_t>(count * count)) {
    for (int gpu = 0; gpu < count; ++gpu) {
      cudaDeviceProp prop{};
      char address[32] = "?";
      if (const cudaError_t e = cudaGetDeviceProperties(&prop, gpu); e != cudaSuccess)
        fail("cudaGetDeviceProperties", gpu, e);
      cudaDeviceGetPCIBusId(address, sizeof address, gpu);
      names_.push_back(prop.name);
      // The UUID distinguishes the MIG instances of one card; the PCI address does not.
      std::string uuid;
      for (const char byte : prop.uuid.bytes)
        uuid += fmt::format("{:02x}", static_cast<unsigned char>(byte));
      uuids_.push_back(uuid);
      addresses_.push_back(address);
    }
    attributes_ = driver_function<decltype(attributes_)>("cuPointerGetAttributes", 7000);
    stream_context_ = driver_function<decltype(stream_context_)>("cuStreamGetCtx", 9020);
    push_ = driver_function<decltype(push_)>("cuCtxPushCurrent", 4000);
    pop_ = driver_function<decltype(pop_)>("cuCtxPopCurrent", 4000);
    context_device_ = driver_function<decltype(context_device_)>("cuCtxGetDevice", 2000);
  }

  int count() const noexcept override { return count_; }
  int chosen() const noexcept override { return cuda::gpu_chosen(); }
  std::string describe(int gpu) const override {
    const auto g = static_cast<std::size_t>(gpu);
    return fmt::format("GPU {} ({}, {})", gpu, names_.at(g), addresses_.at(g));
  }
  std::string pci(int gpu) const override {
    std::string address = addresses_.at(static_cast<std::size_t>(gpu));
    for (char& c : address) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return address;
  }
  std::string identity(int gpu) const override { return uuids_.at(static_cast<std::size_t>(gpu)); }

  bool reaches(int gpu, int other) const override {
    if (gpu == other) return true;
    int can = 0;
    if (cudaDeviceCanAccessPeer(&can, gpu, other) != cudaSuccess || !can) {
      cudaGetLastError();
      return false;
    }
    const MutexLock lock(mutex_);
    auto&& done = enabled_[static_cast<std::size_t>(gpu * count_ + other)];
    if (done) return true;
    const OnGpu on(gpu);
    const cudaError_t e = cudaDeviceEnablePeerAccess(other, 0);
    cudaGetLastError();
    done = e == cudaSuccess || e == cudaErrorPeerAccessAlreadyEnabled;
    return done;
  }

  Residence residence(const void* pointer) const noexcept override;

  void* alloc(int gpu, std::size_t bytes) override {
    const Relaxed relaxed;
    const OnGpu on(gpu);
    void* memory = nullptr;
    if (const cudaError_t e = cudaMalloc(&memory, bytes ? bytes : 1); e != cudaSuccess)
      fail(fmt::format("cudaMalloc of {} bytes", bytes).c_str(), gpu, e);
    return memory;
  }
  void free(void* memory) override {
    const Relaxed relaxed;
    const OnAnyGpu on;
    if (const cudaError_t e = cudaFree(memory); e != cudaSuccess) fail("cudaFree", -1, e);
  }
  void pin(void* memory, std::size_t bytes) override {
    const Relaxed relaxed;
    const OnAnyGpu on;
    if (const cudaError_t e =
            cudaHostRegister(memory, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped);
        e != cudaSuccess)
      fail(fmt::format("cudaHostRegister of {} bytes", bytes).c_str(), 0, e);
  }
  void unpin(void* memory) noexcept override {
    const Relaxed relaxed;
    const OnAnyGpu on;
    cudaHostUnregister(memory);
    cudaGetLastError();
  }

  bool kernels_use_pinned(int gpu) const override {
    return attribute(gpu, cudaDevAttrCanUseHostPointerForRegisteredMem) != 0;
  }

  Stream make_stream(int gpu) override {
    const Relaxed relaxed;
    const OnGpu on(gpu);
    cudaStream_t stream = nullptr;
    if (const cudaError_t e = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
        e != cudaSuccess)
      fail("cudaStreamCreateWithFlags", gpu, e);
    return stream;
  }
  void free_stream(Stream stream) noexcept override {
    const OnAnyGpu on;
    cudaStreamDestroy(native(stream));
    cudaGetLastError();
  }
  Event make_event(int gpu) override {
    const Relaxed relaxed;
    const OnGpu on(gpu);
    cudaEvent_t event = nullptr;
    if (const cudaError_t e = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
        e != cudaSuccess)
      fail("cudaEventCreateWithFlags", gpu, e);
    return event;
  }
  void free_event(Event event) noexcept override {
    const OnAnyGpu on;
    cudaEventDestroy(native_event(event));
    cudaGetLastError();
  }
  void record(Event event, Stream stream) override {
    const OnAnyGpu on;
    if (const cudaError_t e = cudaEventRecord(native_event(event), native(stream));
        e != cudaSuccess)
      fail("cudaEventRecord", gpu_of(stream), e);
  }
  bool reached(Event event) override {
    const Relaxed relaxed;  // a query would invalidate captures of other threads
    const OnAnyGpu on;
    const cudaError_t e = cudaEventQuery(native_event(event));
    if (e == cudaSuccess) return true;
    if (e != cudaErrorNotReady) fail("cudaEventQuery", -1, e);
    cudaGetLastError();
    return false;
  }

  void wait_event(Stream stream, Event event) override {
    const OnAnyGpu on;
    if (const cudaError_t e = cudaStreamWaitEvent(native(stream), native_event(event), 0);
        e != cudaSuccess)
      fail("cudaStreamWaitEvent", gpu_of(stream), e);
  }

  void copy(void* to, const void* from, std::size_t bytes, int gpu, Stream stream) override {
    if (bytes == 0) return;
    const OnGpu on(gpu);
    if (const cudaError_t e = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, native(stream));
        e != cudaSuccess)
      fail(fmt::format("cudaMemcpyAsync of {} bytes", bytes).c_str(), gpu, e);
  }
  void launch(const DeviceWork& work, int gpu, Stream stream) override {
    if (!work.launch)
      throw Error(fmt::format("kernel {}: this build has none for a GPU", work.title));
    const OnGpu on(gpu);
    if (const int e = work.launch(work.args, stream); e != 0)
      fail(fmt::format("launch of kernel {}", work.title).c_str(), gpu,
           static_cast<cudaError_t>(e));
  }
  void load(const DeviceWork& work, int gpu) override {
    if (!work.load) return;
    const Relaxed relaxed;
    const OnGpu on(gpu);
    if (const int e = work.load(); e != 0)
      fail(fmt::format("loading of kernel {}", work.title).c_str(), gpu,
           static_cast<cudaError_t>(e));
  }

  std::atomic<std::uint32_t>* words(std::size_t count) override {
    const Relaxed relaxed;
    const OnAnyGpu on;
    void* memory = nullptr;
    if (const cudaError_t e = cudaHostAlloc(&memory, count * sizeof(std::uint32_t),
                                            cudaHostAllocPortable | cudaHostAllocMapped);
        e != cudaSuccess)
      fail("cudaHostAlloc", 0, e);
    std::memset(memory, 0, count * sizeof(std::uint32_t));
    return static_cast<std::atomic<std::uint32_t>*>(memory);
  }
  void free_words(std::atomic<std::uint32_t>* words) noexcept override {
    const Relaxed relaxed;
    const OnAnyGpu on;
    cudaFreeHost(words);
    cudaGetLastError();
  }
  void write_word(Stream stream, std::atomic<std::uint32_t>* word, std::uint32_t value) override {
    words_.write(native(stream), gpu_of(stream), word, value);
  }
  void wait_word(Stream stream, std::atomic<std::uint32_t>* word, std::uint32_t value) override {
    words_.wait(native(stream), gpu_of(stream), word, value);
  }

  int gpu_of(Stream stream) override {
    int gpu = 0;
    CUcontext context = nullptr, popped = nullptr;
    if (stream && stream_context_ && push_ && pop_ && context_device_ &&
        stream_context_(native(stream), &context) == CUDA_SUCCESS &&
        push_(context) == CUDA_SUCCESS) {
      CUdevice found = 0;
      const CUresult r = context_device_(&found);
      pop_(&popped);
      if (r == CUDA_SUCCESS) return found;
    }
    cudaGetDevice(&gpu);
    return gpu;
  }
  bool capturing(Stream stream) override { return cuda::capturing(native(stream)); }

  ExportedMemory export_memory(const void* inside) override {
    const Relaxed relaxed;
    const Residence r = residence(inside);
    const OnGpu on(r.gpu);
    cudaIpcMemHandle_t handle;
    if (const cudaError_t e =
            cudaIpcGetMemHandle(&handle, reinterpret_cast<void*>(r.base));  // NOLINT
        e != cudaSuccess)
      fail("cudaIpcGetMemHandle (memory of cudaMallocAsync or cuMemCreate has no handle)", r.gpu,
           e);
    ExportedMemory exported;
    static_assert(sizeof handle == sizeof exported.handle);
    std::memcpy(exported.handle.data(), &handle, sizeof handle);
    exported.bytes = r.bytes;
    return exported;
  }
  void* open(const ExportedMemory& exported, int, int gpu) override {
    const Relaxed relaxed;
    const OnGpu on(gpu);
    cudaIpcMemHandle_t handle;
    std::memcpy(&handle, exported.handle.data(), sizeof handle);
    void* opened = nullptr;
    if (const cudaError_t e = cudaIpcOpenMemHandle(&opened, handle, cudaIpcMemLazyEnablePeerAccess);
        e != cudaSuccess)
      fail("cudaIpcOpenMemHandle", gpu, e);
    const MutexLock lock(mutex_);
    opened_[opened] = gpu;
    return opened;
  }
  void close(void* opened) noexcept override {
    int gpu = -1;
    {
      const MutexLock lock(mutex_);
      if (const auto found = opened_.find(opened); found != opened_.end()) {
        gpu = found->second;
        opened_.erase(found);
      }
    }
    try {
      const Relaxed relaxed;
      const OnGpu on(gpu);  // the GPU that it was opened on
      cudaIpcCloseMemHandle(opened);
      cudaGetLastError();
    } catch (const Error& e) {
      log().debug("weft: {}", e.what());
    }
  }

  // cudaDeviceFlushGPUDirectRDMAWrites() is the driver's cuFlushGPUDirectRDMAWrites(), which blocks
  // until such writes are visible, and can be omitted if
  // CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING covers the scope (CUDA manual).
  bool takes_remote_writes(int gpu) const override {
    return orders_remote_writes(gpu) ||
           (attribute(gpu, cudaDevAttrGPUDirectRDMAFlushWritesOptions) &
            cudaFlushGPUDirectRDMAWritesOptionHost) != 0;
  }
  void flush_remote_writes(int gpu) override {
    if (orders_remote_writes(gpu)) return;
    const Relaxed relaxed;
    const OnGpu on(gpu);
    if (const cudaError_t e = cudaDeviceFlushGPUDirectRDMAWrites(
            cudaFlushGPUDirectRDMAWritesTargetCurrentDevice, cudaFlushGPUDirectRDMAWritesToOwner);
        e != cudaSuccess)
      fail("cudaDeviceFlushGPUDirectRDMAWrites", gpu, e);
  }
  NicMemory nic_memory(const void* data, std::size_t bytes) override {
    return cuda_dmabuf(data, bytes);
  }

  void enter_thread() noexcept override {
    cudaStreamCaptureMode relaxed = cudaStreamCaptureModeRelaxed;
    cudaThreadExchangeStreamCaptureMode(&relaxed);
  }

 private:
  static int attribute(int gpu, cudaDeviceAttr which) {
    int value = 0;
    if (cudaDeviceGetAttribute(&value, which, gpu) != cudaSuccess) cudaGetLastError();
    return value;
  }
  static bool orders_remote_writes(int gpu) {
    return attribute(gpu, cudaDevAttrGPUDirectRDMAWritesOrdering) >=
           cudaGPUDirectRDMAWritesOrderingOwner;
  }

  int count_;
  std::vector<std::string> names_, uuids_, addresses_;
  mutable Mutex mutex_;
  mutable std::vector<bool> enabled_ WEFT_GUARDED_BY(mutex_);  // peer access, [gpu][other]
  // Mapped memory of other processes, and the GPU for which each is mapped.
  std::map<void*, int> opened_ WEFT_GUARDED_BY(mutex_);
  cuda::CudaWords words_;
  CUresult (*attributes_)(unsigned, CUpointer_attribute*, void**, CUdeviceptr) = nullptr;
  CUresult (*stream_context_)(CUstream, CUcontext*) = nullptr;
  CUresult (*push_)(CUcontext) = nullptr;
  CUresult (*pop_)(CUcontext*) = nullptr;
  CUresult (*context_device_)(CUdevice*) = nullptr;
};

Residence CudaDevice::residence(const void* pointer) const noexcept {
  Residence r;
  unsigned type = 0, managed = 0;
  unsigned long long id = 0;
  void* base = nullptr;
  std::size_t bytes = 0;
  CUpointer_attribute wanted[] = {
      CU_POINTER_ATTRIBUTE_MEMORY_TYPE,      CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
      CU_POINTER_ATTRIBUTE_IS_MANAGED,       CU_POINTER_ATTRIBUTE_BUFFER_ID,
      CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE};
  void* data[] = {&type, &r.gpu, &managed, &id, &base, &bytes};
  const CUresult asked = attributes_
                             ? attributes_(6, wanted, data, reinterpret_cast<CUdeviceptr>(pointer))
                             : CUDA_ERROR_NOT_INITIALIZED;
  if (asked != CUDA_SUCCESS) {
    // The driver call needs a context in this thread. If no GPU is in use, the pointer is host
    // memory: a runtime call would create a context, which takes hundreds of megabytes on GPU 0.
    const int gpu = attributes_ ? cuda::gpu_in_use() : -1;
    if (gpu < 0) return {};
    try {
      const OnGpu on(gpu);
      if (attributes_(6, wanted, data, reinterpret_cast<CUdeviceptr>(pointer)) != CUDA_SUCCESS)
        return {};
    } catch (const Error&) {
      return {};
    }
  }
  if (type == 0) return {};
  if (managed) {
    r.kind = MemoryKind::kManaged;
  } else if (type == CU_MEMORYTYPE_HOST) {
    r.kind = MemoryKind::kPinned;
  } else {
    r.kind = MemoryKind::kDevice;
    r.base = reinterpret_cast<std::uintptr_t>(base);
    r.bytes = bytes;
    r.id = id;
  }
  return r;
}

}  // namespace

Device* cuda_device(std::string& why) {
  cuda::prepare_environment();
  int count = 0;
  // This call creates no context, so a process without GPU memory has none.
  const cudaError_t e = cudaGetDeviceCount(&count);
  if (e != cudaSuccess || count == 0) {
    cudaGetLastError();
    why = e == cudaSuccess ? "no GPU is visible; see CUDA_VISIBLE_DEVICES"
                           : fmt::format("cudaGetDeviceCount: {}", cudaGetErrorString(e));
    return nullptr;
  }
  cuda::tell_of_lazy_loading();
  static CudaDevice* const made = new CudaDevice(count);
  return made;
}

}  // namespace weft
