// Extracts rates, latencies, losses and so on from samples, without attribution. Pure.
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
// Returns a lower bound on the share of time in which no end waited for a core.
double share_without_waits(const FlowSample& sample);
// Returns whether an end's waits for a core slowed the stream: the sender's socket was empty, or
// the receiver's buffer full. False if buffers hid the waits. If the transport does not report the
// state of buffers, true if an end is starved.
bool held_up(const FlowSample& sample);

Shape shape_of(const std::vector<FleetHost>& hosts);

// Continuous observations (rates, latencies): the log of how much worse a flow is than the
// baseline.
struct Graded {
  std::vector<Observation> observations;
  double sigma = 0;
  // Standard deviation of the baseline of the rail with the fewest flows.
  double baseline_error = 0;
  std::vector<double> baseline;  // log of a healthy flow's value, by rail; 0: no flows
  std::vector<int> flows;        // by rail
  double unit = 1;               // Gb/s of a healthy flow, for rates without a declared rate
  std::vector<Chance> chances;   // for rates, by rail: how often flows of healthy places are bad
  std::vector<const FlowSample*> silent;  // flows whose rates were hidden by waits for a core
};

// Returns rates as log(expected / rate). Stalled flows are left out (see stood_still()). For a flow
// with a starved end, uses its better windows, which no wait shortened. A held_up() flow is used if
// it is fast anyway; if its rate without waits is slow, too, that rate is used; other held_up()
// flows are `silent`.
Graded rate_observations(const std::vector<FleetHost>& hosts, const Samples& samples,
                         const Thresholds& thresholds, const Ignored& ignored = none_ignored);
// Returns the Gb/s expected of a flow: the slower port's declared rate; for undeclared ports,
// `unit`.
double expected_gbps(const std::vector<FleetHost>& hosts, Port from, Port to, double unit);

// Returns whether most ping-pongs had an end that waited for a core. Waits only lengthen pings, so
// the fastest ping of a flow still shows the network's latency.
bool least_tells_latency(const Samples& samples);
// Returns log(latency / 1 us), medians or 99th percentiles, of flows whose ends did not wait; with
// least_tells_latency(), each flow's minimum instead of its median.
Graded latency_observations(const std::vector<FleetHost>& hosts, const Samples& samples, bool p99,
                            const Ignored& ignored = none_ignored);

// Returns whether the sender's port declares a higher rate than the receiver's. At full speed, such
// a flow fills a queue and loses packets by design, as an incast does.
bool outruns(const std::vector<FleetHost>& hosts, const Flow& flow);
// Returns the retransmits per packet of paced flows or, with `loaded`, of flows at full speed that
// do not outrun their receivers. Starvation of an end loses no packets.
std::vector<Observation> loss_observations(const std::vector<FleetHost>& hosts,
                                           const Samples& samples, bool loaded,
                                           const Ignored& ignored = none_ignored);
bool sends_datagrams(Probe probe);  // by probes over plain interfaces
// Returns ports, by direction (true: sends), that pass streams but no datagrams: a filter, not a
// fault of the link.
std::set<std::pair<Port, bool>> without_datagrams(const Samples& samples,
                                                  const Ignored& ignored = none_ignored);
// Returns the losses per packet in a healthy fabric.
double background_loss(const Thresholds& thresholds);
// Returns whether a quarter of the flows at full speed lose no packets, on at least one rail: then
// full speed alone causes no losses, and losses of such flows are used like losses of paced flows.
bool clean_at_full_speed(const Shape& shape, const std::vector<Observation>& full,
                         const Thresholds& thresholds);
// Returns flows through which nothing arrived, not even small packets.
std::vector<Observation> dead_observations(const std::vector<FleetHost>& hosts,
                                           const Samples& samples,
                                           const Ignored& ignored = none_ignored);
// Returns flows whose packets of the fleet's MTU (by rail; see fleet_mtu) did not arrive.
std::vector<Observation> mtu_observations(const std::vector<FleetHost>& hosts,
                                          const Samples& samples,
                                          const Ignored& ignored = none_ignored);
int fleet_mtu(const std::vector<FleetHost>& hosts, const Samples& samples, int rail);
// Returns flows whose packets arrived at a port to which they were not addressed.
std::vector<Observation> stray_observations(const std::vector<FleetHost>& hosts,
                                            const Samples& samples,
                                            const Ignored& ignored = none_ignored);
// Returns whether the flow transferred almost nothing for at least 20 ms in addition to waits for a
// core: a retransmission timer ran after a loss of a packet or of all acknowledgments.
bool waited_for_timer(const FlowSample& sample);
// Returns whether a TCP flow stalled without packet loss, so that it waited for acknowledgments:
// the fault is on the reverse path, from the receiver to the sender.
bool lost_acknowledgements(const FlowSample& sample);
// Returns whether waited_for_timer(), or the flow moved less than a tenth of its best for at least
// 60 ms.
bool stood_still(const FlowSample& sample);

}  // namespace weft::fabric
