// Extracts rates, latencies, losses and so on from samples. Pure; attributes nothing to places.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "perf/validate/facts/policy.h"
#include "perf/validate/locate/attribution.h"
#include "perf/validate/locate/company.h"
#include "perf/validate/probes/fabric.h"
#include "perf/validate/probes/samples.h"

namespace weft::fabric {

// Flows to ignore, because they cross a place that is known to be broken.
using Ignored = std::function<bool(Port from, Port to)>;
inline bool none_ignored(Port, Port) { return false; }

// Starvation of an end above which a flow measures the tester instead of the network.
inline constexpr double kStarved = 0.05;
bool starved(const FlowSample& sample);
// The share of the time in which no end waited for a core, at least.
double share_without_waits(const FlowSample& sample);
// Whether an end's waits for a core held the stream up: the sender's socket ran dry, or the
// receiver's buffer filled. False for streams whose buffers bridged the waits. If the transport
// does not report this, any starved end counts.
bool held_up(const FlowSample& sample);

Shape shape_of(const std::vector<FleetHost>& hosts);

// Graded observations, as the log of how much worse a flow is than the baseline.
struct Graded {
  std::vector<Observation> observations;
  double sigma = 0;
  double baseline_error = 0;     // error on the rail with the fewest flows
  std::vector<double> baseline;  // by rail: log of a healthy flow's value; 0: no flows
  std::vector<int> flows;        // by rail
  double unit = 1;               // Gb/s of a healthy flow, for rates without a declared rate
  std::vector<Chance> chances;   // of rates, by rail: how often flows of healthy places are bad
  std::vector<const FlowSample*> silent;  // of rates: hidden by waits for a core
};

// Rates as log(expected / rate). Stalled flows are left out (see stood_still()). For a flow with a
// starved end, uses its better windows, which no wait shortened. A flow that was held up counts if
// it is fast anyway, or if it would be slow even without the waits (with that rate); otherwise it
// goes into `silent`.
Graded rate_observations(const std::vector<FleetHost>& hosts, const Samples& samples,
                         const Thresholds& thresholds, const Ignored& ignored = none_ignored);
// Gb/s expected of a flow: the slower port's declared rate; of undeclared ports `unit`.
double expected_gbps(const std::vector<FleetHost>& hosts, Port from, Port to, double unit);

// Whether most ping-pongs had an end that waited for a core. Waits only lengthen pings, so the
// fastest ping of a flow still shows the network's latency.
bool least_tells_latency(const Samples& samples);
// log(latency / 1 us), medians or 99th percentiles, of flows whose ends did not wait; with
// least_tells_latency(), each flow's minimum instead of its median.
Graded latency_observations(const std::vector<FleetHost>& hosts, const Samples& samples, bool p99,
                            const Ignored& ignored = none_ignored);

// Whether the sender's port declares a higher rate than the receiver's. At full speed, such a flow
// fills a queue and loses packets by design, as an incast does.
bool outruns(const std::vector<FleetHost>& hosts, const Flow& flow);
// Retransmits per packet of paced flows or, with `loaded`, of flows at full speed that do not
// outrun their receivers. Starvation of an end loses no packets.
std::vector<Observation> loss_observations(const std::vector<FleetHost>& hosts,
                                           const Samples& samples, bool loaded,
                                           const Ignored& ignored = none_ignored);
bool sends_datagrams(Probe probe);  // over plain interfaces
// Ports, by direction (true: sends), that streams pass and no datagram does: a filter, not a fault
// of the link.
std::set<std::pair<Port, bool>> without_datagrams(const Samples& samples,
                                                  const Ignored& ignored = none_ignored);
// Losses per packet in a healthy fabric.
double background_loss(const Thresholds& thresholds);
// Whether a quarter of the flows at full speed lose no packets, on at least one rail: then full
// speed alone loses none, and such flows show a link's loss as well as paced ones do.
bool clean_at_full_speed(const Shape& shape, const std::vector<Observation>& full,
                         const Thresholds& thresholds);
// Flows through which nothing arrived, not even small packets.
std::vector<Observation> dead_observations(const std::vector<FleetHost>& hosts,
                                           const Samples& samples,
                                           const Ignored& ignored = none_ignored);
// Flows whose packets of the fleet's MTU (by rail; see fleet_mtu) did not arrive.
std::vector<Observation> mtu_observations(const std::vector<FleetHost>& hosts,
                                          const Samples& samples,
                                          const Ignored& ignored = none_ignored);
int fleet_mtu(const std::vector<FleetHost>& hosts, const Samples& samples, int rail);
// Flows whose packets arrived at another port than the one addressed.
std::vector<Observation> stray_observations(const std::vector<FleetHost>& hosts,
                                            const Samples& samples,
                                            const Ignored& ignored = none_ignored);
// Whether the flow transferred next to nothing for 20 ms and more beyond its ends' waits for a
// core, as when a packet, or all acknowledgements, are lost and a timer must expire.
bool waited_for_timer(const FlowSample& sample);
// Whether a TCP flow stalled without packet loss, so that it waited for acknowledgments: the fault
// is on the reverse path, from the receiver to the sender.
bool lost_acknowledgements(const FlowSample& sample);
// Whether waited_for_timer(), or the flow moved less than a tenth of its best for at least 60 ms.
bool stood_still(const FlowSample& sample);

}  // namespace weft::fabric
