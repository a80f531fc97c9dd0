// SampleFeed: prefetches the samples of the next micro-batch while this one computes. A thread cuts
// the samples from the text; for a device, a dedicated stream copies the samples to device memory.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <utility>
#include <vector>

#include "train/model/gpt_layers.h"
#include "train/model/text.h"

namespace weft::train {

// Load time of a micro-batch on the monotonic clock: from the first byte read to the last written.
// On a device, end_ns is when the host (which does not block) observed the end of the copy.
struct BroughtSamples {
  std::uint64_t item;
  std::int64_t begin_ns, end_ns;
};

template <class T>
class SampleFeed {
 public:
  // Item i: the `samples` samples of `positions` positions, starting at sample first_sample(i).
  SampleFeed(std::function<std::uint64_t(std::uint64_t item)> first_sample, std::uint64_t seed,
             Index samples, Index positions)
      : first_sample_(std::move(first_sample)),
        seed_(seed),
        samples_(samples),
        positions_(positions) {}
  ~SampleFeed() { forget(); }

  // Fills the batch's tokens and targets with the item, and prefetches the next item if its number
  // is less than `end`. Blocks if the item was not prefetched. Call done() after the operators that
  // read the device copies. Throws Error if out of memory, and like Text::sample(). `text` must
  // live until its last item is filled, or until forget().
  void fill(Batch& batch, const Text& text, std::uint64_t item, std::uint64_t end);
  void done();
  // Drops prefetched items, and waits for the thread.
  void forget();
  // Returns the items loaded since the last call, in order.
  std::vector<BroughtSamples> take_records();

 private:
  struct Samples {
    std::vector<Token> tokens, targets;
    BroughtSamples record;
  };
  struct Slot {  // a buffer in device memory: tokens, then targets
    Tensor<Beside<T, float>> memory;
    // Marks after the operators that read the slot, and after the copy into the slot.
    DeviceMark read, filled;
    Samples samples;
  };

  Samples cut(const Text& text, std::uint64_t item) const;
  Samples receive();
  void send();
  void see_copies();

  const std::function<std::uint64_t(std::uint64_t)> first_sample_;
  const std::uint64_t seed_;
  const Index samples_, positions_;
  const Text* text_ = nullptr;
  // The next item to fill, the next item to receive from the thread, and the end of the items.
  std::uint64_t item_ = 0, received_ = 0, end_ = 0;
  std::future<Samples> coming_;
  std::array<Slot, 2> slots_;  // even and odd items, on a device
  // Copies whose end the host has not observed.
  std::deque<std::pair<BroughtSamples, DeviceMark>> copying_;
  std::vector<BroughtSamples> records_;
};

}  // namespace weft::train
