// Measures how many streams fill a port, on any fabric.
#include "perf/validate/probes/fabric.h"

#include <algorithm>
#include <map>
#include <utility>

#include "perf/validate/probes/statistics.h"

namespace weft::fabric {
namespace {

constexpr double kCalibration_s = 0.15;         // per round
constexpr std::size_t kCalibrated = 16;         // flows per round, at most
constexpr std::size_t kRates = 3;               // minimum number of rates per number of streams
constexpr double kFills = 0.95, kAlike = 0.97;  // fractions: of the expected rate; of the best rate
constexpr double kHashed = 0.8;                 // fraction of the flow's best rate
constexpr double kAdds = 1.5;  // rate gain of doubled streams that do not fill a port

// Returns the upper quartile: up to half of the flows may use a faulty rail.
double baseline_of(std::vector<double> rates) { return quantile(rates, 0.75); }

// Pairs of hosts across the fleet, on all rails that both have.
std::vector<Flow> pairs_of(const Fabric& fabric) {
  const std::vector<FleetHost>& fleet = fabric.hosts();
  const std::size_t hosts = fleet.size(), limit = static_cast<std::size_t>(fabric.most_flows());
  const std::size_t most = limit > 0 ? std::min(limit, kCalibrated) : kCalibrated;
  const std::size_t pairs = std::min(most, hosts / 2);
  std::vector<Flow> flows;
  bool more = pairs > 0;
  for (std::size_t turn = 0; std::exchange(more, false); ++turn)
    for (std::size_t i = 0; i < pairs; ++i) {
      const std::size_t from = i * hosts / pairs, to = from + hosts / (2 * pairs);
      const std::size_t rails = std::min(fleet[from].ports.size(), fleet[to].ports.size());
      if (turn >= rails || flows.size() >= most) continue;
      more = true;
      const int rail = static_cast<int>((i + turn) % rails);
      if (!fleet[from].ports[static_cast<std::size_t>(rail)].usable ||
          !fleet[to].ports[static_cast<std::size_t>(rail)].usable)
        continue;
      flows.push_back({{static_cast<int>(from), rail}, {static_cast<int>(to), rail}});
    }
  return flows;
}

double declared_gbps(const Fabric& fabric, const Flow& flow) {
  const auto of = [&](Port port) {
    return fabric.hosts()[static_cast<std::size_t>(port.host)]
        .ports[static_cast<std::size_t>(port.rail)]
        .expected_gbps;
  };
  return std::min(of(flow.from), of(flow.to));
}

}  // namespace

std::vector<int> streams_of(const Round& round, int streams) {
  std::map<std::pair<Port, bool>, int> flows_at;  // by port and whether it sends
  for (const Flow& flow : round.flows) {
    ++flows_at[{flow.from, true}];
    ++flows_at[{flow.to, false}];
  }
  const bool one = round.probe == Probe::kLatency || round.probe == Probe::kEntropy;
  std::vector<int> each;
  for (const Flow& flow : round.flows) {
    const int shared = std::max(flows_at[{flow.from, true}], flows_at[{flow.to, false}]);
    each.push_back(one || flow.victim ? 1 : std::max(1, streams / shared));
  }
  return each;
}

int streams_that_fill(double expected, const std::function<std::vector<double>(int)>& rates_of) {
  const auto fills = [&](double rate) { return expected > 0 && rate >= kFills * expected; };
  std::map<int, std::vector<double>> tried;
  double best = 0;
  int in_vain = 0;
  for (int streams = 1; streams <= kMostStreams; streams *= 2) {
    const std::vector<double> rates = rates_of(streams);
    if (rates.empty()) break;
    tried[streams] = rates;
    if (streams == 1 && fills(std::ranges::max(rates))) return 1;
    const double before = best, baseline = baseline_of(rates);
    best = std::max(best, baseline);
    if (fills(baseline) && std::ranges::min(rates) >= kHashed * expected) break;
    // If hashes spread streams over links, doubling the streams may happen to reach no more links.
    in_vain = kAlike * best < before ? in_vain + 1 : 0;
    if (in_vain == (expected > 0 ? 2 : 1)) break;
  }
  std::vector<double> most;  // best rate of each flow
  for (const auto& [streams, rates] : tried) {
    most.resize(rates.size());
    for (std::size_t i = 0; i < rates.size(); ++i) most[i] = std::max(most[i], rates[i]);
  }
  for (const auto& [streams, rates] : tried)
    for (std::size_t i = 0; i < rates.size(); ++i)
      if (fills(std::ranges::max(rates)) && rates[i] < kHashed * most[i]) return kMostStreams;
  for (const auto& [streams, rates] : tried)
    if (baseline_of(rates) >= kAlike * best) return streams;
  return 1;
}

Streams calibrate(Fabric& fabric) {
  Round round;
  round.seconds = kCalibration_s;
  round.flows = pairs_of(fabric);
  const bool declared = std::ranges::all_of(
      round.flows, [&](const Flow& flow) { return declared_gbps(fabric, flow) > 0; });
  std::map<int, double> reached;  // Gb/s, by streams
  double share = 0;               // fraction of the declared rate, for the last number of streams
  const auto rates_of = [&](int streams) {
    fabric.set_streams(streams);
    std::vector<double> rates, gbps;
    for (std::size_t n = 0; n < kRates && !round.flows.empty(); n += round.flows.size()) {
      std::vector<Flow> alive;  // skip dead links: they have no rate and time out slowly
      for (const FlowSample& sample : fabric.run(round)) {
        if (streams == 1 && !sample.reached) continue;
        alive.push_back(sample.flow);
        gbps.push_back(sample.gbps());
        rates.push_back(declared ? sample.gbps() / declared_gbps(fabric, sample.flow)
                                 : sample.gbps());
      }
      round.flows = alive;
      if (declared && !rates.empty() && std::ranges::max(rates) >= kFills) break;
    }
    if (!rates.empty()) {
      reached[streams] = baseline_of(gbps);
      share = baseline_of(rates);
    }
    return rates;
  };
  Streams found;
  found.of_flow = streams_that_fill(declared ? 1 : 0, rates_of);
  const bool still_more = reached[kMostStreams] >= kAdds * reached[kMostStreams / 2];
  if (declared && reached[kMostStreams] > 0 && share < kFills && still_more)
    found.one_gbps = reached[1];
  // A transient slowdown of all flows in the first round does not justify several streams.
  if (declared && found.of_flow > 1) {
    const std::vector<double> again = rates_of(1);
    if (!again.empty() && std::ranges::max(again) >= kFills) found.of_flow = 1;
  }
  fabric.set_streams(found.of_flow);
  return found;
}

}  // namespace weft::fabric
