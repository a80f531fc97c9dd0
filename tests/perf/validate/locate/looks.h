// Hand-made samples: flows at full speed on one rail, and looks at their ends.
#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "perf/validate/probes/fabric.h"
#include "perf/validate/probes/matchings.h"
#include "perf/validate/probes/samples.h"

namespace weft::fabric {

inline std::vector<FleetHost> fleet_of(int hosts) {
  std::vector<FleetHost> fleet;
  for (int h = 0; h < hosts; ++h)
    fleet.push_back({"h" + std::to_string(h), false, 4, {{"eth", std::to_string(h), 100, 4096}}});
  return fleet;
}

// The share of its rate that a flow gets at a time.
using Share = std::function<double(double at_s, const Flow& flow)>;

// Repeats one flow in a round after the last one.
inline FlowSample& add_look(Samples& samples, const Flow& flow, double gbps) {
  Round round{Probe::kRate, {flow}, 0.2};
  round.at_s = samples.rounds.empty() ? 0 : samples.rounds.back().at_s + 0.25;
  samples.rounds.push_back(round);
  FlowSample& sample = samples.flows.emplace_back();
  sample.round = static_cast<int>(samples.rounds.size()) - 1;
  sample.flow = flow;
  sample.window_gbps.assign(9, gbps);
  sample.window_s = 0.02;
  return sample;
}

// `rounds` random matchings, one each quarter of a second, each in both directions.
inline Samples looks(int hosts, int rounds, const Share& share, std::uint64_t seed = 1) {
  std::mt19937_64 random(seed);
  std::normal_distribution<> noise(1, 0.01);
  Samples samples;
  int label = 100;
  for (int r = 0; r < rounds; ++r)
    for (const bool back : {false, true}) {
      Round round{Probe::kRate, {}, 0.2};
      round.at_s = 0.25 * static_cast<double>(samples.rounds.size());
      const Matching matching = random_matchings(hosts, 1, random).front();
      for (const auto& [a, b] : matching) {
        FlowSample sample;
        sample.round = static_cast<int>(samples.rounds.size());
        sample.flow = {{back ? b : a, 0}, {back ? a : b, 0}, 1, label++};
        sample.window_gbps.assign(9, 100 * noise(random) * share(round.at_s, sample.flow));
        sample.window_s = 0.02;
        samples.flows.push_back(sample);
      }
      samples.rounds.push_back(round);
    }
  return samples;
}

// The share of lost packets of a flow at a time.
using Lost = std::function<double(double at_s, const Flow& flow)>;
inline constexpr std::uint64_t kPacketsOfALook = 3000;

inline void lose(const Lost& lost, const Samples& samples, FlowSample& sample) {
  const double at_s = samples.rounds[static_cast<std::size_t>(sample.round)].at_s;
  sample.packets = kPacketsOfALook;
  sample.retransmits =
      static_cast<std::uint64_t>(static_cast<double>(kPacketsOfALook) * lost(at_s, sample.flow));
}

inline void lose(const Lost& lost, Samples& samples) {
  for (FlowSample& sample : samples.flows) lose(lost, samples, sample);
}

}  // namespace weft::fabric
