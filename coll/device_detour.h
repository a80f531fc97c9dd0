// Calls with blocks of different sizes that no lane takes (device_begin.cc says which), made with
// device memory: what they read is brought to host memory before, what they write taken up after.
//
// Correct for every kind of memory and every transport, also where only some ranks have memory of a
// GPU; the copies do not overlap with the transfer.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <vector>

#include "coll/device_pinned.h"
#include "coll/engine.h"
#include "transport/device.h"

namespace weft {

class Detour {
 public:
  Detour(Device& device, int gpu, std::chrono::milliseconds deadline);
  ~Detour();
  Detour(const Detour&) = delete;
  Detour& operator=(const Detour&) = delete;

  std::byte* room(std::size_t bytes);  // pinned memory that is this one's as long as it lives
  // Copies, in order. Throws Error when the device refuses, or needs longer than the deadline.
  void down(std::byte* to, const void* from, std::size_t bytes);
  void wait();
  // What land() copies up.
  void later(void* to, const std::byte* from, std::size_t bytes) {
    up_.push_back({to, from, bytes});
  }
  void land();

 private:
  struct Piece {
    void* to;
    const std::byte* from;
    std::size_t bytes;
  };
  Device& device_;
  const int gpu_;
  const std::chrono::milliseconds deadline_;
  Device::Stream stream_;
  Device::Event event_;
  bool under_way_ = false;  // copies that nobody has waited for
  std::vector<Pinned> rooms_;
  std::vector<Piece> up_;
};

// Of a call with blocks of different sizes, of which `me` is the rank: its buffers are replaced
// where they are device memory of that GPU.
std::unique_ptr<Detour> detour_of_blocks(Device& device, int gpu, Collective c, Call& call, Rank me,
                                         Rank root, std::size_t n,
                                         std::chrono::milliseconds deadline);
// What a rank sends to itself; any kinds of memory.
void move_bytes(void* to, const void* from, std::size_t bytes, std::chrono::milliseconds deadline);

}  // namespace weft
