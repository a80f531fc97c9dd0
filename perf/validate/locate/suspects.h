// Places that look bad but have too few flows to be named or ruled out. Pure.
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "perf/validate/facts/policy.h"
#include "perf/validate/locate/cause.h"
#include "perf/validate/probes/fabric.h"
#include "perf/validate/probes/samples.h"

namespace weft::fabric {

// Returns ends, and paths between other ends, whose flows are slower than chance explains, may be
// below warn_rate, and have no cause; as causes to test, slowest first.
std::vector<Cause> suspects_of_rate(const std::vector<FleetHost>& hosts, const Samples& samples,
                                    const std::vector<Cause>& causes, const Thresholds& thresholds);

// Returns directions of ports with losses too few for a cause, but too many to rule out five times
// fail_loss; as causes to test, highest loss first. `clean`: full speed alone loses no packets, so
// flows at full speed are used, too.
std::vector<Cause> suspects_of_loss(const std::vector<FleetHost>& hosts, const Samples& samples,
                                    const std::vector<Cause>& causes, bool clean,
                                    const Thresholds& thresholds);

// Returns the smallest rate cut at any end that these samples would show above the measured noise;
// 0 if waits for a core hid most rates.
double smallest_rate_cut(const std::vector<FleetHost>& hosts, const Samples& samples,
                         const Thresholds& thresholds);
// Returns the largest smallest_rate_cut() at which rates without a cause are treated as healthy:
// slightly more than a warning, because there is always noise.
double rate_cut_to_see(const Thresholds& thresholds);

// Rounds with intended congestion: the normal rate of each port, and the rounds to repeat.

// Limits are lowered for TCP, which shares a full queue unevenly and loses packets by design.
inline constexpr double kTcpAllowance = 0.20;

// Returns the Gb/s that each port sends (true) or receives in flows whose ports carry no other
// flow.
std::map<std::pair<Port, bool>, double> baseline_of_ports(const Samples& samples);

// A port that lost far more packets than others in each incast to it.
struct OddIncast {
  Port target;
  int round = 0, rounds = 0;  // the first round with the loss, and the number of such rounds
  double lost = 0, packets = 0;
  double baseline = 0;  // losses per packet at the other targets of incasts
};
// TCP loses packets in incasts by design, but at about the same rate on every port.
std::vector<OddIncast> odd_incasts(const Samples& samples, double confidence);

// Latencies of the idle network, for comparison with those under load.
class IdleLatencies {
 public:
  explicit IdleLatencies(const Samples& samples);
  // Returns the latest p99 between the two ports in microseconds; if not measured, the median over
  // all pairs, and 0 without any.
  double p99_us(Port from, Port to) const;

 private:
  std::map<std::pair<Port, Port>, double> of_path_;
  double median_ = 0;
};

// Repeats the flows of a load round that fell below the limits, up to twice, since a fleet-wide
// slowdown is not a fault of the network. nullopt if hosts are emulated: they share cores, so their
// loads are not judged.
std::optional<Round> loads_again(const std::vector<FleetHost>& hosts, const Samples& samples,
                                 const Thresholds& thresholds);

}  // namespace weft::fabric
