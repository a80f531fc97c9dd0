// Where a user's stream and a thread of weft's meet, and how such a thread waits for a GPU.
// Not installed.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "transport/device.h"

namespace weft {

// How long the end of a communicator or a World waits for a GPU that does not answer.
inline constexpr std::chrono::seconds kLeave{2};

// The stream writes `arrived` and waits until `done`; both take the word back to 0 themselves, so
// that a captured graph can come this way again and again.
struct DeviceGate {
  std::atomic<std::uint32_t>* arrived = nullptr;
  std::atomic<std::uint32_t>* done = nullptr;
};

// The gates of one thread, used again and again. The caller locks; put() needs no lock.
class DeviceGates {
 public:
  explicit DeviceGates(Device& device) : device_(device) {}
  // The streams of gates that were given back have passed, or, where one does not come, as it waits
  // for something else, what it will write to is kept for as long as the process lives.
  ~DeviceGates();
  DeviceGates(const DeviceGates&) = delete;
  DeviceGates& operator=(const DeviceGates&) = delete;

  // Throws Error when the device refuses. Gates of graphs are never given back.
  DeviceGate take();
  void give_back(const DeviceGate& gate);  // `done` is about to be set
  // What is on the stream later waits for `done`.
  void put(const DeviceGate& gate, Device::Stream stream) const;

 private:
  bool streams_have_passed() const;

  Device& device_;
  std::vector<std::atomic<std::uint32_t>*> pages_;  // of words
  std::vector<DeviceGate> all_, used_;  // used: free once the stream has taken `done` back
};

// Polls, then gives way, then sleeps a little: a GPU is waited for longer than a neighbour.
class Patience {
 public:
  void pause();
  void reset() { turns_ = 0; }

 private:
  int turns_ = 0;
};

}  // namespace weft
