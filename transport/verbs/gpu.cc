// Bounce buffers of pinned host memory, for GPU memory that the HCA cannot access. This file does
// not depend on peers or queues.
#include "transport/verbs/gpu.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "topo/base/status.h"
#include "transport/memory/memory.h"

namespace weft {
namespace {

constexpr std::size_t kLeastStage = 64u << 10;

}  // namespace

VerbsGpu::~VerbsGpu() {
  for (const auto& [data, bytes] : made_) {
    device()->unpin(data);
    weft::free(data);
  }
}

VerbsGpu::Stage VerbsGpu::stage(std::size_t bytes) {
  const auto fits = [&](std::byte* data) { return made_.at(data) >= bytes; };
  const auto known = std::find_if(free_.begin(), free_.end(), fits);
  if (known != free_.end()) {
    std::byte* const data = *known;
    free_.erase(known);
    return {data, Give{this}};
  }
  const std::size_t whole = std::bit_ceil(std::max(bytes, kLeastStage));
  auto* const data = static_cast<std::byte*>(weft::alloc(whole));
  if (data == nullptr) throw Error(fmt::format("verbs: no {} bytes to stage GPU memory in", whole));
  try {
    device()->pin(data, whole);
  } catch (...) {
    weft::free(data);
    throw;
  }
  made_.emplace(data, whole);
  free_.reserve(made_.size());  // so that Give does not allocate
  return {data, Give{this}};
}

}  // namespace weft
