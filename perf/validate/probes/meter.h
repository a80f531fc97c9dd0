// What every end measures alike: bytes in windows, percentiles of latencies, and the time that the
// thread itself waited for a core.
#pragma once

#include <cstdint>
#include <vector>

#include "perf/validate/probes/samples.h"

namespace weft::fabric {

// Counts bytes in windows of equal length from the first byte on.
class WindowMeter {
 public:
  // A window is a sixteenth of the flow's time, but at least 5 ms and at most 100 ms.
  explicit WindowMeter(double seconds);
  void add(double now_s, std::uint64_t bytes);
  // Of messages that a window holds few of: spreads the bytes over the time since the last ones.
  void add_message(double now_s, std::uint64_t bytes);

  std::uint64_t bytes() const { return bytes_; }
  double seconds() const { return bytes_ > 0 ? last_ - first_ : 0; }
  double window_s() const { return window_s_; }
  // Gb/s of the whole windows, without the first quarter: slow start, and the burst that a shaper
  // grants to a port that was idle.
  std::vector<double> windows() const;

 private:
  void put(double at_s, double bytes);

  double window_s_, until_;
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

LatencySample summary_of(std::vector<double> microseconds);  // empty: all 0

}  // namespace weft::fabric
