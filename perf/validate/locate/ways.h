// Ways of flows: by a source port or label of a pair, over another rail, or by loopback. A way that
// was slow next to other flows may only have collided, so it is measured again alone. Pure.
#pragma once

#include <optional>
#include <vector>

#include "perf/validate/facts/policy.h"
#include "perf/validate/locate/cause.h"
#include "perf/validate/locate/company.h"
#include "perf/validate/locate/intermittent.h"
#include "perf/validate/locate/observations.h"
#include "perf/validate/probes/fabric.h"
#include "perf/validate/probes/samples.h"

namespace weft::fabric {

// Returns the losses per packet of a flow; 0 if packets are not counted.
double share_lost(const FlowSample& sample);
// Returns the losses per packet that three of four flows at full speed do not exceed: TCP's own
// losses.
double loss_of_full_speed(const std::vector<FleetHost>& hosts, const Samples& samples);
// Returns the losses per packet above which a flow is lossy, beyond the losses at full speed.
double lossy_share(double of_full_speed, const Thresholds& thresholds);

// A loopback way is slow below this fraction of the best loopback rate; cards and slots differ.
inline constexpr double kLeastLoopback = 0.6;

// A way with only slow or lossy samples.
struct Way {
  Probe probe = Probe::kRate;
  Flow flow;            // ends and label of the way
  double level = 0;     // log(baseline / rate) in the best sample
  int all = 0;          // samples
  int alone = 0;        // samples without another flow on its rails
  double last_s = 0;    // start time of the last sample
  double lost = 0;      // losses per packet
  bool lossy = false;   // loses packets in every sample
  bool sure = false;    // certain: no healthy way has these samples
  bool quiet = false;   // healthy ways are rarely slow on its rail
  bool enough = false;  // needs no more samples: many ways of its rail were fast alone or sure
};

// Returns slow ways of this probe, slowest first; for kRate: labeled flows, first those that lose
// packets at full rate.
std::vector<Way> slow_ways(const std::vector<FleetHost>& hosts, const Samples& samples,
                           const Thresholds& thresholds, Probe probe);

// Returns a round with the ways that most need another sample, about one per rail; nullopt without
// ways.
std::optional<Round> look_alone(std::vector<Way> ways, const Samples& samples, int most_flows);

// Returns causes that flows share. For flows that are certainly slow, of kind kUnstable: a path, a
// port, or the ports behind one switch. For flows that lose packets in every sample, of kind kLoss:
// a port or the ports behind one switch.
std::vector<Cause> causes_of_ways(const std::vector<FleetHost>& hosts, const Samples& samples,
                                  const Thresholds& thresholds);

// Whether bad samples of the place depend on time or on the flow, decided by repeats of the same
// source ports. kUnknown: too few repeats.
enum class Bound { kUnknown, kTime, kFlows };
Bound bound_of(const Intermittent& place);
std::vector<Flow> flows_to_repeat(
    const Intermittent& place);  // whose repeats would decide; empty: already decided

}  // namespace weft::fabric
