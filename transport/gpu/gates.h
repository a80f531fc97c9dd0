// Stream fences, which order the work of a user's stream relative to a weft thread, and the backoff
// of a thread that waits for a GPU.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "transport/gpu/device.h"

namespace weft {

// Time for which the destructor of a communicator or World waits for an unresponsive GPU.
inline constexpr std::chrono::seconds kLeave{2};

// A fence has two words: the stream writes `arrived` and waits for `done`. The side that waits for
// a word resets it to 0, so that a captured graph can execute the fence repeatedly.
struct StreamFence {
  std::atomic<std::uint32_t>* arrived = nullptr;
  std::atomic<std::uint32_t>* done = nullptr;
};

// Calls give_back() unless a stream waits at a fence, and blocks new waits during the call. Returns
// false if it did not call give_back(). CUDA calls that free memory (cudaFree, cudaFreeHost,
// cudaHostUnregister, cudaIpcCloseMemHandle) may wait for all streams of the process on a GPU and
// block launches of other threads, which is a deadlock if a stream waits at a fence.
bool unless_streams_wait(const std::function<void()>& give_back);

// Waits until no stream of a World (counted in `waiting`) waits at the fence of a call, for at most
// settle_limit. Called before CUDA calls that allocate memory (cudaMalloc, cudaHostRegister) or
// load code, which may also wait for all streams of the process. The limit prevents a deadlock if
// only a later call of this thread can release the fence. Tests that do not permit late calls raise
// the limit.
inline std::atomic<std::chrono::milliseconds> settle_limit{std::chrono::milliseconds{500}};
void settle(const std::atomic<std::size_t>& waiting);
// Returns the number of waiting streams of a World, identified by the object that its communicators
// share.
std::atomic<std::size_t>& waiting_streams_of(const void* world);

// A pool of one thread's fences. The caller must hold a lock for all calls except put().
class StreamFences {
 public:
  // waiting: counter of the World's streams that wait at fences of calls; must outlive this object.
  StreamFences(Device& device, std::atomic<std::size_t>& waiting)
      : device_(device), waiting_(waiting) {}
  // Waits up to kLeave until streams have passed the opened fences. After that, words that a stream
  // has yet to write are not reused.
  ~StreamFences();
  StreamFences(const StreamFences&) = delete;
  StreamFences& operator=(const StreamFences&) = delete;

  // Takes a free fence. Throws Error if the device cannot allocate memory.
  StreamFence take();
  // Makes later work on the stream wait for open(). A captured fence is part of a graph that may be
  // launched at any time, so its stream is treated as waiting for the lifetime of this object.
  void put(const StreamFence& gate, Device::Stream stream, bool captured);
  // Unblocks the stream; the fence becomes free unless it is captured.
  void open(const StreamFence& gate, bool captured);

 private:
  bool streams_have_passed() const;
  std::atomic<std::uint32_t>* page();

  Device& device_;
  std::atomic<std::size_t>& waiting_;
  std::vector<std::atomic<std::uint32_t>*> pages_;  // the words
  // used_: fences that become free once the stream has reset `done`
  std::vector<StreamFence> all_, used_;
  std::atomic<std::size_t> captured_{0};
};

// Spins, then yields, then sleeps, since waits for a GPU take longer than waits for a rank.
class Backoff {
 public:
  void pause();
  void reset() { turns_ = 0; }

 private:
  int turns_ = 0;
};

}  // namespace weft
