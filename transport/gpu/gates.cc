// Puts fences on streams and opens them, and counts the process's streams that wait at a fence.
// This file is independent of the tasks between a fence's two words.
#include "transport/gpu/gates.h"

#include <atomic>
#include <chrono>
#include <map>
#include <thread>
#include <utility>

#include "topo/base/mutex.h"
#include "topo/base/yield.h"

namespace weft {
namespace {

constexpr std::size_t kWordsOfPage = 256;
// Pages per slab. Slabs are never freed: 256 KiB contain 32768 fences, so that the device need not
// allocate while a stream waits.
constexpr std::size_t kPagesOfSlab = 256;

// One object per process; never destroyed, like the device.
struct Gates {
  Mutex mutex;
  std::atomic<std::size_t> closed{0};  // streams that may wait; incremented with the mutex held
  std::map<Device*, std::vector<std::atomic<std::uint32_t>*>> spare WEFT_GUARDED_BY(mutex);
};
Gates& gates() {
  static Gates* const all = new Gates;
  return *all;
}

}  // namespace

bool unless_streams_wait(const std::function<void()>& give_back) {
  Gates& all = gates();
  const MutexLock lock(all.mutex);
  if (all.closed > 0) return false;
  give_back();
  return true;
}

void settle(const std::atomic<std::size_t>& waiting) {
  const auto deadline = std::chrono::steady_clock::now() + settle_limit.load();
  Backoff patience;
  while (waiting > 0 && std::chrono::steady_clock::now() < deadline) patience.pause();
}

std::atomic<std::size_t>& waiting_streams_of(const void* world) {
  static Mutex mutex;
  // Never destroyed; if an address is reused, its count is 0.
  static auto* const all WEFT_PT_GUARDED_BY(mutex) =
      new std::map<const void*, std::atomic<std::size_t>>;
  const MutexLock lock(mutex);
  return (*all)[world];
}

StreamFences::~StreamFences() {
  Gates& all = gates();
  all.closed -= captured_;
  // A task completes before its stream has reset `done`, and until then the words are in use.
  if (!streams_have_passed()) return;
  for (auto* page : pages_)
    for (std::size_t i = 0; i < kWordsOfPage; ++i) page[i].store(0);
  const MutexLock lock(all.mutex);
  auto& spare = all.spare[&device_];
  spare.insert(spare.end(), pages_.begin(), pages_.end());
}

bool StreamFences::streams_have_passed() const {
  const auto deadline = std::chrono::steady_clock::now() + kLeave;
  for (const StreamFence& g : all_)
    while (g.done->load(std::memory_order_acquire) != 0) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  return true;
}

StreamFence StreamFences::take() {
  for (StreamFence& g : used_) {
    if (g.done->load(std::memory_order_acquire) != 0) continue;
    const StreamFence free = g;
    g = used_.back();
    used_.pop_back();
    return free;
  }
  if (all_.size() * 2 == pages_.size() * kWordsOfPage) pages_.push_back(page());
  const std::size_t at = all_.size() * 2 % kWordsOfPage;
  all_.push_back({pages_.back() + at, pages_.back() + at + 1});
  return all_.back();
}

std::atomic<std::uint32_t>* StreamFences::page() {
  Gates& all = gates();
  const MutexLock lock(all.mutex);
  auto& spare = all.spare[&device_];
  if (spare.empty()) {
    auto* const slab = device_.words(kWordsOfPage * kPagesOfSlab);
    for (std::size_t i = kPagesOfSlab; i-- > 0;) spare.push_back(slab + i * kWordsOfPage);
  }
  auto* const page = spare.back();
  spare.pop_back();
  return page;
}

void StreamFences::put(const StreamFence& gate, Device::Stream stream, bool captured) {
  Gates& all = gates();
  {
    const MutexLock lock(all.mutex);
    ++all.closed;
  }
  waiting_ += captured ? 0 : 1;
  try {
    device_.write_word(stream, gate.arrived, 1);
    device_.wait_word(stream, gate.done, 1);
    device_.write_word(stream, gate.done, 0);
  } catch (...) {
    gate.done->store(1, std::memory_order_release);  // the stream may be waiting for this word
    --all.closed;
    waiting_ -= captured ? 0 : 1;
    throw;
  }
  captured_ += captured;
}

void StreamFences::open(const StreamFence& gate, bool captured) {
  if (!captured) used_.push_back(gate);
  gate.done->store(1, std::memory_order_release);
  if (captured) return;
  --gates().closed;  // from here on the stream runs
  --waiting_;
}

void Backoff::pause() {
  if (++turns_ < 2000) return relax();
  if (turns_ < 4000) {
    yield_core();
    return;
  }
  std::this_thread::sleep_for(std::chrono::microseconds(20));
}

}  // namespace weft
