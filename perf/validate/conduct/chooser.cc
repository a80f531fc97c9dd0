// Chooses partners for suspected ends, and counts the samples of both.
#include "perf/validate/conduct/chooser.h"

#include <algorithm>

#include "perf/validate/conduct/next_round.h"
#include "perf/validate/locate/causes.h"
#include "perf/validate/locate/observations.h"
#include "perf/validate/probes/plan.h"

namespace weft::fabric {
namespace {

// Maximum samples of one path and probe: more samples add no information.
constexpr int kMostRepeats = 4;
constexpr int kKnownEnd = 2;        // flows with other partners that distinguish an end from a path
constexpr int kKnownEndByLoss = 8;  // likewise for losses, which a flow shows only by chance

}  // namespace

Chooser::Chooser(const std::vector<FleetHost>& hosts, const Samples& samples,
                 const std::vector<Cause>& causes, Probe probe, int most_flows, int repeats)
    : hosts_(hosts),
      causes_(causes),
      most_(most_flows),
      repeats_(repeats > 0
                   ? repeats
                   : std::max(kMostRepeats,
                              kMostSamples / std::max(1, static_cast<int>(hosts.size()) - 1))) {
  round_.probe = probe;
  round_.seconds = probe == Probe::kRate ? 0.3 : probe == Probe::kLowLoad ? 0.3 : 0.05;
  for (const FlowSample& sample : samples.flows) {
    const Round& round = samples.rounds[static_cast<std::size_t>(sample.round)];
    if (round.probe != probe) continue;
    const Port from = sample.flow.from, to = sample.flow.to;
    ++tried_[key_of({from, to})];
    ++all_sent_[from];
    ++all_received_[to];
    if (probe == Probe::kRate || probe == Probe::kLowLoad)
      round_.seconds = std::max(round_.seconds, round.seconds);
    if (probe != Probe::kLowLoad && held_up(sample)) continue;
    ++spoken_[key_of({from, to})];
    ++sent_[key_of(from)];
    ++received_[key_of(to)];
  }
}

// Adds a flow if its ports are free and its path needs more samples.
bool Chooser::add(Port from, Port to) {
  if (!free(from) || !free(to) || from.host == to.host) return false;
  if (most_ > 0 && static_cast<int>(round_.flows.size()) >= most_) return false;
  // Two pings that share a core would wait for each other.
  const bool shared = hosts_[static_cast<std::size_t>(from.host)].emulated;
  if (round_.probe == Probe::kLatency && shared && !round_.flows.empty()) return false;
  if (count(tried_, std::pair(from, to)) >= repeats_) return false;
  round_.flows.push_back({from, to, round_.probe == Probe::kLowLoad ? kLowPace : 1});
  busy_.insert({from, to});
  return true;
}

bool Chooser::suspect(Port port) const {
  return std::ranges::any_of(causes_, [&](const Cause& cause) {
    const Port other{-1, port.rail};
    return cause.place != CausePlace::kRail && cause.place != CausePlace::kFleet &&
           (passes(cause, port, other) || passes(cause, other, port));
  });
}

// Of the rail's free ports without a cause, the port with the fewest samples with `port`.
std::optional<Port> Chooser::partner(Port port, bool sends) const {
  std::optional<Port> best;
  int least = repeats_;
  const int n = static_cast<int>(hosts_.size());
  for (int step = 1; step < n && least > 0; ++step) {
    const Port other{(port.host + step) % n, port.rail};
    if (!has(other) || !free(other) || suspect(other)) continue;
    const int known =
        sends ? count(tried_, std::pair(port, other)) : count(tried_, std::pair(other, port));
    if (known >= least) continue;
    least = known;
    best = other;
  }
  return best;
}

bool Chooser::test_end(Port port, bool sends) {
  const std::optional<Port> other = partner(port, sends);
  return other && (sends ? add(port, *other) : add(*other, port));
}

// Tests one direction of a port, first the direction with fewer samples.
bool Chooser::either_way(Port port) {
  const bool sends = count(sent_, port) <= count(received_, port);
  return test_end(port, sends) || test_end(port, !sends);
}

// Tests the ends with other partners while they have too few such samples; otherwise tests the path
// again.
void Chooser::test_path(const Cause& cause, bool both_ways) {
  const Port from = cause.port, to = cause.peer;
  const int known = cause.kind == CauseKind::kLoss ? kKnownEndByLoss : kKnownEnd;
  bool added = false;
  if (count(sent_, from) - count(spoken_, std::pair(from, to)) < known)
    added |= test_end(from, true);
  if (count(received_, to) - count(spoken_, std::pair(from, to)) < known)
    added |= test_end(to, false);
  if (added) return;
  if (both_ways && count(tried_, std::pair(to, from)) < count(tried_, std::pair(from, to)))
    add(to, from);
  else
    add(from, to);
}

void Chooser::test(const Cause& cause) {
  const auto ports_of = [&](int host) {
    std::vector<Port> ports;
    for (int r = 0; r < static_cast<int>(hosts_[static_cast<std::size_t>(host)].ports.size()); ++r)
      ports.push_back({host, r});
    return ports;
  };
  switch (cause.place) {
    case CausePlace::kTransmit:
      test_end(cause.port, true);
      return;
    case CausePlace::kReceive:
      test_end(cause.port, false);
      return;
    case CausePlace::kPort:
      either_way(cause.port);
      if (cause.kind == CauseKind::kSwapped) either_way(cause.peer);
      return;
    case CausePlace::kHostTransmit:
      for (const Port port : ports_of(cause.port.host)) test_end(port, true);
      return;
    case CausePlace::kHostReceive:
      for (const Port port : ports_of(cause.port.host)) test_end(port, false);
      return;
    case CausePlace::kHost:
      for (const Port port : ports_of(cause.port.host)) either_way(port);
      return;
    case CausePlace::kGroup:
      for (const Port port : cause.ports) either_way(port);
      return;
    case CausePlace::kPath:
      return test_path(cause, false);
    case CausePlace::kPair:
      return test_path(cause, true);
    case CausePlace::kRail:
    case CausePlace::kFleet:
      for (int h = 0; h < static_cast<int>(hosts_.size()); ++h)
        if (has({h, cause.port.rail})) either_way({h, cause.port.rail});
      return;
  }
}

// Repeats ports whose flows were all starved, a limited number of times.
void Chooser::probe_silent_paths() {
  for (const auto& [port, times] : all_sent_)
    if (count(sent_, port) == 0 && times < 2 * kMostRepeats) test_end(port, true);
  for (const auto& [port, times] : all_received_)
    if (count(received_, port) == 0 && times < 2 * kMostRepeats) test_end(port, false);
}

}  // namespace weft::fabric
