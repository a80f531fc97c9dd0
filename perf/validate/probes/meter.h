// Measurements common to all ends: bytes per window, latency percentiles, and the thread's waits
// for a core.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "perf/validate/probes/samples.h"

namespace weft::fabric {

// Counts bytes in windows of equal length, starting at the first byte.
class WindowMeter {
 public:
  // A window is 1/16 of the flow's time, but between 5 ms and 100 ms. With `first_s`, windows start
  // at that time, so that several meters can be added.
  explicit WindowMeter(double seconds, std::optional<double> first_s = {});
  void add(double now_s, std::uint64_t bytes);
  // For large messages, few per window: spreads the bytes over the time since the last message.
  void add_message(double now_s, std::uint64_t bytes);
  void add(const WindowMeter& other);  // its windows must start at the same time

  std::uint64_t bytes() const { return bytes_; }
  double seconds() const { return bytes_ > 0 ? last_ - first_ : 0; }
  double window_s() const { return window_s_; }
  // Returns the Gb/s of the complete windows, without the first quarter: slow start, and the burst
  // that a shaper grants an idle port. A flow that stalls until its end has windows of 0.
  std::vector<double> windows() const;

 private:
  void put(double at_s, double bytes);

  double window_s_, until_;
  std::optional<double> begin_;
  double first_ = 0, last_ = 0;
  std::uint64_t bytes_ = 0;
  std::vector<double> in_window_;
};

// Fraction of time since construction for which the calling thread was runnable but had no core.
// Source: /proc/thread-self/schedstat, field 2 (Documentation/scheduler/sched-stats).
class Starvation {
 public:
  Starvation();
  double share() const;

 private:
  double start_s_;
  std::uint64_t start_ns_;
};

// Consecutive round trips, for the round's duration after a warm-up of ten or of a quarter of that
// time. With `may_go_on`, slow pings continue up to fifty samples, for at most six times as long.
// Scheduled pings start every 500 us, so that a late answer does not hide the delay of later pings
// (coordinated omission): if a ping had to wait for the previous answer, its time starts when it
// was due. If the thread overslept, the time starts when the ping was sent, and later pings shift.
class PingTimes {
 public:
  PingTimes(double seconds, bool may_go_on);
  // Sleeps until the next scheduled ping is due and returns its start time: see scheduled().
  double next();
  // Returns the start time of a ping that was due at `due_s`, if the thread was free at `free_s`
  // and sent it at `sent_s`. The next ping is due a period later.
  static double scheduled(double due_s, double free_s, double sent_s) {
    return free_s <= due_s ? sent_s : due_s;
  }
  bool more() const;
  void add(double round_trip_s);
  // Time at which more() ends.
  double latest() const { return until_ + (may_go_on_ ? 5 * seconds_ : 0); }
  // Seconds since the start.
  double seconds() const;
  // Latencies, as half round trips.
  LatencySample summary() const;

 private:
  double seconds_, start_s_, until_, due_s_;
  bool may_go_on_;
  int turns_ = 0;
  std::vector<double> us_;
};

// Returns the summary; all fields are 0 if the list is empty.
LatencySample summary_of(std::vector<double> microseconds);

}  // namespace weft::fabric
