// A lane: one rail between this rank and one peer.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "transport/rails/receipt_delay.h"
#include "transport/rails/receipts.h"

namespace weft {

// The speed of a lane, measured while large messages are under way, in two ways. A mean of rates
// mistakes late bursts for speed: on a busy machine equal rails then seem to differ. Bytes over
// time do not, but charge a fast rail with its waits for a slow one. So bytes over time decide
// whether rails differ, and the mean rate by how much.
class LaneRate {
 public:
  // A large message is under way. `now` returns the time in us, and is called only when needed.
  template <class Now>
  void begin(Now now) {
    if (open_++ == 0) busy_since_ = now();
  }
  // The message is over; `bytes` of it count. One measurement takes `measure_bytes`.
  template <class Now>
  void end(std::size_t bytes, std::uint64_t measure_bytes, Now clock) {
    bytes_ += bytes;
    if (open_ == 0) return;
    const bool last = --open_ == 0;
    if (!last && bytes_ < measure_bytes) return;
    const std::int64_t now = clock();
    busy_us_ += now - std::exchange(busy_since_, now);
    if (bytes_ < measure_bytes || busy_us_ <= 0) return;
    const double measured = static_cast<double>(bytes_) / static_cast<double>(busy_us_);
    rate_ = rate_ > 0 ? (rate_ + measured) / 2 : measured;
    all_bytes_ = all_bytes_ * kKept + static_cast<double>(bytes_);
    all_us_ = all_us_ * kKept + static_cast<double>(busy_us_);
    bytes_ = 0;
    busy_us_ = 0;
  }
  double rate() const { return rate_; }  // bytes per us, smoothed; 0: not known
  double mean() const { return all_us_ > 0 ? all_bytes_ / all_us_ : 0; }

 private:
  static constexpr double kKept = 7.0 / 8;  // weight of the past at each new measurement
  std::uint32_t open_ = 0;                  // large messages under way, since busy_since_
  std::int64_t busy_since_ = 0, busy_us_ = 0;
  std::uint64_t bytes_ = 0;
  double all_bytes_ = 0, all_us_ = 0;  // decaying sums of the measurements
  double rate_ = 0;
};

// Whether a lane is in use, from its failure to its return. Both ends give it up before any message
// is replayed; later the lower rank asks to open it again. The class does not depend on messages,
// transports, or on why a lane fails.
class LaneLife {
 public:
  bool up() const { return is_ == Is::kUp; }
  bool down() const { return is_ == Is::kDown; }            // given up by both ends
  std::uint32_t generation() const { return generation_; }  // of the connection
  const std::string& cause() const { return cause_; }       // of the last failure
  const char* name() const {
    static constexpr const char* kNames[] = {"up", "given up here", "out", "opening", "ready"};
    return kNames[static_cast<int>(is_)];
  }

  // ---- out: give_up() here and peer_gives_up(), in any order; then settle()
  bool in_use() const { return up() || is_ == Is::kReady; }
  void give_up(std::int64_t now, const std::string& cause) {
    is_ = Is::kGivenUp;
    down_at_ = now;
    cause_ = cause;
  }
  // Returns false if the lane is not open, so that the peer cannot give it up.
  bool peer_gives_up() {
    if (!in_use() && is_ != Is::kGivenUp) return false;
    return peer_gave_up_ = true;
  }
  bool over() const { return is_ == Is::kGivenUp && peer_gave_up_; }
  void settle() {
    is_ = Is::kDown;
    peer_gave_up_ = false;
    theirs_.clear();
  }
  // Tags that the peer had received when it gave the lane up.
  std::vector<std::uint64_t>& theirs() { return theirs_; }

  // ---- back: one end asks, the other one is ready
  bool rested(std::int64_t now, std::int64_t least) const { return now - down_at_ >= least; }
  void tried(std::int64_t now) { down_at_ = now; }  // in vain so far
  void ask() {
    ++generation_;
    is_ = Is::kOpening;
  }
  bool asked(std::uint32_t generation) const {
    return is_ == Is::kOpening && generation == generation_;
  }
  void refused(std::int64_t now) {
    is_ = Is::kDown;
    down_at_ = now;
  }
  void adopt(std::uint32_t generation) { generation_ = generation; }  // of the end that asks
  void ready() { is_ = Is::kReady; }
  bool is_ready(std::uint32_t generation) const {
    return is_ == Is::kReady && generation == generation_;
  }
  void open() { is_ = Is::kUp; }

 private:
  enum class Is : std::uint8_t {
    kUp,
    kGivenUp,  // by this rank; not yet by the peer
    kDown,     // given up by both ends
    kOpening,  // the lower rank has asked the peer to reopen the lane
    kReady,    // the higher rank is ready, and waits for the lower rank
  };
  Is is_ = Is::kUp;
  bool peer_gave_up_ = false;  // and its tags have arrived
  std::uint32_t generation_ = 0;
  std::int64_t down_at_ = 0;
  std::string cause_;
  std::vector<std::uint64_t> theirs_;
};

struct RailLane {
  LaneLife life;
  bool started = false;  // receives of receipts are posted
  bool moved = false;    // a message ended since the last look
  bool suspect = false;
  std::uint32_t open = 0;  // messages on this lane for which this rank waits
  std::int64_t still_since = 0;
  std::array<ReceiptStream, Receipt::kStreams> receipts;
  ReceiptDelay delay;
  LaneRate rate;

  // Calls f(tag) for each received tag whose receipt the peer may not have.
  template <class F>
  void for_each_kept(F f) const {
    for (const ReceiptStream& stream : receipts) stream.for_each_kept(f);
  }
};

}  // namespace weft
