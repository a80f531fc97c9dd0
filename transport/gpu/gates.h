// Where a user's stream and a thread of weft's meet, and how such a thread waits for a GPU.
// Not installed.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "transport/gpu/device.h"

namespace weft {

// How long the end of a communicator or a World waits for a GPU that does not answer.
inline constexpr std::chrono::seconds kLeave{2};

// The stream writes `arrived` and waits until `done`; both take the word back to 0 themselves, so
// that a captured graph can come this way again and again.
struct StreamFence {
  std::atomic<std::uint32_t>* arrived = nullptr;
  std::atomic<std::uint32_t>* done = nullptr;
};

// Calls of CUDA that give memory back (cudaFree, cudaFreeHost, cudaHostUnregister,
// cudaIpcCloseMemHandle) may wait for all streams of the process on a GPU, and until then let no
// other thread put work there: while a stream waits at a gate for such work, all of it stands still
// for ever. So they are made here: calls give_back() unless a stream waits, and lets none come to
// wait meanwhile. False: it was not called.
bool unless_streams_wait(const std::function<void()>& give_back);

// The gates of one thread, used again and again. The caller locks; put() needs no lock.
class StreamFences {
 public:
  explicit StreamFences(Device& device) : device_(device) {}
  // The streams of gates that were given back have passed, or, where one does not come, as it waits
  // for something else, what it will write to is kept for as long as the process lives.
  ~StreamFences();
  StreamFences(const StreamFences&) = delete;
  StreamFences& operator=(const StreamFences&) = delete;

  // Throws Error when the device refuses.
  StreamFence take();
  // What is on the stream later waits for open(). A captured gate is part of a graph: its streams
  // come again and again, unseen, and count as waiting for as long as this lives.
  void put(const StreamFence& gate, Device::Stream stream, bool captured);
  void open(const StreamFence& gate, bool captured);

 private:
  bool streams_have_passed() const;
  std::atomic<std::uint32_t>* page();

  Device& device_;
  std::vector<std::atomic<std::uint32_t>*> pages_;  // of words
  std::vector<StreamFence> all_, used_;  // used: free once the stream has taken `done` back
  std::atomic<std::size_t> captured_{0};
};

// Polls, then gives way, then sleeps a little: a GPU is waited for longer than a neighbour.
class Backoff {
 public:
  void pause();
  void reset() { turns_ = 0; }

 private:
  int turns_ = 0;
};

}  // namespace weft
