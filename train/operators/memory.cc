// Converts 16-bit numbers of a device. This file knows no tensors.
#include "train/operators/memory.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "topo/base/status.h"
#include "train/device/kernel.h"

namespace weft::train {

void out_of_memory(std::size_t count, std::size_t bytes_of_each) {
  throw Error(
      fmt::format("out of memory: a tensor of {} numbers needs {:.1f} GB more; take fewer "
                  "--positions, a smaller "
                  "--micro-batch or --width, or split them: --tp",
                  count, static_cast<double>(count) * static_cast<double>(bytes_of_each) / 1e9));
}

namespace {

// The same call for both 16-bit types.
template <class F>
void with_codec(DType type, F f) {
  if (type == DType::kBFloat16)
    f(kernels::Codec<Bf16>());
  else
    f(kernels::Codec<Fp16>());
}

}  // namespace

void download_widened(float* to, const void* from, std::size_t count, DType type) {
  std::vector<std::uint16_t> stored(count);
  rank_device().download(stored.data(), from, count * sizeof(std::uint16_t));
  with_codec(type, [&](auto codec) {
    for (std::size_t i = 0; i < count; ++i) to[i] = codec.widen(stored[i]);
  });
}
void upload_narrowed(void* to, const float* from, std::size_t count, DType type) {
  std::vector<std::uint16_t> stored(count);
  with_codec(type, [&](auto codec) {
    for (std::size_t i = 0; i < count; ++i) stored[i] = codec.narrow(from[i]);
  });
  rank_device().upload(to, stored.data(), count * sizeof(std::uint16_t));
}

}  // namespace weft::train
