// The delay of a long message's receipt, to combine two. The class does not depend on tags or a
// clock.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace weft {

// Decides how long the receipt of a long message is held for a second tag, which saves one packet
// per two slices. But the sender may send nothing more until it gets the receipt: so the delay is
// no longer than the next message is likely to take, and if that did not arrive, receipts are not
// held for a while.
class ReceiptDelay {
 public:
  void posted() { ++posted_; }  // a receive of a long message
  void ended() { --posted_; }
  // A long message has arrived: its receipt is urgent. Returns true if none was urgent before.
  bool arrived(std::size_t bytes, std::int64_t now) {
    const bool last = posted_ == 1 || bytes > kMostHeld;
    const std::int64_t before = std::exchange(came_, last ? 0 : now);
    if (before != 0) {
      const std::int64_t gap = std::min(now - before, kMostGap);
      gap_ = gap_ == 0 ? gap : gap_ + (gap - gap_) / kGaps;
    }
    return !std::exchange(urgent_, true);
  }
  bool urgent() const { return urgent_; }
  // Returns for how many us to hold the urgent receipt; 0: send it.
  std::int64_t hold(std::int64_t now) {
    if (came_ == 0 || patience_ < 0) return 0;
    const std::int64_t left = came_ + kGapsHeld * gap_ - now;
    held_ = left > 0;
    return std::max<std::int64_t>(left, 0);
  }
  // Called before the receipt is sent. in_vain: it was held, but no second tag arrived.
  bool held() const { return held_; }
  void give_up_holding(bool in_vain) {
    if (patience_ < 0)
      ++patience_;
    else if (in_vain && (patience_ -= kInVain) < 0)
      patience_ = -kImpatience;
  }
  void sent(std::size_t tags) {
    if (held_ && tags > 1) patience_ = std::min(patience_ + 1, kPatience);
    urgent_ = held_ = false;
  }

 private:
  static constexpr std::int64_t kMostGap = 2000;    // us
  static constexpr int kGaps = 8;                   // the mean covers about this many gaps
  static constexpr int kGapsHeld = 3;               // a receipt is held for this many gaps
  static constexpr int kPatience = 8, kInVain = 4;  // one vain delay in five still pays
  static constexpr int kImpatience = 64;
  static constexpr std::size_t kMostHeld = 32 << 10;  // a packet is below 0.3 % of longer messages
  bool urgent_ = false;              // the peer waits for the tag of a long message
  bool held_ = false;                // the tag is held for a second one
  int patience_ = 0;                 // negative: number of tags not to hold
  std::uint32_t posted_ = 0;         // long receives
  std::int64_t came_ = 0, gap_ = 0;  // last arrival (0: none is posted); us between two
};

}  // namespace weft
