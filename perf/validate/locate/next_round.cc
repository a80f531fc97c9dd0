// Chooses the flows with most information about unclear causes.
#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>

#include "perf/validate/locate/causes.h"
#include "perf/validate/locate/intermittent.h"
#include "perf/validate/locate/locate.h"
#include "perf/validate/locate/observations.h"
#include "perf/validate/locate/suspects.h"
#include "perf/validate/locate/ways.h"
#include "perf/validate/probes/plan.h"
#include "perf/validate/probes/statistics.h"

namespace weft::fabric {
namespace {

constexpr int kMostRepeats = 4;     // of one path and probe: more would add nothing
constexpr int kMostSamples = 12;    // of a cause that stays unclear, or of a port with few peers
constexpr int kKnownEnd = 2;        // flows with other partners that distinguish an end from a path
constexpr int kKnownEndByLoss = 8;  // likewise for losses, which a flow shows only by chance

// `clean`: full speed alone loses no packets, so unpaced flows show a loss soonest.
Probe probe_for(const Cause& cause, bool clean) {
  switch (cause.kind) {
    case CauseKind::kLatency:
      return Probe::kLatency;
    case CauseKind::kLoss:
      return cause.loaded_only || clean ? Probe::kRate : Probe::kLowLoad;
    case CauseKind::kUnreachable:
    case CauseKind::kSwapped:
      return Probe::kReach;
    case CauseKind::kMtu:
      return Probe::kPathMtu;
    case CauseKind::kRate:
    case CauseKind::kUnstable:
      break;
  }
  return Probe::kRate;
}

class Chooser {
 public:
  Chooser(const std::vector<FleetHost>& hosts, const Samples& samples,
          const std::vector<Cause>& causes, Probe probe, int most_flows, int repeats = 0)
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

  void test(const Cause& cause);
  void look(const Cause& cause) {
    cause.place == CausePlace::kPath ? void(add(cause.port, cause.peer)) : test(cause);
  }
  void probe_silent_paths();
  void repeat(const Flow& flow) {
    if (add(flow.from, flow.to)) round_.flows.back().label = flow.label;
  }
  std::optional<Round> round() {
    if (round_.flows.empty()) return std::nullopt;
    return std::move(round_);
  }

