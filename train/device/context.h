// One rank's side of its GPU: a stream to compute on, one to communicate on, and memory that is
// handed out in the order of the first. Goes through the seam of transport/gpu/device.h, so the
// fake device does as well.
//
// Operators return at once; what they read and write is in the order of the compute stream. Memory
// that is given back is used again by later work of that stream only, so nobody waits for it.
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
  // The one of this thread, which is a rank; made by the first call that names a GPU. Throws Error
  // where there is no device (the text says why) or no such GPU.
  static DeviceContext& make(int gpu);
  static DeviceContext& of_this_rank();
  ~DeviceContext();
  DeviceContext(const DeviceContext&) = delete;
  DeviceContext& operator=(const DeviceContext&) = delete;

  Device& device() { return device_; }
  int gpu() const { return gpu_; }
  void* compute() { return compute_; }
  void* communication() { return communication_; }

  // Aligned to 256 bytes. 0 bytes too have an address.
  void* allocate(std::size_t bytes);
  void release(void* memory) noexcept;
  std::size_t reserved() const { return reserved_; }  // bytes taken from the GPU
  std::size_t used() const { return used_; }

  void launch(const DeviceWork& work) { device_.launch(work, gpu_, compute_); }
  void copy(void* to, const void* from, std::size_t bytes) {  // device to device
    device_.copy(to, from, bytes, gpu_, compute_);
  }
  // `from` is read before this returns; the device sees it in the order of the stream.
  void upload(void* to, const void* from, std::size_t bytes);
  // Waits for the stream. Memory of pinned() needs no detour.
  void download(void* to, const void* from, std::size_t bytes);
  void wait();  // until the compute stream is empty
  // An event that the compute stream reaches after what is on it now; to be given back.
  void* mark();
  void give_back(void* event) { spare_events_.push_back(event); }
  void wait_for(void* event);

  // What follows on the communication stream starts after what is on the compute stream now.
  void communicate_after_compute();

  // Pinned host memory, for messages and uploads; kept and used again.
  void* pinned(std::size_t bytes);
  void unpinned(void* memory) noexcept;
  // unpinned() when the compute stream has passed what is on it now; the first after a copy up.
  void unpin_in_order(void* memory);
  void upload_pinned(void* to, void* memory, std::size_t bytes) {
    copy(to, memory, bytes);
    unpin_in_order(memory);
  }

  // Scratch memory of matrix products, which follow each other on the compute stream.
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

  // Chunks from the device; pieces of them that are free, by address and by size, or in use.
  std::set<char*> chunks_;  // where each begins: pieces of two chunks are never one
  std::map<char*, std::size_t> free_;
  std::set<std::pair<std::size_t, char*>> free_by_size_;
  std::map<void*, std::size_t> in_use_;
  std::size_t reserved_ = 0, used_ = 0;
  void* scratch_ = nullptr;

  std::map<std::size_t, std::vector<void*>> pinned_free_;  // by size
  std::map<void*, std::size_t> pinned_in_use_;
  struct Upload {
    void* memory;
    void* event;
  };
  std::deque<Upload> uploads_;  // until the stream has passed them
  std::vector<void*> spare_events_;
};

}  // namespace weft::train
