// Stream fences, by which a user's stream and a thread of weft order their work, and the backoff of
// a thread that waits for a GPU.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "transport/gpu/device.h"

namespace weft {

// How long the destructor of a communicator or World waits for a GPU that does not answer.
inline constexpr std::chrono::seconds kLeave{2};

// Two words: the stream writes `arrived` and waits for `done`. Whoever waits for a word resets it
// to 0, so that a captured graph can run the fence repeatedly.
struct StreamFence {
  std::atomic<std::uint32_t>* arrived = nullptr;
  std::atomic<std::uint32_t>* done = nullptr;
};

// Calls give_back() unless a stream waits at a fence, and lets no stream start to wait meanwhile.
// Returns false when it did not call. CUDA calls that give memory back (cudaFree, cudaFreeHost,
// cudaHostUnregister, cudaIpcCloseMemHandle) may wait for all streams of the process on a GPU and
// block launches of other threads meanwhile: with a stream at a fence that would be a deadlock.
bool unless_streams_wait(const std::function<void()>& give_back);

// Waits until no stream of a World waits at the fence of a call, at most settle_limit; `waiting`
// counts them. Callers do it before CUDA calls that take memory (cudaMalloc, cudaHostRegister) or
// load code, which may wait for all streams of the process, too. A stream whose fence only a later
// call of this thread would open waits longer than that. Tests that allow no late call raise it.
inline std::atomic<std::chrono::milliseconds> settle_limit{std::chrono::milliseconds{500}};
void settle(const std::atomic<std::size_t>& waiting);
// Returns the count of a World, which is named by the object that its communicators share.
std::atomic<std::size_t>& waiting_streams_of(const void* world);

// A pool of the fences of one thread. The caller locks; put() needs no lock.
class StreamFences {
 public:
  // waiting: counts the streams of the World that wait at fences of calls; outlives this.
  StreamFences(Device& device, std::atomic<std::size_t>& waiting)
      : device_(device), waiting_(waiting) {}
  // Waits up to kLeave until streams have passed the opened fences. If a stream has not, the
  // words that the stream will write are not used again.
  ~StreamFences();
  StreamFences(const StreamFences&) = delete;
  StreamFences& operator=(const StreamFences&) = delete;

  // Takes a free fence. Throws Error when the device refuses memory.
  StreamFence take();
  // Makes later work on the stream wait for open(). A captured fence is part of a graph, whose
  // streams come repeatedly and unseen: they count as waiting while this object lives.
  void put(const StreamFence& gate, Device::Stream stream, bool captured);
  // Lets the stream pass, and takes the fence back unless it is captured.
  void open(const StreamFence& gate, bool captured);

 private:
  bool streams_have_passed() const;
  std::atomic<std::uint32_t>* page();

  Device& device_;
  std::atomic<std::size_t>& waiting_;
  std::vector<std::atomic<std::uint32_t>*> pages_;  // the words
  std::vector<StreamFence> all_, used_;             // used_: free once the stream has reset `done`
  std::atomic<std::size_t> captured_{0};
};

// Spins, then yields, then sleeps a little: a wait for a GPU is longer than a wait for a rank.
class Backoff {
 public:
  void pause();
  void reset() { turns_ = 0; }

 private:
  int turns_ = 0;
};

}  // namespace weft
