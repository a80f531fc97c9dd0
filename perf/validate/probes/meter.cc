// Windows, percentiles and scheduler delays. This file does not depend on a transport.
#include "perf/validate/probes/meter.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <thread>
#include <utility>

#include "topo/base/clock.h"

namespace weft::fabric {
namespace {

std::uint64_t run_delay_ns() {
  std::ifstream file("/proc/thread-self/schedstat");
  std::uint64_t on_core = 0, waited = 0;
  file >> on_core >> waited;
  return file ? waited : 0;
}

}  // namespace

WindowMeter::WindowMeter(double seconds, std::optional<double> first_s)
    : window_s_(std::clamp(seconds / 16, 0.005, 0.1)), until_(seconds), begin_(first_s) {}

void WindowMeter::add(double now_s, std::uint64_t bytes) {
  if (bytes == 0) return;
  if (bytes_ == 0) first_ = begin_.value_or(now_s);
  last_ = now_s;
  bytes_ += bytes;
  put(now_s, static_cast<double>(bytes));
}

void WindowMeter::add_message(double now_s, std::uint64_t bytes) {
  if (bytes == 0 || bytes_ == 0) return add(now_s, bytes);
  const double from = std::exchange(last_, now_s) - first_, until = now_s - first_;
  bytes_ += bytes;
  for (double window = std::floor(from / window_s_); window * window_s_ < until; ++window) {
    const double begin = std::max(from, window * window_s_);
    const double end = std::min(until, (window + 1) * window_s_);
    if (end > begin)
      put(first_ + (begin + end) / 2, static_cast<double>(bytes) * (end - begin) / (until - from));
  }
}

void WindowMeter::add(const WindowMeter& other) {
  if (other.bytes_ == 0) return;
  first_ = other.first_;
  last_ = std::max(last_, other.last_);
  bytes_ += other.bytes_;
  in_window_.resize(std::max(in_window_.size(), other.in_window_.size()));
  for (std::size_t i = 0; i < other.in_window_.size(); ++i) in_window_[i] += other.in_window_[i];
}

void WindowMeter::put(double at_s, double bytes) {
  if (at_s - first_ > until_) return;  // bytes that were queued when the sender stopped
  const auto window = static_cast<std::size_t>((at_s - first_) / window_s_);
  if (in_window_.size() <= window) in_window_.resize(window + 1);
  in_window_[window] += bytes;
}

std::vector<double> WindowMeter::windows() const {
  std::vector<double> gbps;
  if (in_window_.empty()) return gbps;
  const auto planned = static_cast<std::size_t>(std::lround(until_ / window_s_));
  const std::size_t whole = std::max(in_window_.size(), planned) - 1;  // the last may be incomplete
  for (std::size_t i = (whole + 3) / 4; i < whole; ++i)
    gbps.push_back(i < in_window_.size() ? in_window_[i] * 8e-9 / window_s_ : 0);
  return gbps;
}

Starvation::Starvation() : start_s_(now_s()), start_ns_(run_delay_ns()) {}

double Starvation::share() const {
  const double wall = now_s() - start_s_;
  return wall > 0 ? std::min(static_cast<double>(run_delay_ns() - start_ns_) * 1e-9 / wall, 1.0)
                  : 0;
}

PingTimes::PingTimes(double seconds, bool may_go_on)
    : seconds_(seconds),
      start_s_(now_s()),
      until_(start_s_ + seconds),
      due_s_(start_s_),
      may_go_on_(may_go_on) {}

double PingTimes::next() {
  constexpr double kPeriod = 500e-6;
  const double free_s = now_s();
  if (free_s < due_s_) std::this_thread::sleep_for(std::chrono::duration<double>(due_s_ - free_s));
  const double began = scheduled(due_s_, free_s, now_s());
  due_s_ = began + kPeriod;
  return began;
}

bool PingTimes::more() const {
  constexpr std::size_t kEnough = 50, kMost = 2000;
  const double now = now_s();
  return us_.size() < kMost &&
         (now < until_ || (may_go_on_ && us_.size() < kEnough && now < latest()));
}

void PingTimes::add(double round_trip_s) {
  constexpr int kWarmUp = 10;
  if (++turns_ > kWarmUp || now_s() - round_trip_s > start_s_ + seconds_ / 4)
    us_.push_back(round_trip_s / 2 * 1e6);
}

double PingTimes::seconds() const { return now_s() - start_s_; }

LatencySample PingTimes::summary() const { return summary_of(us_); }

LatencySample summary_of(std::vector<double> microseconds) {
  LatencySample s;
  s.samples = static_cast<int>(microseconds.size());
  if (microseconds.empty()) return s;
  std::ranges::sort(microseconds);
  const auto at = [&](double share) {
    const auto rank = std::ceil(share * static_cast<double>(microseconds.size()));
    return microseconds[static_cast<std::size_t>(std::max(rank, 1.0)) - 1];
  };
  s.min_us = microseconds.front();
  s.p50_us = at(0.5);
  s.p99_us = at(0.99);
  s.p999_us = at(0.999);
  s.max_us = microseconds.back();
  return s;
}

}  // namespace weft::fabric
