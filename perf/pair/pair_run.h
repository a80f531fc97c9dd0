// The timed loops of `weft perf bw` and `weft perf lat`, over a PairLink.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "perf/collective/histogram.h"
#include "perf/pair/pair_link.h"

namespace weft {

// Measures the average rate, and the best and worst windows of about 100 ms: a window ends with
// the first completion after 100 ms, and a shorter last window does not count.
class RateMeter {
 public:
  static constexpr double kWindowSeconds = 0.1;
  void start(double now) { start_ = end_ = opened_ = now; }
  void add(double now, std::uint64_t bytes);
  double seconds() const { return end_ - start_; }
  double average() const { return seconds() > 0 ? static_cast<double>(bytes_) / seconds() : 0; }
  double best() const { return std::max(best_, average()); }  // bytes per second
  double worst() const { return windows_ ? std::min(worst_, average()) : average(); }

 private:
  double start_ = 0, end_ = 0, opened_ = 0;
  std::uint64_t bytes_ = 0, in_window_ = 0;
  int windows_ = 0;
  double best_ = 0, worst_ = 0;
};

// Throws Error if no byte has moved for options.timeout_ms (if the link does not count bytes: no
// message has completed), or if the job has failed.
class PairDeadline {
 public:
  PairDeadline(const PairLink& link, const PairOptions& options, Job& job, std::string what);
  void moved() { since_ = 0; }
  void idle();  // the caller calls idle() after each poll without a completion

 private:
  const PairLink& link_;
  const PairOptions& options_;
  Job& job_;
  std::string what_;
  std::uint64_t idle_ = 0;
  double since_ = 0;                    // time of the first idle() since moved(); 0: no idle() yet
  std::optional<std::uint64_t> bytes_;  // moved bytes at the time `since_`
};

struct StreamResult {
  std::uint64_t sent = 0;
  bool cut = false;  // --limit-s ended the stream
  RateMeter meter;   // rates of this end's sent bytes
};

StreamResult run_stream(PairLink& link, const PairOptions& options, const PairRole& role, Job& job);

// Runs `turns` round trips from turn `first` on, and returns their total time in seconds. The
// starting end adds each round trip's time except the first to `times`: whole for reads, else half.
double run_ping_pong(PairLink& link, const PairOptions& options, const PairRole& role,
                     std::uint64_t first, std::uint64_t turns, Histogram& times, Job& job);

}  // namespace weft
