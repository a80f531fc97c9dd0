// Ways that flows take: a source port or label of a pair, another rail, the own host. A way that
// was slow beside other flows may only have met them, so it is looked at again alone. Pure.
#pragma once

#include <optional>
#include <vector>

#include "perf/validate/facts/policy.h"
#include "perf/validate/locate/cause.h"
#include "perf/validate/locate/company.h"
#include "perf/validate/locate/observations.h"
#include "perf/validate/probes/fabric.h"
#include "perf/validate/probes/samples.h"

namespace weft::fabric {

// Losses per packet of a flow; 0 where packets are not counted.
double share_lost(const FlowSample& sample);
// What three of four flows at full speed lose at most, per packet: TCP's own losses.
double loss_of_full_speed(const std::vector<FleetHost>& hosts, const Samples& samples);
// Losses per packet from which a flow is lossy, and not only at full speed.
double lossy_share(double of_full_speed, const Thresholds& thresholds);

// Of the best one: cards and slots turn around differently.
inline constexpr double kLeastLoopback = 0.6;

// A way all of whose looks were slow or lost packets.
struct Way {
  Probe probe = Probe::kRate;
  Flow flow;            // its ends and its label
  double level = 0;     // the log of how much slower than the baseline, at the best look
  int all = 0;          // looks
  int alone = 0;        // of which its flow had its rails to itself
  double last_s = 0;    // when the last look began
  double lost = 0;      // losses per packet
  bool lossy = false;   // it loses packets at every look
  bool sure = false;    // no healthy way has such looks
  bool quiet = false;   // healthy ways are seldom slow on its rail
  bool enough = false;  // its rail is known: many such ways were fast alone, or are sure
};

// Slow ways of this probe, the slowest first; of kRate, flows that have a label, and before the
// slow ones those that lose packets at full rate.
std::vector<Way> slow_ways(const std::vector<FleetHost>& hosts, const Samples& samples,
                           const Thresholds& thresholds, Probe probe);

// The ways that most want another look, one of a rail, as a round; nothing without ways.
std::optional<Round> look_alone(std::vector<Way> ways, const Samples& samples, int most_flows);

// What the ways of flows that are slow for sure share, as causes of kind kUnstable: a path, a port,
// or the ports behind one switch; likewise of kind kLoss, a port or the ports behind one switch,
// what flows share that lose packets at every look.
std::vector<Cause> causes_of_ways(const std::vector<FleetHost>& hosts, const Samples& samples,
                                  const Thresholds& thresholds);

}  // namespace weft::fabric
