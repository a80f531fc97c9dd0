// DeviceContext: one rank's GPU, with a compute stream, a communication stream, and memory that
// follows the order of the compute stream. The context uses transport/gpu/device.h, so the fake
// device works too.
//
// Operators return at once; they read and write in the order of the compute stream. Only later work
// of that stream uses released memory again, so release() does not wait.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "transport/gpu/device.h"

namespace weft::train {

class DeviceContext {
 public:
  // Makes the context of the calling thread, which is a rank, at the thread's first call. Throws
  // Error where the machine has no device (the text says why) or no such GPU.
  static DeviceContext& make(int gpu);
  static DeviceContext& of_this_rank();
  ~DeviceContext();
  DeviceContext(const DeviceContext&) = delete;
  DeviceContext& operator=(const DeviceContext&) = delete;

  Device& device() { return device_; }
  int gpu() const { return gpu_; }
  void* compute() { return compute_; }
  void* communication() { return communication_; }

  // Returns device memory aligned to 256 bytes, also for 0 bytes. Throws Error when the GPU is
  // full.
  void* allocate(std::size_t bytes);
  void release(void* memory) noexcept;
  std::size_t reserved() const { return reserved_; }  // bytes taken from the GPU
  std::size_t used() const { return used_; }

  void launch(const DeviceWork& work) { device_.launch(work, gpu_, compute_); }
  void copy(void* to, const void* from, std::size_t bytes) {  // device to device
    device_.copy(to, from, bytes, gpu_, compute_);
  }
  // Reads `from` before returning; the device's copy is in the order of the compute stream.
  void upload(void* to, const void* from, std::size_t bytes);
  // Waits for the compute stream. `to` from pinned() needs no bounce buffer.
  void download(void* to, const void* from, std::size_t bytes);
  void wait();  // waits until the compute stream is empty
  // Returns an event after the work now on the stream. The caller must give_back() the event.
  void* mark(void* stream);
  void give_back(void* event) { spare_events_.push_back(event); }
  void wait_for(void* event);
  std::size_t waits() const { return waits_; }  // times that the rank waited for its device

  // Later work on the communication stream starts after the work now on the compute stream.
  void communicate_after_compute();

  // Returns pinned host memory, for messages and uploads, from a pool of earlier blocks.
  void* pinned(std::size_t bytes);
  void unpinned(void* memory) noexcept;
  // Calls unpinned() once the compute stream has passed the work now on it, such as a copy from
  // `memory`.
  void unpin_in_order(void* memory);
  void upload_pinned(void* to, void* memory, std::size_t bytes) {
    copy(to, memory, bytes);
    unpin_in_order(memory);
  }

  // Returns the scratch memory of matrix products, which run one at a time on the compute stream.
  static constexpr std::size_t kProductScratch = std::size_t{32} << 20;
  void* product_scratch();

 private:
  DeviceContext(Device& device, int gpu);
  void reclaim_uploads();
  void add_free(char* at, std::size_t bytes);
  void take_free(std::map<char*, std::size_t>::iterator piece);

  Device& device_;
  const int gpu_;
  void *compute_ = nullptr, *communication_ = nullptr;
  void *done_ = nullptr, *ordered_ = nullptr;  // events

  // Chunks from the device, and their pieces: free ones by address and by size, and those in use.
  std::set<char*> chunks_;  // first addresses; free pieces of two chunks never merge
  std::map<char*, std::size_t> free_;
  std::set<std::pair<std::size_t, char*>> free_by_size_;
  std::map<void*, std::size_t> in_use_;
  std::size_t reserved_ = 0, used_ = 0, waits_ = 0;
  void* scratch_ = nullptr;

  std::map<std::size_t, std::vector<void*>> pinned_free_;  // by size
  std::map<void*, std::size_t> pinned_in_use_;
  struct Upload {
    void* memory;
    void* event;
  };
  std::deque<Upload> uploads_;  // uploads that the compute stream has not passed
  std::vector<void*> spare_events_;
};

}  // namespace weft::train
