// The messages of Rails, from post to receipt. The classes do not depend on which rail is up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "transport/messages/tag_table.h"
#include "transport/rails/receipts.h"
#include "transport/transport.h"

namespace weft {

// A message from its post to its receipt, or a receipt.
struct RailSlot {
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  enum class Use : std::uint8_t { kFree, kSend, kRecv, kReceiptOut, kReceiptIn };
  Use use = Use::kFree;
  bool busy = false;      // the inner transport has the message
  bool reported = false;  // kSend: the caller has the completion
  bool acked = false;     // kSend: the peer has the message
  bool expects = false;   // counted in Rails::State::expected
  bool timed = false;     // kSend: counted in its lane's speed
  std::int8_t rail = -1;  // -1: the message waits for a rail
  std::int8_t hold = -1;  // kSend: the former lane, until it is down at both ends
  std::int8_t want = -1;  // kRecv: the rail in the sender's note for this tag; -1: the table's
  std::uint8_t home = 0;
  std::uint32_t younger = kNone;  // kSend: the next one with the same tag
  std::uint16_t nonce = 0;        // incremented by every inner post: identifies old completions
  Receipt::Stream stream = Receipt::kShort;  // kReceiptIn
  std::uint64_t number = 0;  // of a receipt: kReceiptIn in its stream, kReceiptOut in `unsent`
  Transfer t;                // the caller's; `data` may point to `copy`
  Head head;
  std::vector<std::byte> copy;
};

// Slots by index. A slot's address stays.
class RailMessages {
 public:
  using Use = RailSlot::Use;
  static constexpr int kIndexBits = 24;  // for a slot's index in an inner id
  static constexpr std::uint32_t kNone = RailSlot::kNone;

  std::uint32_t size() const { return static_cast<std::uint32_t>(all_.size()); }
  RailSlot& operator[](std::uint32_t s) { return *all_[s]; }
  const std::vector<std::unique_ptr<RailSlot>>& all() const { return all_; }
  // Whether `most` slots are in use.
  bool full(std::size_t most) const { return free_.empty() && all_.size() >= most; }
  std::uint32_t take(Use use) {
    if (free_.empty()) [[unlikely]]
      add();
    const std::uint32_t s = free_.back();
    free_.pop_back();
    RailSlot& slot = *all_[s];
    slot.use = use;
    slot.busy = slot.reported = slot.acked = slot.timed = slot.expects = false;
    slot.rail = slot.hold = slot.want = -1;
    slot.younger = kNone;
    return s;
  }
  void free(std::uint32_t s) {
    all_[s]->use = Use::kFree;
    free_.push_back(s);
  }

  // The id of a slot's message in its inner transport. The upper half, used to cancel messages, is
  // unique among concurrent messages; the lower half distinguishes later ones, too.
  std::uint64_t inner_id(std::uint32_t s) const {
    const std::uint16_t nonce = all_[s]->nonce;
    return std::uint64_t{s | std::uint32_t{nonce} << kIndexBits} << 32 | nonce;
  }
  static std::uint32_t index_in(std::uint64_t inner_id) {
    return static_cast<std::uint32_t>(inner_id >> 32) & ((1u << kIndexBits) - 1);
  }

  // ---- sends without a receipt. `sends` has the oldest send to one peer by tag; tags repeat
  // if a sender is far ahead.
  void keep_send(TagTable& sends, std::uint32_t s);
  void forget_send(TagTable& sends, std::uint32_t s);
  std::size_t kept_sends() const { return kept_sends_; }  // to all peers
  // Calls f(slot) for the messages with the tag of `oldest`, oldest first. f must not end any of
  // them.
  template <class F>
  void for_each_send(std::uint32_t oldest, F f) const {
    for (; oldest != kNone; oldest = all_[oldest]->younger) f(oldest);
  }

 private:
  void add() {
    free_.push_back(size());
    all_.push_back(std::make_unique<RailSlot>());
  }
  std::vector<std::unique_ptr<RailSlot>> all_;
  std::vector<std::uint32_t> free_;
  std::size_t kept_sends_ = 0;
};

inline void RailMessages::keep_send(TagTable& sends, std::uint32_t s) {
  const std::uint64_t tag = all_[s]->t.tag;
  std::uint32_t last = kNone;
  for_each_send(sends.find(tag), [&](std::uint32_t one) { last = one; });
  if (last == kNone)
    sends.set(tag, s);
  else
    all_[last]->younger = s;
  ++kept_sends_;
}

inline void RailMessages::forget_send(TagTable& sends, std::uint32_t s) {
  const RailSlot& slot = *all_[s];
  const std::uint32_t oldest = sends.find(slot.t.tag);
  if (oldest != s)
    for_each_send(oldest, [&](std::uint32_t one) {
      if (all_[one]->younger == s) all_[one]->younger = slot.younger;
    });
  else if (slot.younger != kNone)
    sends.set(slot.t.tag, slot.younger);
  else
    sends.erase(slot.t.tag);
  --kept_sends_;
}

}  // namespace weft
