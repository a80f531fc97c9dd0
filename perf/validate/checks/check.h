// Shared by the files of this folder: iteration over hosts and ports, places, device kinds, and the
// rows of each family.
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

// The rows of each family of checks, in registry order.
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

// The findings at one port or host; nullopt: the check does not apply.
using Outcome = std::optional<std::vector<Finding>>;

Finding make_finding(const Check& check, Where where);
Finding make_unknown(const Check& check, Where where);
Finding text_finding(const Check& check, Where where, std::string text, std::string expected);

Where at_host(const std::string& host, Direction direction = Direction::kBoth);
Where at_port(const HostFacts& host, const PortFacts& port, Direction direction = Direction::kBoth);
Where at_port(const Observed& observed, Port port, Direction direction = Direction::kBoth);
Where at_path(const Observed& observed, Port from, Port to);
Where at_rail(int rail);

// Value of Evidence::expected if nothing is expected.
inline constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();

// Sets a finding's value and the expected value.
void set_number(Finding& finding, Unit unit, double value, double expected);

// Adds evidence at the place of the finding.
void add_number(Finding& finding, std::string name, double value, Unit unit,
                double expected = kNoNumber);
void add_text(Finding& finding, std::string name, std::string text);
template <typename Number>
void add_count(Finding& finding, std::string name, Number count) {
  add_number(finding, std::move(name), static_cast<double>(count), Unit::kCount);
}

Evidence text_evidence(std::string name, const Where& where, std::string text);
Evidence number_evidence(std::string name, const Where& where, double value, double expected,
                         Unit unit);

// Returns the facts of a host or port of the fleet; nullptr: none.
const HostFacts* host_of(const Observed& observed, int host);
const PortFacts* port_of(const Observed& observed, Port port);
std::string host_name(const Observed& observed, int host);
// Returns the expected payload rate of the port in Gb/s: declared, or else advertised, minus packet
// headers; 0: unknown.
double expected_gbps(const Observed& observed, Port port);
// Returns the rate of the slower end.
double expected_gbps(const Observed& observed, const Flow& flow);

bool excluded(const Observed& observed, const PortFacts& port);
bool is_mlx5(const PortFacts& port);
// True for an RDMA device emulated in software: rxe, siw.
bool is_soft(const PortFacts& port);
bool is_roce(const PortFacts& port);        // true for RDMA hardware over Ethernet
bool is_infiniband(const PortFacts& port);  // decides by the link layer
bool is_mlx5_roce(const PortFacts& port);
// Returns whether the port must not lose packets: as the policy says; by default, only RDMA ports
// must not.
bool must_be_lossless(const Observed& observed, const PortFacts& port);
// Returns whether all cores that the host may use are far from the port, so that rates are lower.
bool has_remote_cores(const HostFacts& host, const PortFacts& port);

// Returns the severity of a loss where packets may be lost; `low`: lower bound of the losses per
// packet.
Severity severity_of_loss(const Thresholds& limits, double low);

// Returns the fraction of the time for which the host's tester was stopped; 0: unknown.
double stopped_share(const HostFacts& host);

bool over_tcp(const FlowSample& sample);
bool is_flooding(Probe probe);  // true if several flows intentionally share a port

std::vector<const FlowSample*> flows_of(const Observed& observed, Probe probe);

// The rate of each port, from flows whose ports carry no other flow.
class Alone {
 public:
  explicit Alone(const Observed& observed);
  // Returns the Gb/s that a port can send or receive; 0: unknown.
  double gbps(Port port, bool sends) const;

 private:
  const Observed& observed_;
  std::map<std::pair<Port, bool>, double> baseline_;
};

struct Graded;  // see observations.h
// Returns the rates that localization uses, without ignored places.
Graded rates_of(const Observed& observed);

// Returns a finding for each failed rail, or for each host that all outages of a rail involve.
std::vector<Finding> judge_outages(std::span<const RailOutage> outages);
// Returns findings for the job's outages that belong to `check`.
Judged outages_of_check(const Check& check, const Observed& observed);

// Adds the outcome of one host or port.
void add_outcome(Outcome outcome, Judged& all);

// Runs `judge(host, port)` on all ports that exist and are not excluded.
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

// Returns the largest value that at least half of the job's ports share; 0 if there is none.
template <typename Of>
double baseline_of(const Observed& observed, const Of& of) {
  std::map<double, std::size_t> holders;
  std::size_t all = 0;
  for (const HostFacts& host : observed.facts.hosts)
    for (const PortFacts& port : host.ports)
      if (const double value = of(port); value > 0 && !excluded(observed, port)) {
        ++holders[value];
        ++all;
      }
  double baseline = 0;
  for (const auto& [value, number] : holders)
    if (2 * number >= all) baseline = value;
  return baseline;
}

// A value that should be the same at all places of a group.
struct Setting {
  Where where;
  std::string value;
};
// Returns a finding for each place whose value differs from the declared value or, if none is
// declared, from the majority. Without a majority, returns one finding at `all`; its evidence
// `name` lists the places and values.
std::vector<Finding> unlike(const Check& check, const std::vector<Setting>& group,
                            const std::optional<std::string>& declared, const Where& all,
                            std::string_view name);

// Calls unlike() for the ports of each rail.
using SettingsOfRails = std::map<int, std::vector<Setting>>;
std::vector<Finding> unlike_on_rails(const Check& check, const SettingsOfRails& rails,
                                     const std::optional<std::string>& declared,
                                     std::string_view name);

// The next two functions return the place of a cause, and a finding for the cause.
Where place_of(const Observed& observed, const Cause& cause);
Finding finding_from(const Check& check, const Observed& observed, const Cause& cause, Unit unit);
// Marks each finding that another finding explains, and adds the numbers of the former to the
// evidence of the latter.
void explain(std::vector<Finding>& findings);

}  // namespace weft::fabric
