// All results of a `weft validate` run; every report format is generated from this struct.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "perf/validate/checks/finding.h"
#include "perf/validate/checks/registry.h"
#include "perf/validate/facts/facts.h"
#include "perf/validate/facts/policy.h"
#include "perf/validate/locate/cause.h"
#include "perf/validate/probes/fabric.h"
#include "perf/validate/probes/plan.h"
#include "perf/validate/probes/samples.h"

namespace weft::fabric {

// Measurements of one port. Rates are medians over its kRate flows; a flow that did not arrive has
// rate 0. Latencies are medians over the kLatency flows that the port sends.
struct PortNumbers {
  Port port;
  std::string host, device;
  std::optional<double> expected_gbps;  // expected payload rate
  std::optional<double> transmit_gbps, receive_gbps;
  std::optional<double> lowest_gbps;  // lowest rate over all windows of flows that arrived
  std::optional<double> p50_us, p99_us, p999_us;
  // Retransmits per packet: of packets sent by the port, and of packets sent to the port. Over TCP,
  // they include retransmits due to congestion.
  std::optional<double> sent_lost, received_lost;
};

struct Report {
  std::string schema = "weft.validate/3";
  std::string started;  // ISO 8601, UTC
  std::string version;
  double seconds = 0, budget_s = 0;
  bool emulated = false;  // hosts share a kernel: rates differ from a real fabric's
  bool simulated = false;
  std::string transport;     // transport of the probes: "tcp", "verbs"
  double declared_gbps = 0;  // rate of a rail, by --rail-gbps; 0: not declared
  int ranks = 0, rails = 0;
  int streams = 1;  // TCP connections or queue pairs per flow, enough to fill a port
  FleetFacts facts;
  Policy policy;
  std::vector<FleetHost> hosts;
  Plan plan;
  Samples samples;
  // Stored rows of a report read from a file; empty: computed from the samples.
  std::vector<PortNumbers> ports;
  std::vector<Cause> causes;
  std::vector<CollectiveResult> collectives;
  Judgement judgement;
  std::vector<Drift> drift;
  std::string baseline;  // file of the baseline; empty: no baseline
  // Why the run was not stored as a baseline; empty: stored, or not requested.
  std::string baseline_note;
  std::string failure;  // failure of the job, verbatim; empty: none
  Verdict verdict = Verdict::kUnknown;
};

struct TextOptions {
  bool verbose = false, colour = false;
  int columns = 100;  // at least 40
};
// Returns one screen of at most 40 lines: verdict, ordered causes, and the coverage.
std::string to_text(const Report& report, const TextOptions& options);
// Numbers have five digits; unmeasured values are null. `samples`: includes all flows and causes.
nlohmann::ordered_json to_json(const Report& report, bool samples = false);
std::string to_html(const Report& report);        // self-contained, offline, light and dark
std::string to_prometheus(const Report& report);  // textfile collector; absent values omitted

// Returns the file of --json: to_json() with one line per finding, port, host and flow. Invalid
// UTF-8 is replaced.
std::string json_text(const Report& report, bool samples = false);

// Reads an earlier run's verdict, findings, plan, policy, hosts and ports. Accepts weft.validate/3
// and /2. Throws Error naming the field that is missing or of the wrong type.
Report report_from_json(const nlohmann::ordered_json& json);

// Reads a file of --json. Throws Error naming the file and the problem.
Report read_report(const std::string& path);

// Returns one line for people: "h3 rail 1 (mlx5_1) sends at 187 of 392 Gb/s".
std::string in_words(const Finding& finding);

}  // namespace weft::fabric
