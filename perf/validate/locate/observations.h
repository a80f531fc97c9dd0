// What samples say of one quantity each: rates, latencies, losses, and so on. Pure; blames no
// place.
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

// Flows that speak for nothing, as the place that they pass is known to be broken.
using Ignored = std::function<bool(Port from, Port to)>;
inline bool none_ignored(Port, Port) { return false; }

// A waiting share of an end from which the flow says how slow the tester is, not the network.
inline constexpr double kStarved = 0.05;
bool starved(const FlowSample& sample);
// Whether an end's waits for a core held the stream up: the sender's socket ran dry, or the
// receiver's buffer filled. False of streams whose buffers bridged the waits. A transport that does
// not tell is held up where an end is starved.
bool held_up(const FlowSample& sample);

Shape shape_of(const std::vector<FleetHost>& hosts);

// Graded observations: the log of how much worse than the baseline a flow is, and the baseline.
struct Graded {
  std::vector<Observation> observations;
  double sigma = 0;
  double baseline_error = 0;     // of the rail with fewest flows
  std::vector<double> baseline;  // by rail: the log of a healthy flow's value; 0: no flows
  std::vector<int> flows;        // by rail
  double unit = 1;               // of rates without a declared rate: Gb/s of a healthy flow
  std::vector<Chance> chances;   // of rates, by rail: how often flows of healthy places are bad
  std::vector<const FlowSample*> silent;  // of rates: hidden by waits for a core
};

// Rates as log(expected / rate). Flows that stood still for a while are left out (see
// still_observations). Of flows with a starved end, the rate is that of the better windows, which
// no wait cut short. Of flows that were held up, a fast one dismisses suspects, and one that would
// be slow had no end waited accuses, with that rate; the others are silent.
Graded rate_observations(const std::vector<FleetHost>& hosts, const Samples& samples,
                         const Thresholds& thresholds, const Ignored& ignored = none_ignored);
// Gb/s expected of a flow: the slower port's declared rate; of undeclared ports `unit`.
double expected_gbps(const std::vector<FleetHost>& hosts, Port from, Port to, double unit);

// Whether most ping-pongs had an end that waited for a core. Waits only lengthen pings, so that the
// fastest ping of a flow still tells what the network adds.
bool least_tells_latency(const Samples& samples);
// log(latency / 1 us), medians or 99th percentiles, of flows whose ends did not wait; instead of
// medians the least of each flow where least_tells_latency().
Graded latency_observations(const std::vector<FleetHost>& hosts, const Samples& samples, bool p99,
                            const Ignored& ignored = none_ignored);

// Whether the sender's port declares more than the receiver's. At full speed such a flow fills a
// queue and loses packets there by design, as many senders of one port do.
bool outruns(const std::vector<FleetHost>& hosts, const Flow& flow);
// Retransmits of packets: of paced flows, or of those at full speed that do not outrun their
// receivers. A starved end loses no packets.
std::vector<Observation> loss_observations(const std::vector<FleetHost>& hosts,
                                           const Samples& samples, bool loaded,
                                           const Ignored& ignored = none_ignored);
// Slow flows at full speed that may have met others on a link, where flows meet.
std::set<const FlowSample*> met_others(const std::vector<FleetHost>& hosts, const Samples& samples,
                                       const Thresholds& thresholds);
// Drops the losses of such flows: what is lost where flows meet is lost by design.
void drop_met(const std::vector<FleetHost>& hosts, const Samples& samples,
              const Thresholds& thresholds, std::vector<Observation>& losses);
bool sends_datagrams(Probe probe);  // over plain interfaces
// Ports, by direction (true: sends), that streams pass and no datagram does: a filter, not a fault
// of the link.
std::set<std::pair<Port, bool>> without_datagrams(const Samples& samples,
                                                  const Ignored& ignored = none_ignored);
// Losses per packet in a healthy fabric.
double background_loss(const Thresholds& thresholds);
// Whether a quarter of the flows at full speed lose no packets, on one rail at least: then full
// speed alone costs none, and such a flow tells as much of a link's loss as a paced one.
bool clean_at_full_speed(const Shape& shape, const std::vector<Observation>& full,
                         const Thresholds& thresholds);
// A port that lost far more packets than others in each incast of which it was the target.
struct OddIncast {
  Port target;
  int round = 0, rounds = 0;  // the first; how many
  double lost = 0, packets = 0;
  double baseline = 0;  // losses per packet at the other targets
};
// TCP loses packets by design where many senders meet, and alike at every port.
std::vector<OddIncast> odd_incasts(const Samples& samples, double confidence);

// Flows through which nothing came, not even small packets.
std::vector<Observation> dead_observations(const std::vector<FleetHost>& hosts,
                                           const Samples& samples,
                                           const Ignored& ignored = none_ignored);
// Flows whose packets of the fleet's MTU (by rail; see fleet_mtu) did not arrive.
std::vector<Observation> mtu_observations(const std::vector<FleetHost>& hosts,
                                          const Samples& samples,
                                          const Ignored& ignored = none_ignored);
int fleet_mtu(const std::vector<FleetHost>& hosts, const Samples& samples, int rail);
// Flows whose packets came in at another port than the one they were sent to.
std::vector<Observation> stray_observations(const std::vector<FleetHost>& hosts,
                                            const Samples& samples,
                                            const Ignored& ignored = none_ignored);
// Whether the flow moved next to nothing for 20 ms and more beyond its ends' waits for a core, as
// where a packet, or all acknowledgements, are lost and a timer has to end.
bool waited_for_timer(const FlowSample& sample);
// Whether nothing came in the last window, though the ends had their cores.
bool ended_still(const FlowSample& sample);
// Whether it did, or moved less than a tenth of its best for 60 ms and more.
bool stood_still(const FlowSample& sample);

}  // namespace weft::fabric
