// Places that look bad, while their flows are too few to name or to dismiss them. Pure.
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

// Ends, and paths between other ends, whose flows are slower than chance makes them and may be
// below warn_rate, and that no cause explains; as causes to test, the slowest first.
std::vector<Cause> suspects_of_rate(const std::vector<FleetHost>& hosts, const Samples& samples,
                                    const std::vector<Cause>& causes, const Thresholds& thresholds);

// Directions of ports that lost packets, too few for a cause, and too many to be dismissed of
// five times fail_loss; as causes to test, the least clear first. `clean`: full speed costs no
// packets, so that its flows count.
std::vector<Cause> suspects_of_loss(const std::vector<FleetHost>& hosts, const Samples& samples,
                                    const std::vector<Cause>& causes, bool clean,
                                    const Thresholds& thresholds);

// Share of the rate whose loss at any end these samples would show, above the noise that was met; 0
// where waits for a core hid most rates: a cut would have been hidden, too.
double smallest_rate_cut(const std::vector<FleetHost>& hosts, const Samples& samples,
                         const Thresholds& thresholds);
// The largest smallest_rate_cut() with which rates without a fault are known to be sound: somewhat
// more than a warning, since no noise is without end.
double rate_cut_to_see(const Thresholds& thresholds);

// Rounds in which flows meet by intention: what their ports reach otherwise, and which rounds to
// run again, since a bad moment of the fleet is no fault of the network.

// TCP shares a full queue unevenly, and loses packets to find its rate: it is granted as much more.
inline constexpr double kTcpAllowance = 0.20;

// Gb/s that each port sends (true) or receives in flows that have their ports to themselves.
std::map<std::pair<Port, bool>, double> baseline_of_ports(const Samples& samples);

// Latencies on the idle network, to compare those under load with.
class IdleLatencies {
 public:
  explicit IdleLatencies(const Samples& samples);
  // The last p99 between the two ports, in microseconds; the median of all where these were not
  // measured, and 0 without any.
  double p99_us(Port from, Port to) const;

 private:
  std::map<std::pair<Port, Port>, double> of_path_;
  double median_ = 0;
};

// The flows of a round again that fell below the limits, up to twice. Emulated hosts share cores,
// so that there no load is judged.
std::optional<Round> loads_again(const std::vector<FleetHost>& hosts, const Samples& samples,
                                 const Thresholds& thresholds);

}  // namespace weft::fabric
