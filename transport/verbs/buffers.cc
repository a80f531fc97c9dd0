// Registers memory for transfers, and copies GPU memory that the HCA cannot access through bounce
// buffers. This file does not depend on peers or queues.
#include "transport/verbs/buffers.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "topo/base/log.h"
#include "topo/base/status.h"
#include "transport/memory/memory.h"

namespace weft {
namespace {

constexpr std::size_t kLeastStage = 64u << 10;

}  // namespace

VerbsBuffers::VerbsBuffers(const VerbsDevice& device)
    : cache_(
          [&device](void* data, std::size_t bytes, Use use) {
            const int access =
                use == Use::kWrite ? IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE : 0;
            return VerbsMemory(device, data, bytes, access);
          },
          device.settings().cache_entries, device.settings().cache_bytes, device.is_software()) {}

void VerbsBuffers::Unpin::operator()(std::byte* data) const noexcept {
  device()->unpin(data);
  weft::free(data);
}

VerbsBuffers::Reach VerbsBuffers::reach(const Transfer& t, Use use) {
  Reach reach;
  const bool gpu = VerbsMemory::on_gpu(t.data);
  if (!gpu || asks()) {
    try {
      reach.lease = cache_.acquire(t.data, t.bytes, use, t.buffer);
      reach.data = static_cast<std::byte*>(t.data);
      if (gpu) refusals_ = 0;
      return reach;
    } catch (const Error& error) {
      if (!gpu) throw;
      if (++refusals_ == 1) log().info("{}; GPU memory goes by way of host memory", error.what());
    }
  }
  reach.stage = stage(t.bytes);
  if (use == Use::kRead) copy_now(reach.stage.get(), t.data, t.bytes);
  reach.lease = cache_.acquire(reach.stage.get(), t.bytes, use);
  reach.data = reach.stage.get();
  return reach;
}

bool VerbsBuffers::reaches_gpu(void* data, std::size_t bytes) noexcept {
  if (!VerbsMemory::on_gpu(data) || !asks()) return false;
  try {
    return static_cast<bool>(cache_.acquire(data, bytes, Use::kWrite));
  } catch (const std::exception& error) {
    log().info("{}", error.what());
    return false;
  }
}

// Lends a bounce buffer: pinned host memory of weft::alloc. Throws Error.
VerbsBuffers::Stage VerbsBuffers::stage(std::size_t bytes) {
  const auto fits = [&](std::byte* data) { return made_.at(data).bytes >= bytes; };
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
  made_[data] = {whole, std::unique_ptr<std::byte, Unpin>(data)};
  free_.reserve(made_.size());  // so that Give does not allocate
  return {data, Give{this}};
}

}  // namespace weft
