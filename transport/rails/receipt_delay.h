// How long the receipt of a long message waits for a second one. Knows no tags and no clock.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace weft {

// Decides how long the receipt of a long message waits for a second tag to go with it. On the wire
// that saves a packet for each two slices. The sender may wait for the receipt, and so send nothing
// more: hence not for longer than the next message is likely to take, and where that did not come,
// not again for a while.
class ReceiptDelay {
 public:
  void posted() { ++posted_; }  // a receive of a long message
  void ended() { --posted_; }
  // A long message has arrived: its receipt is urgent. Returns whether none was before.
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
  // Returns for how many us the urgent receipt is to be held; 0: send it.
  std::int64_t hold(std::int64_t now) {
    if (came_ == 0 || patience_ < 0) return 0;
    const std::int64_t left = came_ + kGapsHeld * gap_ - now;
    held_ = left > 0;
    return std::max<std::int64_t>(left, 0);
  }
  // The receipt goes. in_vain: it was held, and no second tag came.
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
  static constexpr int kGaps = 8;                   // the mean is of so many gaps, about
  static constexpr int kGapsHeld = 3;               // for so many of them one is held
  static constexpr int kPatience = 8, kInVain = 4;  // in vain one time in five is still worth it
  static constexpr int kImpatience = 64;
  static constexpr std::size_t kMostHeld = 32 << 10;  // of a longer message it is below 0.3 %
  bool urgent_ = false;              // the peer waits for the tag of a long message
  bool held_ = false;                // that tag waits for another one to go with it
  int patience_ = 0;                 // negative: so many tags are not held
  std::uint32_t posted_ = 0;         // long receives
  std::int64_t came_ = 0, gap_ = 0;  // when one ended (0: none is posted); us between two
};

}  // namespace weft
