// What the files of this room share: walks over hosts and ports, places, what kind of device a port
// is, and the rows of each family.
#pragma once

#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "perf/validate/checks/registry.h"

namespace weft::fabric {

// Rows of the families, in the order of the registry.
std::span<const Check> link_checks();
std::span<const Check> lane_checks();
std::span<const Check> state_checks();
std::span<const Check> bit_checks();
std::span<const Check> flow_control_checks();
std::span<const Check> congestion_checks();
std::span<const Check> lossless_checks();
std::span<const Check> addressing_checks();
std::span<const Check> hardware_checks();
std::span<const Check> host_checks();
std::span<const Check> declared_checks();
std::span<const Check> tester_checks();
std::span<const Check> false_report_checks();
std::span<const Check> reach_checks();
std::span<const Check> rate_checks();
std::span<const Check> loss_checks();
std::span<const Check> load_checks();
std::span<const Check> way_checks();

// Findings at one port or host; empty: the check does not apply there.
using Outcome = std::optional<std::vector<Finding>>;

Finding make_finding(const Check& check, Where where);
Finding make_unknown(const Check& check, Where where);
Finding text_finding(const Check& check, Where where, std::string text, std::string expected);

Where at_host(const std::string& host, Direction direction = Direction::kBoth);
Where at_port(const HostFacts& host, const PortFacts& port, Direction direction = Direction::kBoth);
Where at_port(const Observed& observed, Port port, Direction direction = Direction::kBoth);
Where at_path(const Observed& observed, Port from, Port to);
Where at_rail(int rail);

// Expected of evidence for which nothing is expected.
inline constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();

Evidence text_evidence(std::string name, const Where& where, std::string text);
Evidence number_evidence(std::string name, const Where& where, double value, double expected,
                         Unit unit);

// Of a port of the fleet; nullptr: nothing is known of that port.
const HostFacts* host_of(const Observed& observed, int host);
const PortFacts* port_of(const Observed& observed, Port port);
std::string host_name(const Observed& observed, int host);
// Gb/s of payload that the port is expected to carry, as the fleet's hosts have it: declared, else
// advertised, less the headers of its packets; 0: not known.
double expected_gbps(const Observed& observed, Port port);
double expected_gbps(const Observed& observed, const Flow& flow);  // of the slower end

bool excluded(const Observed& observed, const PortFacts& port);
bool is_mlx5(const PortFacts& port);
bool is_soft(const PortFacts& port);        // an RDMA device made of software: rxe, siw
bool is_roce(const PortFacts& port);        // RDMA hardware over Ethernet
bool is_infiniband(const PortFacts& port);  // by the link layer
// The policy has the say; else RDMA ports must not lose a packet, and plain interfaces may.
bool must_be_lossless(const Observed& observed, const PortFacts& port);
// The host may use cores, but none near the port: its rates are those of the path between sockets.
bool has_remote_cores(const HostFacts& host, const PortFacts& port);

// Of the time, how much the host's tester stood still though it had a core; 0: not known.
double stopped_share(const HostFacts& host);

bool over_tcp(const FlowSample& sample);
bool is_flooding(Probe probe);  // several flows meet at a port by intention

std::vector<const FlowSample*> flows_of(const Observed& observed, Probe probe);

// What each port reaches in flows that have their ports to themselves.
class Alone {
 public:
  explicit Alone(const Observed& observed);
  // Gb/s that a port can send or receive; 0: not known.
  double gbps(Port port, bool sends) const;

 private:
  const Observed& observed_;
  std::map<std::pair<Port, bool>, double> baseline_;
};

struct Graded;  // see observations.h
// The rates that the localization uses, of all places.
Graded rates_of(const Observed& observed);

// Returns a finding for each rail that failed, or for each host that all outages of a rail share.
std::vector<Finding> judge_outages(std::span<const RailOutage> outages);
// Those of them that belong to a row.
Judged outages_of_check(const Check& check, const Observed& observed);

// Adds what was found at one place.
void add_outcome(Outcome outcome, Judged& all);

// Runs `judge(host, port)` on all ports but the excluded ones and those that a host lacks.
template <typename Judge>
Judged each_port(const Observed& observed, Judge judge) {
  Judged all;
  for (const HostFacts& host : observed.facts.hosts)
    for (const PortFacts& port : host.ports) {
      if (excluded(observed, port) || port.absent) continue;
      add_outcome(judge(host, port), all);
    }
  return all;
}

// Runs `judge(host)` on all hosts.
template <typename Judge>
Judged each_host(const Observed& observed, Judge judge) {
  Judged all;
  for (const HostFacts& host : observed.facts.hosts) add_outcome(judge(host), all);
  return all;
}

// A value that should be the same at all places of a group.
struct Setting {
  Where where;
  std::string value;
};
// A finding for each place whose value is not the declared one, or, without a declaration, not the
// one that more than half have. Where no value has more than half, one finding at `group` whose
// evidence `name` has the places and values.
std::vector<Finding> unlike(const Check& check, const std::vector<Setting>& group,
                            const std::optional<std::string>& declared, const Where& all,
                            std::string_view name);

// The place of a cause, and a finding made of it.
Where place_of(const Observed& observed, const Cause& cause);
Finding finding_from(const Check& check, const Observed& observed, const Cause& cause, Unit unit);
// Marks findings that others explain, and gives the others their numbers as evidence.
void explain(std::vector<Finding>& findings);

}  // namespace weft::fabric
