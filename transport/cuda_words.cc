#include "transport/cuda_words.h"

#include <fmt/format.h>

#include <cstdlib>
#include <string_view>
#include <thread>

#include "topo/log.h"
#include "topo/status.h"

namespace weft::cuda {
namespace {

// What a host function of a stream does where there are no memory operations.
struct WordWork {
  std::atomic<std::uint32_t>* word;
  std::uint32_t value;
};

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
    log().debug("weft: no stream memory operations: streams wait in host functions");
  }
}

void CudaWords::write(cudaStream_t stream, int gpu, std::atomic<std::uint32_t>* word,
                      std::uint32_t value) const {
  const OnGpu on(gpu);
  if (write_) {
    // The default flags put a fence before the write: whoever sees the word sees what came before.
    if (const CUresult r = write_(stream, reinterpret_cast<CUdeviceptr>(word), value,
                                  CU_STREAM_WRITE_VALUE_DEFAULT);
        r != CUDA_SUCCESS)
      throw Error(fmt::format("cuStreamWriteValue32 on GPU {}: CUresult {}; WEFT_CUDA_MEMOPS=off "
                              "does without",
                              gpu, static_cast<int>(r)));
    return;
  }
  // A captured host function runs at every replay: what it is given lives as long as the process.
  auto* work = new WordWork{word, value};
  const bool again = capturing(stream);
  const auto once = [](void* p) {
    const auto* w = static_cast<WordWork*>(p);
    w->word->store(w->value, std::memory_order_release);
    delete w;
  };
  const auto always = [](void* p) {
    const auto* w = static_cast<WordWork*>(p);
    w->word->store(w->value, std::memory_order_release);
  };
  const cudaError_t e =
      cudaLaunchHostFunc(stream, again ? cudaHostFn_t(always) : cudaHostFn_t(once), work);
  if (e != cudaSuccess) {
    delete work;
    fail("cudaLaunchHostFunc", gpu, e);
  }
}

void CudaWords::wait(cudaStream_t stream, int gpu, std::atomic<std::uint32_t>* word,
                     std::uint32_t value) const {
  const OnGpu on(gpu);
  if (write_) {
    if (const CUresult r = wait_(stream, reinterpret_cast<CUdeviceptr>(word), value,
                                 CU_STREAM_WAIT_VALUE_EQ);
        r != CUDA_SUCCESS)
      throw Error(fmt::format("cuStreamWaitValue32 on GPU {}: CUresult {}; WEFT_CUDA_MEMOPS=off "
                              "does without",
                              gpu, static_cast<int>(r)));
    return;
  }
  auto* work = new WordWork{word, value};
  const bool again = capturing(stream);
  const auto wait = [](const WordWork& w) {
    while (w.word->load(std::memory_order_acquire) != w.value) std::this_thread::yield();
  };
  static constexpr auto kWait = wait;
  const auto once = [](void* p) {
    const auto* w = static_cast<WordWork*>(p);
    kWait(*w);
    delete w;
  };
  const auto always = [](void* p) { kWait(*static_cast<WordWork*>(p)); };
  const cudaError_t e =
      cudaLaunchHostFunc(stream, again ? cudaHostFn_t(always) : cudaHostFn_t(once), work);
  if (e != cudaSuccess) {
    delete work;
    fail("cudaLaunchHostFunc", gpu, e);
  }
}

}  // namespace weft::cuda
