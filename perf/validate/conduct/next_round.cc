// Chooses the flows with most information about unclear causes.
#include "perf/validate/conduct/next_round.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "perf/validate/conduct/chooser.h"
#include "perf/validate/locate/causes.h"
#include "perf/validate/locate/intermittent.h"
#include "perf/validate/locate/observations.h"
#include "perf/validate/locate/suspects.h"
#include "perf/validate/locate/ways.h"

namespace weft::fabric {
namespace {

// `clean`: full speed alone causes no losses, so unpaced flows show a bad link soonest.
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

// Returns whether slow flows between the two ports are explained by a cause that needs no more
// samples. A loss explains slow flows only on a quiet fabric: otherwise collisions also lose
// packets.
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

// Repeats suspected paths, each alone: first with the slow flow's source port, then with other
// ports. `again`: only paths that were slow alone.
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

// Repeats slow flows of rails with collisions, each alone with the same source port: only flows
// over a bad link are slow again.
std::optional<Round> flows_alone(const std::vector<FleetHost>& hosts, const Samples& samples,
                                 const std::vector<Cause>& causes, const Thresholds& thresholds,
                                 int most_flows) {
  std::vector<Way> ways = slow_ways(hosts, samples, thresholds, Probe::kRate);
  std::set<std::pair<Port, Port>> known;  // paths with another flow that is certainly slow
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

// Maximum samples of one path; the sequential test usually ends earlier.
constexpr int kMostLooks = 1000;

// Samples places that may be bad intermittently or for some flows, until the test decides.
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

// Returns whether flows of healthy places are often slow on some rail.
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
  // A slowdown can make any place look bad, but one fast sample clears a path: test paths first.
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
