// Times streams and ping-pongs over a PairLink. Does not depend on the link's transport.
#include "perf/pair/pair_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "topo/base/clock.h"
#include "topo/base/yield.h"

namespace weft {
namespace {

// Polls between two reads of the clock.
constexpr std::uint64_t kLooks = 256;

std::int64_t now_ns() {
  const auto t = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(t).count();
}

}  // namespace

void RateMeter::add(double now, std::uint64_t bytes) {
  end_ = now;
  bytes_ += bytes;
  in_window_ += bytes;
  const double open = now - opened_;
  if (open < kWindowSeconds) return;
  const double rate = static_cast<double>(in_window_) / open;
  best_ = windows_ ? std::max(best_, rate) : rate;
  worst_ = windows_ ? std::min(worst_, rate) : rate;
  ++windows_;
  in_window_ = 0;
  opened_ = now;
}

PairDeadline::PairDeadline(const PairLink& link, const PairOptions& options, Job& job,
                           std::string what)
    : link_(link), options_(options), job_(job), what_(std::move(what)) {}

void PairDeadline::idle() {
  // A loop that sleeps between two polls has time to read the clock.
  if (++idle_ % kLooks != 0 && !options_.events) return;
  if (job_.failed()) throw Error(job_.failure().to_string());
  yield_core();  // the other end may be waiting for this core
  const double now = now_s();
  if (since_ == 0) {
    since_ = now;
    bytes_ = link_.moved_bytes();
  }
  if (now - since_ <= options_.timeout_s()) return;
  // On a slow path, a long message may take longer than the timeout: check for moved bytes.
  const auto bytes = link_.moved_bytes();
  if (bytes != bytes_) {
    since_ = now;
    bytes_ = bytes;
    return;
  }
  throw Error(fmt::format(
      "{}: nothing has moved for {} s (--timeout-ms){}: is the link up, and does the other end run "
      "with the same flags?{}",
      what_, options_.timeout_s(), bytes ? "" : ", as far as messages that end tell",
      bytes ? "" : " A slow path needs a longer --timeout-ms or shorter messages (-s)"));
}

StreamResult run_stream(PairLink& link, const PairOptions& options, const PairRole& role,
                        Job& job) {
  StreamResult result;
  PairDeadline deadline(link, options, job,
                        fmt::format("bw --op {} of {} bytes", options.op, role.bytes));
  const bool timed = options.seconds > 0;
  const auto wanted = static_cast<std::uint64_t>(options.iterations_or_default());
  const auto last = static_cast<std::uint64_t>(link.last());
  const double start = now_s();
  double now = start;
  result.meter.start(start);
  std::uint64_t posted = 0;
  const std::uint64_t most = std::max(kLooks, static_cast<std::uint64_t>(options.list));
  bool all_posted = !role.sends;
  bool ended = !role.receives || link.one_sided();
  for (std::uint64_t looks = 0; !all_posted || result.sent < posted || !ended; ++looks) {
    if (looks % kLooks == 0) now = now_s();
    while (!all_posted) {
      result.cut = now - start > options.limit_s;
      int n = 0;
      if (result.cut || (timed ? now - start >= options.seconds : posted + last >= wanted)) {
        n = link.post_last();
        all_posted = n > 0;
      } else {
        const std::uint64_t left = timed ? most : wanted - last - posted;
        n = link.post(static_cast<int>(std::min(left, most)));
      }
      posted += static_cast<std::uint64_t>(n);
      if (n == 0) break;
    }
    const PairProgress progress = link.poll();
    ended = ended || progress.ended;
    if (progress.sent > 0) {
      now = now_s();
      result.sent += static_cast<std::uint64_t>(progress.sent);
      result.meter.add(now, static_cast<std::uint64_t>(progress.sent) * role.bytes);
    }
    if (progress.sent > 0 || progress.arrived > 0) {
      deadline.moved();
    } else {
      deadline.idle();
      link.sleep();
    }
  }
  return result;
}

double run_ping_pong(PairLink& link, const PairOptions& options, const PairRole& role,
                     std::uint64_t first, std::uint64_t turns, Histogram& times, Job& job) {
  if (!role.sends && link.one_sided()) return 0;
  PairDeadline deadline(link, options, job,
                        fmt::format("lat --op {} of {} bytes", options.op, role.bytes));
  const auto wait = [&](std::uint64_t turn) {
    while (!link.arrived(turn)) {
      deadline.idle();
      link.sleep();
    }
    deadline.moved();
  };
  const int share = link.one_sided() ? 1 : 2;
  const std::int64_t start = now_ns();
  std::int64_t before = start;
  for (std::uint64_t turn = first; turn < first + turns; ++turn) {
    if (!role.sends) {
      wait(turn);
      link.ping(turn);
      continue;
    }
    link.ping(turn);
    wait(turn);
    const std::int64_t now = now_ns();
    if (turn > first) times.add((now - before) / share);
    before = now;
  }
  const double took = static_cast<double>(now_ns() - start) * 1e-9;
  while (!link.settled()) {
    deadline.idle();
    link.sleep();
  }
  return took;
}

}  // namespace weft
