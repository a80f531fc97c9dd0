// Streams, device memory and pinned memory of a rank. Does not depend on operators.
#include "train/device/context.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <iterator>
#include <thread>

#include "topo/base/log.h"
#include "topo/base/status.h"
#include "train/device/kernel.h"

namespace weft::train {
namespace {

constexpr std::size_t kAlignment = 256;
// Minimum size of an allocation from the GPU: few large chunks, because ranks that share a GPU map
// each other's memory.
constexpr std::size_t kChunk = std::size_t{64} << 20;

std::size_t rounded(std::size_t bytes) {
  return std::max<std::size_t>(1, (bytes + kAlignment - 1) / kAlignment) * kAlignment;
}

thread_local std::unique_ptr<DeviceContext> mine;

}  // namespace

DeviceContext& DeviceContext::make(int gpu) {
  if (mine) return *mine;
  Device* found = weft::device();
  if (found == nullptr)
    throw Error(
        fmt::format("--backend cuda: missing {}; --backend cpu trains without", missing_device()));
  if (gpu < 0 || gpu >= found->count())
    throw Error(
        fmt::format("--backend cuda: there is no GPU {}, this process sees {}; see "
                    "CUDA_VISIBLE_DEVICES",
                    gpu, found->count()));
  mine.reset(new DeviceContext(*found, gpu));
  return *mine;
}

DeviceContext& DeviceContext::of_this_rank() { return mine ? *mine : make(0); }

DeviceContext::DeviceContext(Device& device, int gpu) : device_(device), gpu_(gpu) {
  // Loads all kernels now: lazy loading at the first launch may wait for a collective's stream.
  DeviceWork all;
  all.title = kernels::kAllKernels;
#ifdef WEFT_HAVE_CUDA
  all.load = [] {
    const int error = kernels::load_on_gpu();
    return error != 0 ? error : kernels::load_attention_on_gpu();
  };
#endif
  device.load(all, gpu);
  compute_ = device.make_stream(gpu);
  communication_ = device.make_stream(gpu);
  transfer_ = device.make_stream(gpu);
}

DeviceContext::~DeviceContext() {
  try {
    settle();
    for (char* chunk : chunks_) device_.free(chunk);
  } catch (const Error& e) {  // already reported when the GPU failed
    log().debug("weft train: giving back GPU {}: {}", gpu_, e.what());
  }
  uploads_.clear();
  lately_ = {};
  for (const auto& [memory, bytes] : pinned_in_use_) pinned_free_[bytes].push_back(memory);
  for (const auto& [bytes, all] : pinned_free_)
    for (void* memory : all) {
      device_.unpin(memory);
      munmap(memory, bytes);
    }
  for (void* event : spare_events_) device_.free_event(event);
  device_.free_stream(transfer_);
  device_.free_stream(communication_);
  device_.free_stream(compute_);
}

// ---- device memory: best fit, adjacent free pieces are merged --------------------------------

void DeviceContext::add_free(char* at, std::size_t bytes) {
  auto next = free_.lower_bound(at);
  if (next != free_.end() && at + bytes == next->first && !chunks_.contains(next->first)) {
    bytes += next->second;
    auto gone = next++;
    take_free(gone);
  }
  if (next != free_.begin() && !chunks_.contains(at)) {
    auto before = std::prev(next);
    if (before->first + before->second == at) {
      at = before->first;
      bytes += before->second;
      take_free(before);
    }
  }
  free_[at] = bytes;
  free_by_size_.insert({bytes, at});
}

void DeviceContext::take_free(std::map<char*, std::size_t>::iterator piece) {
  free_by_size_.erase({piece->second, piece->first});
  free_.erase(piece);
}

void* DeviceContext::allocate(std::size_t bytes) {
  bytes = rounded(bytes);
  auto fit = free_by_size_.lower_bound({bytes, nullptr});
  if (fit == free_by_size_.end()) {
    const std::size_t chunk = std::max(bytes, kChunk);
    settle();
    char* memory = static_cast<char*>(device_.alloc(gpu_, chunk));
    chunks_.insert(memory);
    reserved_ += chunk;
    add_free(memory, chunk);
    fit = free_by_size_.lower_bound({bytes, nullptr});
  }
  const auto [size, at] = *fit;
  take_free(free_.find(at));
  if (size > bytes) add_free(at + bytes, size - bytes);
  in_use_[at] = bytes;
  used_ += bytes;
  return at;
}

void DeviceContext::release(void* memory) noexcept {
  const auto found = in_use_.find(memory);
  if (found == in_use_.end()) return;
  used_ -= found->second;
  add_free(static_cast<char*>(memory), found->second);
  in_use_.erase(found);
}

// Terminates: streams that wait for a collective are released at its deadline.
void DeviceContext::settle() {
  const DeviceMark computed = mark(compute_), communicated = mark(communication_),
                   transferred = mark(transfer_);
  while (!computed.passed() || !communicated.passed() || !transferred.passed()) look();
}

void DeviceContext::look() {
  if (meanwhile) meanwhile();
  std::this_thread::sleep_for(std::chrono::microseconds(20));
}

// CUDA queues about 1,000 commands per stream. A launch into a full queue blocks in the driver,
// with a lock that the kernels of a collective need; if the stream waits for that collective, the
// rank deadlocks. So the host limits the number of queued launches, but keeps the device busy.
void DeviceContext::stay_near() {
  constexpr std::size_t kAhead = 256;  // at most twice this many launches, plus collectives
  if (++launches_ % kAhead != 0) return;
  while (!lately_.passed()) look();
  lately_ = mark(compute_);
}

void* DeviceContext::product_scratch() {
  if (scratch_ == nullptr) scratch_ = allocate(kProductScratch);
  return scratch_;
}

// ---- host memory and order -----------------------------------------------------------------

PinnedMemory DeviceContext::pinned(std::size_t bytes) {
  reclaim_uploads();
  // Powers of two from a page to 1 MB, then whole megabytes: few sizes, to reuse blocks.
  constexpr std::size_t kLarge = std::size_t{1} << 20;
  std::size_t size = 4096;
  while (size < bytes && size < kLarge) size *= 2;
  if (size < bytes) size = (bytes + kLarge - 1) / kLarge * kLarge;
  auto& spare = pinned_free_[size];
  void* memory = nullptr;
  if (!spare.empty()) {
    memory = spare.back();
    spare.pop_back();
  } else {
    memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
      throw Error(fmt::format("pinned host memory: no {} bytes left; use smaller batches", size));
    settle();
    device_.pin(memory, size);
  }
  pinned_in_use_[memory] = size;
  return PinnedMemory(memory, Unpin{this});
}

void Unpin::operator()(void* memory) const noexcept {
  const auto found = context->pinned_in_use_.find(memory);
  context->pinned_free_[found->second].push_back(memory);
  context->pinned_in_use_.erase(found);
}

void DeviceContext::reclaim_uploads() {
  while (!uploads_.empty() && uploads_.front().second.passed()) uploads_.pop_front();
}

void DeviceContext::upload(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  PinnedMemory memory = pinned(bytes);
  std::memcpy(memory.get(), from, bytes);
  upload_pinned(to, std::move(memory), bytes);
}

void DeviceContext::bring(void* to, const void* from, std::size_t bytes) {
  PinnedMemory memory = pinned(bytes);
  std::memcpy(memory.get(), from, bytes);
  device_.copy(to, memory.get(), bytes, gpu_, transfer_);
  uploads_.push_back({std::move(memory), mark(transfer_)});
}

void DeviceContext::download(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  const PinnedMemory memory = pinned(bytes);
  copy(memory.get(), from, bytes);
  wait();
  std::memcpy(to, memory.get(), bytes);
}

DeviceMark DeviceContext::mark(void* stream) {
  if (spare_events_.empty()) spare_events_.push_back(device_.make_event(gpu_));
  void* event = spare_events_.back();
  spare_events_.pop_back();
  device_.record(event, stream);
  return {*this, event};
}

DeviceMark::~DeviceMark() {
  if (event_ != nullptr) context_->spare_events_.push_back(event_);
}
bool DeviceMark::passed() const { return event_ == nullptr || context_->device_.reached(event_); }
void DeviceMark::before(void* stream) const {
  if (event_ != nullptr) context_->device_.wait_event(stream, event_);
}
// Terminates: kernels end, and streams that wait for a collective are released at its deadline.
void DeviceMark::wait() const {
  if (event_ == nullptr) return;
  ++context_->waits_;
  constexpr int kYields = 1000;  // a long wait after that: yield the core to other ranks
  for (int turn = 0; !passed(); ++turn)
    if (turn < kYields)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(20));
}

}  // namespace weft::train
