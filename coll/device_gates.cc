#include "coll/device_gates.h"


#include <chrono>
#include <thread>
#include <utility>

#include "coll/core.h"
#include "topo/yield.h"

namespace weft {
namespace {

constexpr std::size_t kWordsOfPage = 1024;

}  // namespace

DeviceGates::~DeviceGates() {
  // An operation is over before its stream has taken `done` back: until then the words are not
  // ours.
  if (streams_have_passed())
    for (auto* page : pages_) device_.free_words(page);
}

bool DeviceGates::streams_have_passed() const {
  const auto deadline = std::chrono::steady_clock::now() + kLeave;
  for (const DeviceGate& g : all_)
    while (g.done->load(std::memory_order_acquire) != 0) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  return true;
}

DeviceGate DeviceGates::take() {
  for (DeviceGate& g : used_) {
    if (g.done->load(std::memory_order_acquire) != 0) continue;
    const DeviceGate free = g;
    g = used_.back();
    used_.pop_back();
    return free;
  }
  if (all_.size() * 2 == pages_.size() * kWordsOfPage)
    pages_.push_back(device_.words(kWordsOfPage));
  const std::size_t at = all_.size() * 2 % kWordsOfPage;
  all_.push_back({pages_.back() + at, pages_.back() + at + 1});
  return all_.back();
}

void DeviceGates::give_back(const DeviceGate& gate) { used_.push_back(gate); }

void DeviceGates::put(const DeviceGate& gate, Device::Stream stream) const {
  device_.write_word(stream, gate.arrived, 1);
  device_.wait_word(stream, gate.done, 1);
  device_.write_word(stream, gate.done, 0);
}

void Patience::pause() {
  if (++turns_ < 2000) return relax();
  if (turns_ < 4000) {
    yield_core();
    return;
  }
  std::this_thread::sleep_for(std::chrono::microseconds(20));
}

}  // namespace weft
