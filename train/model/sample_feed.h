// SampleFeed: brings the samples of the next micro-batch while this one computes. A thread cuts
// them from the text; for a device, a stream of its own copies them to device memory.
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

// When one micro-batch was brought, on the monotonic clock: from the first byte that was read to
// the last that was written. On a device: to when the host, which does not wait, saw the copy end.
struct BroughtSamples {
  std::uint64_t item;
  std::int64_t begin_ns, end_ns;
};

template <class T>
class SampleFeed {
 public:
  // Item i is the `samples` samples of `positions` positions from number first_sample(i) on.
  SampleFeed(std::function<std::uint64_t(std::uint64_t item)> first_sample, std::uint64_t seed,
             Index samples, Index positions)
      : first_sample_(std::move(first_sample)),
        seed_(seed),
        samples_(samples),
        positions_(positions) {}
  ~SampleFeed() { forget(); }

  // Fills the batch's tokens and targets with the item, and begins with the next one where it is
  // less than `end`. Waits where the item is not the one that was expected. The caller calls done()
  // after the operators that read the device's copies. Throws Error where memory does not suffice,
  // and as Text::sample() does. `text` must live until its last item is filled, or until forget().
  void fill(Batch& batch, const Text& text, std::uint64_t item, std::uint64_t end);
  void done();
  // Drops what was brought ahead, and waits for the thread.
  void forget();
  // Returns the items that were brought since the last call, in their order.
  std::vector<BroughtSamples> take_records();

 private:
  struct Samples {
    std::vector<Token> tokens, targets;
    BroughtSamples record;
  };
  struct Slot {  // of device memory: tokens, then targets
    Tensor<Beside<T, float>> memory;
    DeviceMark read, filled;  // the ends of the operators that read it, and of the copy
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
  // The items to be filled, to be received from the thread, and the first that does not exist.
  std::uint64_t item_ = 0, received_ = 0, end_ = 0;
  std::future<Samples> coming_;
  std::array<Slot, 2> slots_;                                  // of even and odd items, on a device
  std::deque<std::pair<BroughtSamples, DeviceMark>> copying_;  // until the host has seen the end
  std::vector<BroughtSamples> records_;
};

}  // namespace weft::train