 private:
  // Key by host and rail; by both ends.
  static std::uint64_t key_of(Port port) {
    return static_cast<std::uint64_t>(port.host) << 8 | static_cast<std::uint64_t>(port.rail);
  }
  static std::uint64_t key_of(std::pair<Port, Port> path) {
    return key_of(path.first) << 32 | key_of(path.second);
  }
  static int count(const std::unordered_map<std::uint64_t, int>& map, const auto& of) {
    const auto found = map.find(key_of(of));
    return found == map.end() ? 0 : found->second;
  }
  bool has(Port port) const {
    const std::vector<PortInfo>& ports = hosts_[static_cast<std::size_t>(port.host)].ports;
    return port.rail < static_cast<int>(ports.size()) &&
           ports[static_cast<std::size_t>(port.rail)].usable;
  }
  bool free(Port port) const { return !busy_.contains(port); }
  // Adds the flow if its ports are free and the path needs more samples.
  bool add(Port from, Port to) {
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
  bool suspect(Port port) const {
    return std::ranges::any_of(causes_, [&](const Cause& cause) {
      const Port other{-1, port.rail};
      return cause.place != CausePlace::kRail && cause.place != CausePlace::kFleet &&
             (passes(cause, port, other) || passes(cause, other, port));
    });
  }
  // The free port of the rail without a cause that has the fewest samples with `port`.
  std::optional<Port> partner(Port port, bool sends) const {
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
  bool send_from(Port port) {
    const std::optional<Port> other = partner(port, true);
    return other && add(port, *other);
  }
  bool send_to(Port port) {
    const std::optional<Port> other = partner(port, false);
    return other && add(*other, port);
  }
  // Tests one direction of a port, the less known one first.
  bool either_way(Port port) {
    return count(sent_, port) <= count(received_, port) ? send_from(port) || send_to(port)
                                                        : send_to(port) || send_from(port);
  }
  void test_path(const Cause& cause, bool both_ways);

  const std::vector<FleetHost>& hosts_;
  const std::vector<Cause>& causes_;
  int most_, repeats_;  // concurrent flows; repeats of a path
  Round round_;
  std::unordered_map<std::uint64_t, int> tried_, spoken_, sent_, received_;
  std::map<Port, int> all_sent_, all_received_;
  std::set<Port> busy_;
};

// Tests first whether an end is at fault, by its flows with other partners, then the path again.
void Chooser::test_path(const Cause& cause, bool both_ways) {
  const Port from = cause.port, to = cause.peer;
  const int known = cause.kind == CauseKind::kLoss ? kKnownEndByLoss : kKnownEnd;
  bool added = false;
  if (count(sent_, from) - count(spoken_, std::pair(from, to)) < known) added |= send_from(from);
  if (count(received_, to) - count(spoken_, std::pair(from, to)) < known) added |= send_to(to);
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
      send_from(cause.port);
      return;
    case CausePlace::kReceive:
      send_to(cause.port);
      return;
    case CausePlace::kPort:
      either_way(cause.port);
      if (cause.kind == CauseKind::kSwapped) either_way(cause.peer);
      return;
    case CausePlace::kHostTransmit:
      for (const Port port : ports_of(cause.port.host)) send_from(port);
      return;
    case CausePlace::kHostReceive:
      for (const Port port : ports_of(cause.port.host)) send_to(port);
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
    if (count(sent_, port) == 0 && times < 2 * kMostRepeats) send_from(port);
  for (const auto& [port, times] : all_received_)
    if (count(received_, port) == 0 && times < 2 * kMostRepeats) send_to(port);
}

// Whether a cause that needs no further sample explains slow flows between the two ports. On a
// fabric that is not quiet, colliding flows lose packets as well, so losses explain nothing.
bool is_explained(const std::vector<Cause>& causes, const Thresholds& thresholds, bool quiet,
                  Port from, Port to) {
  return std::ranges::any_of(causes, [&](const Cause& cause) {
    const bool slows = cause.kind == CauseKind::kRate || (quiet && cause.kind == CauseKind::kLoss);
    return (cause.kind == CauseKind::kUnstable || cause.of_flows ||
            (slows && cause.confidence >= thresholds.confidence)) &&
           passes(cause, from, to);
  });
}

// Repeats ways that were slow in the plan's concurrent rounds (labels of a pair, another rail,
// loopback), each alone.
std::optional<Round> ways_again(const std::vector<FleetHost>& hosts, const Samples& samples,
                                const std::vector<Cause>& causes, const Thresholds& thresholds,
                                bool quiet, int most_flows) {
  for (const Probe probe : {Probe::kEntropy, Probe::kCrossRail, Probe::kLoopback}) {
    std::vector<Way> ways = slow_ways(hosts, samples, thresholds, probe);
    std::erase_if(ways, [&](const Way& way) {
      return way.sure || way.enough ||
             is_explained(causes, thresholds, quiet, way.flow.from, way.flow.to);
    });
    if (std::optional<Round> round = look_alone(std::move(ways), samples, most_flows)) return round;
  }
  return {};
}

// Repeats suspected paths, each alone: first with the source port that was slow, then with others.
// `again`: only those that were slow alone.
std::optional<Round> paths_alone(const Samples& samples, const std::vector<Cause>& suspects,
                                 bool again, int most_flows) {
  const Company company(samples);
  std::map<std::pair<Port, Port>, Way> paths;
  for (const Cause& suspect : suspects)
    if (suspect.place == CausePlace::kPath)
      paths[{suspect.port, suspect.peer}].level = suspect.value;
  for (const FlowSample& sample : samples.flows) {
    const Round& round = samples.rounds[static_cast<std::size_t>(sample.round)];
    const auto path = paths.find({sample.flow.from, sample.flow.to});
    if (round.probe != Probe::kRate || path == paths.end()) continue;
    Way& way = path->second;
    const bool same = way.flow.label == sample.flow.label || way.alone > 0;
    way.all = same ? way.all + 1 : 1;
    way.alone += company.alone(sample);
    way.last_s = round.at_s;
    way.flow = {sample.flow.from, sample.flow.to, 1, way.alone > 0 ? 0 : sample.flow.label};
  }
  std::vector<Way> ways;
  for (const auto& [path, way] : paths)
    if (!again || way.alone > 0) ways.push_back(way);
  std::ranges::stable_sort(ways, std::greater{}, &Way::level);
  return look_alone(std::move(ways), samples, most_flows);
}

// Repeats flows that were slow on rails with collisions, with their source ports: alone, only
// those over a bad link are slow again.
std::optional<Round> flows_alone(const std::vector<FleetHost>& hosts, const Samples& samples,
                                 const std::vector<Cause>& causes, const Thresholds& thresholds,
                                 int most_flows) {
  std::vector<Way> ways = slow_ways(hosts, samples, thresholds, Probe::kRate);
  std::set<std::pair<Port, Port>> known;  // paths with another flow that is slow with certainty
  for (const Way& way : ways)
    if (way.sure) known.insert({way.flow.from, way.flow.to});
  std::erase_if(ways, [&](const Way& way) {
    return known.contains({way.flow.from, way.flow.to}) || way.sure || way.enough || way.quiet ||
           std::ranges::any_of(causes, [&](const Cause& cause) {
             // A lossy path may use one bad link of many; continue until its switch is known.
             const bool settled = cause.kind == CauseKind::kLoss && way.lossy
                                      ? cause.of_flows
                                      : cause.kind != CauseKind::kUnstable;
             return settled && passes(cause, way.flow.from, way.flow.to);
           });
  });
  return look_alone(std::move(ways), samples, most_flows);
}

constexpr int kMostLooks = 1000;  // of one path: a sequential test ends by itself

// Samples places that may be bad intermittently, or for some flows, until that is decided.
std::optional<Round> next_looks(const std::vector<FleetHost>& hosts, const Samples& samples,
                                const std::vector<Cause>& causes, const Thresholds& thresholds,
                                int most_flows) {
  const std::vector<Intermittent> places =
      find_intermittent(hosts, samples, thresholds, [&](Port from, Port to) {
        return std::ranges::any_of(causes, [&](const Cause& cause) {
          return cause.kind != CauseKind::kUnstable && cause.confidence >= thresholds.confidence &&
                 passes(cause, from, to);
        });
      });
  std::vector<Cause> open;
  for (const Intermittent& one : places) {
    Cause cause;
    cause.kind = CauseKind::kUnstable;
    cause.place = one.place;
    cause.port = one.port;
    cause.peer = one.peer;
    // An end represents its paths, and a direction its port.
    const auto open_end = [&](const Cause& other) { return passes(other, one.port, one.peer); };
    if (one.place == CausePlace::kPort) continue;
    if (one.place == CausePlace::kPath && std::ranges::any_of(open, open_end)) continue;
    if (!one.named) open.push_back(cause);
  }
  std::vector<Cause> suspects = causes;
  suspects.insert(suspects.end(), open.begin(), open.end());
  for (const std::vector<Cause>& avoided : {suspects, causes}) {
    Chooser chooser(hosts, samples, avoided, Probe::kRate, most_flows, kMostLooks);
    for (const Intermittent& one : places)
      if (one.named)
        for (const Flow& flow : flows_to_repeat(one)) chooser.repeat(flow);
    for (const Cause& cause : open) chooser.look(cause);
    if (std::optional<Round> round = chooser.round()) {
      round->seconds = kLook_s;
      return round;
    }
  }
  return {};
}

// Whether flows of healthy places are often slow on some rail.
bool often_slow(const std::vector<FleetHost>& hosts, const Samples& samples,
                const Thresholds& thresholds) {
  return std::ranges::any_of(rate_observations(hosts, samples, thresholds).chances,
                             [](const Chance& chance) { return chance.alone > 0; });
}

Cause whole_rail(int rail) {
  Cause cause;
  cause.place = CausePlace::kRail;
  cause.port = {0, rail};
  return cause;
}

}  // namespace

std::optional<Round> next_round(const std::vector<FleetHost>& hosts, const Samples& samples,
                                const std::vector<Cause>& causes, const Thresholds& thresholds,
                                int most_flows) {
  if (std::optional<Round> round = loads_again(hosts, samples, thresholds)) return round;
  // Use the probe of the least certain cause that can still be tested, for all its unclear causes.
  std::vector<const Cause*> unclear;
  const auto may_be_none = [&](const Cause& cause) {  // a rate whose interval includes the limit
    return cause.kind == CauseKind::kRate && cause.high >= thresholds.warn_rate * cause.expected;
  };
  for (const Cause& cause : causes)
    if ((cause.confidence < thresholds.confidence || may_be_none(cause)) &&
        cause.samples < kMostSamples)
      unclear.push_back(&cause);
  std::ranges::stable_sort(unclear, {}, [](const Cause* cause) { return cause->confidence; });
  const bool clean =
      clean_at_full_speed(shape_of(hosts), loss_observations(hosts, samples, true), thresholds);
  std::set<Probe> seen;
  for (const Cause* first : unclear) {
    const Probe probe = probe_for(*first, clean);
    if (!seen.insert(probe).second) continue;
    Chooser chooser(hosts, samples, causes, probe, most_flows);
    for (const Cause* cause : unclear)
      if (probe_for(*cause, clean) == probe) chooser.test(*cause);
    if (std::optional<Round> round = chooser.round()) return round;
  }
  std::vector<Cause> slow = suspects_of_rate(hosts, samples, causes, thresholds);
  const bool quiet = !often_slow(hosts, samples, thresholds);
  std::erase_if(slow, [&](const Cause& suspect) {
    return suspect.place == CausePlace::kPath &&
           is_explained(causes, thresholds, quiet, suspect.port, suspect.peer);
  });
  // Slowdowns make all places look bad at times, but one fast sample clears a path: so paths come
  // first.
  if (!quiet) {
    if (std::optional<Round> round = paths_alone(samples, slow, true, most_flows)) return round;
    if (std::optional<Round> round = flows_alone(hosts, samples, causes, thresholds, most_flows))
      return round;
    if (std::optional<Round> round = paths_alone(samples, slow, false, most_flows)) return round;
  }
  if (std::optional<Round> round = next_looks(hosts, samples, causes, thresholds, most_flows))
    return round;
  if (std::optional<Round> round = paths_alone(samples, slow, true, most_flows)) return round;
  if (std::optional<Round> round =
          ways_again(hosts, samples, causes, thresholds, quiet, most_flows))
    return round;
  Chooser paced(hosts, samples, causes, Probe::kLowLoad, most_flows);
  for (const Cause& cause : causes)
    if (cause.load_unclear) paced.test(cause);
  if (std::optional<Round> round = paced.round()) return round;
  Chooser chooser(hosts, samples, causes, Probe::kRate, most_flows);
  chooser.probe_silent_paths();
  if (std::optional<Round> round = chooser.round()) return round;
  for (const OddIncast& odd : odd_incasts(samples, thresholds.confidence)) {
    if (odd.rounds > 1) continue;
    Round again = samples.rounds[static_cast<std::size_t>(odd.round)];
    std::erase_if(again.flows, [&](const Flow& flow) { return flow.to != odd.target; });
    return again;
  }
  Chooser again(hosts, samples, causes, Probe::kRate, most_flows);
  for (const Cause& suspect : slow)
    if (suspect.place != CausePlace::kPath) again.test(suspect);
  if (std::optional<Round> round = again.round()) return round;
  if (std::optional<Round> round = paths_alone(samples, slow, false, most_flows)) return round;
  const std::vector<Cause> suspects = suspects_of_loss(hosts, samples, causes, clean, thresholds);
  Chooser more(hosts, samples, causes, clean ? Probe::kRate : Probe::kLowLoad, most_flows);
  for (const Cause& suspect : suspects) more.test(suspect);
  if (std::optional<Round> round = more.round()) return round;
  if (smallest_rate_cut(hosts, samples, thresholds) <= rate_cut_to_see(thresholds)) return {};
  Chooser everywhere(hosts, samples, causes, Probe::kRate, most_flows);  // noise may hide a fault
  for (int rail = 0; rail < shape_of(hosts).rails; ++rail) everywhere.test(whole_rail(rail));
  return everywhere.round();
}

}  // namespace weft::fabric
