// Forwards to this rank's DeviceContext, and converts 16-bit numbers. This file knows no tensors.
#include "train/operators/memory.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "topo/base/status.h"
#include "train/device/context.h"
#include "train/device/kernel.h"

namespace weft::train {

void* allocate_on_device(std::size_t bytes) {
  return DeviceContext::of_this_rank().allocate(bytes);
}
void free_on_device(void* memory) noexcept { DeviceContext::of_this_rank().release(memory); }
void copy_on_device(void* to, const void* from, std::size_t bytes) {
  DeviceContext::of_this_rank().copy(to, from, bytes);
}
void download(void* to, const void* from, std::size_t bytes) {
  DeviceContext::of_this_rank().download(to, from, bytes);
}
void upload(void* to, const void* from, std::size_t bytes) {
  DeviceContext::of_this_rank().upload(to, from, bytes);
}
void* pinned_memory(std::size_t bytes) { return DeviceContext::of_this_rank().pinned(bytes); }
void free_pinned(void* memory) noexcept { DeviceContext::of_this_rank().unpinned(memory); }
void* compute_stream() { return DeviceContext::of_this_rank().compute(); }
void* stream_beside_compute() {
  DeviceContext::of_this_rank().communicate_after_compute();
  return DeviceContext::of_this_rank().communication();
}
void wait_for_device() { DeviceContext::of_this_rank().wait(); }
void upload_pinned(void* to, void* memory, std::size_t bytes) {
  DeviceContext::of_this_rank().upload_pinned(to, memory, bytes);
}

DeviceMark DeviceMark::of_compute() {
  DeviceContext& context = DeviceContext::of_this_rank();
  return DeviceMark(context.mark(context.compute()));
}
DeviceMark DeviceMark::of_communication() {
  DeviceContext& context = DeviceContext::of_this_rank();
  return DeviceMark(context.mark(context.communication()));
}
DeviceMark::~DeviceMark() {
  if (event_ != nullptr) DeviceContext::of_this_rank().give_back(event_);
}
bool DeviceMark::passed() const {
  return event_ == nullptr || DeviceContext::of_this_rank().device().reached(event_);
}
void DeviceMark::before_compute() const {
  DeviceContext& context = DeviceContext::of_this_rank();
  if (event_ != nullptr) context.device().wait_event(context.compute(), event_);
}

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
  download(stored.data(), from, count * sizeof(std::uint16_t));
  with_codec(type, [&](auto codec) {
    for (std::size_t i = 0; i < count; ++i) to[i] = codec.widen(stored[i]);
  });
}
void upload_narrowed(void* to, const float* from, std::size_t count, DType type) {
  std::vector<std::uint16_t> stored(count);
  with_codec(type, [&](auto codec) {
    for (std::size_t i = 0; i < count; ++i) stored[i] = codec.narrow(from[i]);
  });
  upload(to, stored.data(), count * sizeof(std::uint16_t));
}

}  // namespace weft::train
