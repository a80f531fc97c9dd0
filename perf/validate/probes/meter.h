// What every end measures alike: bytes in windows, percentiles of latencies, and the time that the
// thread itself waited for a core.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "perf/validate/probes/samples.h"

namespace weft::fabric {

// Counts bytes in windows of equal length from the first byte on.
class WindowMeter {
 public:
  // A window is a sixteenth of the flow's time, but at least 5 ms and at most 100 ms.
  // With `first_s`, windows count from that moment on, as those of other meters do.
  explicit WindowMeter(double seconds, std::optional<double> first_s = {});
  void add(double now_s, std::uint64_t bytes);
  // Of messages that a window holds few of: spreads the bytes over the time since the last ones.
  void add_message(double now_s, std::uint64_t bytes);
  void add(const WindowMeter& other);  // whose windows count from the same moment on

  std::uint64_t bytes() const { return bytes_; }
  double seconds() const { return bytes_ > 0 ? last_ - first_ : 0; }
  double window_s() const { return window_s_; }
  // Gb/s of the whole windows, without the first quarter: slow start, and the burst that a shaper
  // grants to a port that was idle. A flow that stands still until its end has windows of 0 there.
  std::vector<double> windows() const;

 private:
  void put(double at_s, double bytes);

  double window_s_, until_;
  std::optional<double> begin_;
  double first_ = 0, last_ = 0;
  std::uint64_t bytes_ = 0;
  std::vector<double> in_window_;
};

// The share of the calling thread's time, since the object was made, in which the thread could run
// and had no core. Source: /proc/thread-self/schedstat, field 2
// (Documentation/scheduler/sched-stats).
class Starvation {
 public:
  Starvation();
  double share() const;

 private:
  double start_s_;
  std::uint64_t start_ns_;
};

// Round trips one after the other: ten to warm up or as many as a quarter of the time takes, then
// for the time of the round. Where pings are slow and may go on, until there are fifty, for at most
// six times as long. Scheduled ones go every 500 us, so that a late answer does not hide those that
// would have been late behind it (coordinated omission): a ping that had to wait for an answer
// counts from the moment that it was due at. One that was sent late because the thread slept for
// too long counts from then, and the later ones go that much later.
class PingTimes {
 public:
  PingTimes(double seconds, bool may_go_on);
  // Sleeps until the next scheduled ping is due, and returns when it begins: see scheduled().
  double next();
  // When a ping begins that is due at some moment, for which the thread was free at `free_s`, and
  // which is sent at `sent_s`. The one after it is due a period later.
  static double scheduled(double due_s, double free_s, double sent_s) {
    return free_s <= due_s ? sent_s : due_s;
  }
  bool more() const;
  void add(double round_trip_s);
  double latest() const { return until_ + (may_go_on_ ? 5 * seconds_ : 0); }  // when more() ends
  double seconds() const;                                                     // since the start
  LatencySample summary() const;                                              // of half round trips

 private:
  double seconds_, start_s_, until_, due_s_;
  bool may_go_on_;
  int turns_ = 0;
  std::vector<double> us_;
};

LatencySample summary_of(std::vector<double> microseconds);  // empty: all 0

}  // namespace weft::fabric
