// Receipts of a lane, without the transport: the tags in a receipt, and the confirmation of
// receipts by the other end. The classes do not depend on messages, ranks or a clock.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

namespace weft {

// The message that Rails adds to a lane: the tags of messages that have arrived. A lane has two
// streams of receipts. Tags of short messages wait until there are many; tags of long messages wait
// for one more at most. The length of a receive determines the stream.
struct Receipt {
  enum Stream : std::uint8_t { kShort, kLong, kStreams };
  static constexpr std::size_t kTags = 30;
  static constexpr std::size_t most(Stream stream) { return stream == kShort ? kTags : 2; }
  static constexpr std::size_t bytes(Stream stream) { return 8 + 8 * most(stream); }
  std::uint32_t count = 0;
  std::uint32_t confirmed = 0;  // receipts received from the other end, modulo 2^32
  std::array<std::uint64_t, kTags> tags{};
};
static_assert(sizeof(Receipt) == Receipt::bytes(Receipt::kShort));

// Both directions of one stream. A tag is kept from its message's arrival until the peer confirms
// the receipt that carries it: when the lane fails, the peer may lack the receipts of these tags.
class ReceiptStream {
 public:
  static constexpr std::uint32_t kWindow = 8;  // posted receives of receipts

  // ---- tags of messages that have arrived here
  void arrived(std::uint64_t tag) { pending_.push_back(tag); }
  std::size_t pending() const { return pending_.size(); }  // tags not yet in a receipt
  // Whether confirmations are pending: the peer keeps tags until their receipts are confirmed.
  bool owes() const { return owes_; }
  // Makes the next receipt of up to `most` tags. confirms: the receipt also confirms the peer's.
  struct Outgoing {
    Receipt receipt;
    std::uint32_t number = 0;
  };
  Outgoing next(std::size_t most, bool confirms) {
    waits_since_ = 0;
    Outgoing out;
    Receipt& receipt = out.receipt;
    receipt.count = static_cast<std::uint32_t>(std::min(pending_.size(), most));
    if (confirms) {
      confirmed_ = received_below_;
      owes_ = false;
    }
    receipt.confirmed = confirmed_;
    std::copy_n(pending_.begin(), receipt.count, receipt.tags.begin());
    unconfirmed_.emplace_back(pending_.begin(), pending_.begin() + receipt.count);
    pending_.erase(pending_.begin(), pending_.begin() + receipt.count);
    out.number = sent_++;
    return out;
  }
  // Returns how long a tag or a confirmation has waited to be sent; nullopt: none waits.
  std::optional<std::int64_t> waited(bool may_confirm, std::int64_t now) {
    if (pending_.empty() && !(owes_ && may_confirm)) {
      waits_since_ = 0;
      return std::nullopt;
    }
    if (waits_since_ == 0) waits_since_ = now;
    return now - waits_since_;
  }

  // ---- receipts of the peer, by number
  // Returns the number of the next receive to post, while wants_receive().
  bool wants_receive() const { return posted_below_ - received_below_ < kWindow; }
  std::uint32_t post_receive() { return posted_below_++; }
  void came(std::uint32_t number) {
    const std::uint32_t ahead = number - received_below_;
    if (ahead < 64) received_ |= std::uint64_t{1} << ahead;
    for (; received_ & 1; received_ >>= 1) ++received_below_;
  }
  // Applies a receipt's confirmation of this rank's own receipts.
  void read(const Receipt& receipt) {
    owes_ = owes_ || receipt.count > 0;
    while (!unconfirmed_.empty() &&
           static_cast<std::int32_t>(receipt.confirmed - (sent_ - kept())) > 0)
      unconfirmed_.pop_front();
  }
  // Whether so many of the peer's receipts are unconfirmed that an empty receipt must be sent.
  bool lags() const { return received_below_ - confirmed_ >= 2 * kWindow; }

  // Calls f(tag) for each tag whose receipt the peer may not have.
  template <class F>
  void for_each_kept(F f) const {
    for (const std::uint64_t tag : pending_) f(tag);
    for (const auto& some : unconfirmed_)
      for (const std::uint64_t tag : some) f(tag);
  }

 private:
  std::uint32_t kept() const { return static_cast<std::uint32_t>(unconfirmed_.size()); }
  std::vector<std::uint64_t> pending_;
  std::deque<std::vector<std::uint64_t>> unconfirmed_;  // by receipt; the last one is sent_ - 1
  std::uint32_t sent_ = 0;
  std::uint32_t received_below_ = 0, posted_below_ = 0, confirmed_ = 0;
  std::uint64_t received_ = 0;  // bit i: number received_below_ + i
  bool owes_ = false;
  std::int64_t waits_since_ = 0;  // 0: nothing waits
};

}  // namespace weft
