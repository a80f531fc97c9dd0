// DeviceContext: one rank's GPU, with streams for compute, communication and transfers of samples,
// and a stream-ordered memory allocator (compute stream). It uses transport/gpu/device.h, so the
// fake device works too.
//
// Operators are asynchronous and ordered by the compute stream. Only later work of this stream
// reuses released memory, so release() does not block.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "transport/gpu/device.h"

namespace weft::train {

class DeviceContext;

// An event on a stream. An empty mark has passed.
class DeviceMark {
 public:
  DeviceMark() = default;
  DeviceMark(DeviceContext& context, void* event) : context_(&context), event_(event) {}
  DeviceMark(DeviceMark&& o) noexcept
      : context_(o.context_), event_(std::exchange(o.event_, nullptr)) {}
  DeviceMark& operator=(DeviceMark&& o) noexcept {
    std::swap(context_, o.context_);
    std::swap(event_, o.event_);
    return *this;
  }
  ~DeviceMark();
  bool passed() const;              // returns whether the mark has passed; does not block
  void wait() const;                // blocks the host; see DeviceContext::waits()
  void before(void* stream) const;  // makes later work of the stream wait for the mark

 private:
  DeviceContext* context_ = nullptr;
  void* event_ = nullptr;
};

// Pinned host memory; the deleter returns it to the context's pool.
struct Unpin {
  DeviceContext* context = nullptr;
  void operator()(void* memory) const noexcept;
};
using PinnedMemory = std::unique_ptr<void, Unpin>;

class DeviceContext {
 public:
  // Returns the context of the calling thread (a rank); the first call constructs it. Throws Error
  // if the machine has no device (the message has the reason) or no such GPU.
  static DeviceContext& make(int gpu);
  static DeviceContext& of_this_rank();
  ~DeviceContext();
  DeviceContext(const DeviceContext&) = delete;
  DeviceContext& operator=(const DeviceContext&) = delete;

  Device& device() { return device_; }
  int gpu() const { return gpu_; }
  void* compute() { return compute_; }
  void* communication() { return communication_; }
  void* transfer() { return transfer_; }

  // Returns device memory aligned to 256 bytes, also for 0 bytes. Throws Error if the GPU is out of
  // memory.
  void* allocate(std::size_t bytes);
  void release(void* memory) noexcept;
  std::size_t reserved() const { return reserved_; }  // bytes allocated from the GPU
  std::size_t used() const { return used_; }

  void launch(const DeviceWork& work) {
    stay_near();
    device_.launch(work, gpu_, compute_);
  }
  void copy(void* to, const void* from, std::size_t bytes) {  // device to device
    device_.copy(to, from, bytes, gpu_, compute_);
  }
  // Asynchronous: copies `from` before it returns; the device copy is on the compute stream.
  void upload(void* to, const void* from, std::size_t bytes);
  // Asynchronous: copies `from` before it returns; the device copy is on the transfer stream.
  void bring(void* to, const void* from, std::size_t bytes);
  void download(void* to, const void* from, std::size_t bytes);  // waits for the compute stream
  void wait() { mark(compute_).wait(); }  // blocks until the compute stream is empty
  DeviceMark mark(void* stream);          // returns a mark after the work now on the stream
  // Blocks until all streams are empty, so that no stream waits for a collective. Call it before
  // operations that may synchronize all streams of the GPU: memory allocation, and the first
  // product of a shape, for which cuBLASLt loads a kernel. (Such an operation holds a driver lock
  // that the collective's kernel needs.) After the first step, such operations are rare.
  void settle();
  // settle() calls this while it waits, so that messages for other ranks advance. May be empty.
  std::function<void()> meanwhile;
  // Number of times that the host blocked on the device.
  std::size_t waits() const { return waits_; }

  // Makes the communication stream wait for the work now on the compute stream, and returns it.
  void* communication_after_compute() {
    mark(compute_).before(communication_);
    return communication_;
  }

  // Returns pinned host memory, for messages and uploads, from a pool.
  PinnedMemory pinned(std::size_t bytes);
  // Releases `memory` after the work now on the compute stream, such as a copy from `memory`.
  void unpin_in_order(PinnedMemory memory) {
    uploads_.push_back({std::move(memory), mark(compute_)});
  }
  void upload_pinned(void* to, PinnedMemory memory, std::size_t bytes) {
    copy(to, memory.get(), bytes);
    unpin_in_order(std::move(memory));
  }

  // Returns the workspace of matrix products, which run one at a time on the compute stream.
  static constexpr std::size_t kProductScratch = std::size_t{32} << 20;
  void* product_scratch();

 private:
  friend class DeviceMark;
  friend struct Unpin;
  DeviceContext(Device& device, int gpu);
  void reclaim_uploads();
  void look();
  void stay_near();
  void add_free(char* at, std::size_t bytes);
  void take_free(std::map<char*, std::size_t>::iterator piece);

  Device& device_;
  const int gpu_;
  void *compute_ = nullptr, *communication_ = nullptr, *transfer_ = nullptr;

  // Chunks allocated from the device. Free pieces are indexed by address and by size; used pieces
  // by address.
  std::set<char*> chunks_;  // first addresses; free pieces are not merged across chunks
  std::map<char*, std::size_t> free_;
  std::set<std::pair<std::size_t, char*>> free_by_size_;
  std::map<void*, std::size_t> in_use_;
  std::size_t reserved_ = 0, used_ = 0, waits_ = 0;
  void* scratch_ = nullptr;

  std::map<std::size_t, std::vector<void*>> pinned_free_;  // free pinned memory, by size
  std::map<void*, std::size_t> pinned_in_use_;
  std::vector<void*> spare_events_;
  std::size_t launches_ = 0;
  DeviceMark lately_;  // an earlier launch that must complete before the host launches more
  // Memory that a stream may still read, and the mark after that read.
  std::deque<std::pair<PinnedMemory, DeviceMark>> uploads_;
};

}  // namespace weft::train
