// Cuts samples on a thread and copies them to a device. Does not depend on the model.
#include "train/model/sample_feed.h"

#include <chrono>
#include <new>

namespace weft::train {
namespace {

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

template <class T>
typename SampleFeed<T>::Samples SampleFeed<T>::cut(const Text& text, std::uint64_t item) const {
  Samples all;
  all.record = {item, now_ns(), 0};
  try {
    all.tokens.resize(samples_ * positions_);
    all.targets.resize(samples_ * positions_);
  } catch (const std::bad_alloc&) {
    out_of_memory(samples_ * positions_, sizeof(Token));
  }
  for (Index s = 0; s < samples_; ++s)
    text.sample(seed_, first_sample_(item) + s, positions_, all.tokens.data() + s * positions_,
                all.targets.data() + s * positions_);
  all.record.end_ns = now_ns();
  return all;
}

// Takes the item that the thread has prefetched, and starts the next item on the thread.
template <class T>
typename SampleFeed<T>::Samples SampleFeed<T>::receive() {
  Samples all = coming_.valid() ? coming_.get() : cut(*text_, received_);
  if (++received_ < end_)
    coming_ =
        std::async(std::launch::async, [this, item = received_] { return cut(*text_, item); });
  return all;
}

// Starts the copy of an item to the device. The copy waits only for the operators that read the
// slot's previous item.
template <class T>
void SampleFeed<T>::send() {
  if constexpr (kOnDevice<T>) {
    DeviceContext& context = rank_device();
    Slot& slot = slots_[received_ % 2];
    slot.samples = receive();
    const Index rows = samples_ * positions_;
    if (slot.memory.empty()) {
      slot.memory = Tensor<Beside<T, float>>(2 * rows, Use::kWorkspace);
      slot.read = context.mark(context.compute());  // by the previous user of this memory
    }
    slot.read.before(context.transfer());
    context.bring(slot.memory.data(), slot.samples.tokens.data(), rows * sizeof(Token));
    context.bring(slot.memory.data() + rows, slot.samples.targets.data(), rows * sizeof(Token));
    slot.filled = context.mark(context.transfer());
    copying_.emplace_back(slot.samples.record, context.mark(context.transfer()));
  }
}

template <class T>
void SampleFeed<T>::see_copies() {
  for (; !copying_.empty() && copying_.front().second.passed(); copying_.pop_front()) {
    records_.push_back(copying_.front().first);
    records_.back().end_ns = now_ns();
  }
}

template <class T>
void SampleFeed<T>::fill(Batch& batch, const Text& text, std::uint64_t item, std::uint64_t end) {
  if (text_ != &text || item_ != item || end_ != end) {
    forget();
    text_ = &text;
    item_ = received_ = item;
    end_ = end;
  }
  Samples now;
  if constexpr (kOnDevice<T>) {
    see_copies();
    if (received_ == item) send();
    if (received_ < end) send();
    Slot& slot = slots_[item % 2];
    slot.filled.before(rank_device().compute());
    now = std::move(slot.samples);
    batch.device_tokens = reinterpret_cast<const Token*>(slot.memory.data());
    batch.device_targets = batch.device_tokens + samples_ * positions_;
  } else {
    now = receive();
    records_.push_back(now.record);
  }
  ++item_;
  batch.tokens = std::move(now.tokens);
  batch.targets = std::move(now.targets);
}

template <class T>
void SampleFeed<T>::done() {
  if constexpr (kOnDevice<T>)
    slots_[(item_ - 1) % 2].read = rank_device().mark(rank_device().compute());
}

template <class T>
void SampleFeed<T>::forget() {
  coming_ = {};  // waits for the thread
  text_ = nullptr;
  copying_.clear();
  for (Slot& slot : slots_)
    if (!slot.memory.empty()) {  // before the memory is reused
      slot.filled.before(rank_device().compute());
      slot.memory = {};
    }
}

template <class T>
std::vector<BroughtSamples> SampleFeed<T>::take_records() {
  see_copies();
  return std::exchange(records_, {});
}

WEFT_INSTANTIATE(SampleFeed);

}  // namespace weft::train
