// Makes streams write and wait for words, with memory operations or with the kernels in
// cuda_stream_memops.cu. This file is independent of the meaning of a word.
#include "transport/gpu/cuda_stream_memops.h"

#include <fmt/format.h>

#include <cstdlib>
#include <set>
#include <string_view>

#include "topo/base/log.h"
#include "topo/base/mutex.h"
#include "topo/base/status.h"

namespace weft::cuda {
namespace {

// Loads the kernels before the first stream of a GPU waits, since loading them later may wait for
// that stream.
void load_once(int gpu) {
  static Mutex mutex;
  // Never destroyed: used by destructors of statics.
  static auto* const loaded WEFT_PT_GUARDED_BY(mutex) = new std::set<int>;
  const MutexLock lock(mutex);
  if (loaded->contains(gpu)) return;
  const Relaxed relaxed;
  if (const cudaError_t e = load_words(); e != cudaSuccess)
    fail("loading of the kernels that wait for words", gpu, e);
  loaded->insert(gpu);
}

}  // namespace

bool capturing(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  const cudaError_t e = cudaStreamIsCapturing(stream, &status);
  if (e != cudaSuccess) fail("cudaStreamIsCapturing", -1, e);
  return status == cudaStreamCaptureStatusActive;
}

CudaWords::CudaWords() {
  const char* memops = std::getenv("WEFT_CUDA_MEMOPS");
  if (!memops || std::string_view(memops) != "off") {
    write_ = driver_function<decltype(write_)>("cuStreamWriteValue32", 12000);
    wait_ = driver_function<decltype(wait_)>("cuStreamWaitValue32", 12000);
  }
  if (!write_ || !wait_) {
    write_ = nullptr;
    log().debug("weft: no stream memory operations: streams wait in kernels");
  }
}

void CudaWords::write(cudaStream_t stream, int gpu, std::atomic<std::uint32_t>* word,
                      std::uint32_t value) const {
  const OnGpu on(gpu);
  if (write_) {
    // With the default flags a memory fence precedes the write, so earlier work is visible with it.
    if (const CUresult r = write_(stream, reinterpret_cast<CUdeviceptr>(word), value,
                                  CU_STREAM_WRITE_VALUE_DEFAULT);
        r != CUDA_SUCCESS)
      throw Error(
          fmt::format("cuStreamWriteValue32 on GPU {}: CUresult {}; WEFT_CUDA_MEMOPS=off "
                      "does without",
                      gpu, static_cast<int>(r)));
    return;
  }
  load_once(gpu);
  if (const cudaError_t e = launch_write(stream, word, value); e != cudaSuccess)
    fail("launch of the kernel that writes a word", gpu, e);
}

void CudaWords::wait(cudaStream_t stream, int gpu, std::atomic<std::uint32_t>* word,
                     std::uint32_t value) const {
  const OnGpu on(gpu);
  if (write_) {
    if (const CUresult r =
            wait_(stream, reinterpret_cast<CUdeviceptr>(word), value, CU_STREAM_WAIT_VALUE_EQ);
        r != CUDA_SUCCESS)
      throw Error(
          fmt::format("cuStreamWaitValue32 on GPU {}: CUresult {}; WEFT_CUDA_MEMOPS=off "
                      "does without",
                      gpu, static_cast<int>(r)));
    return;
  }
  load_once(gpu);
  if (const cudaError_t e = launch_wait(stream, word, value); e != cudaSuccess)
    fail("launch of the kernel that waits for a word", gpu, e);
}

}  // namespace weft::cuda
