// Every row of the registry: one healthy fleet in which the check is silent, and one fault that the
// check must find, at its place.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>

#include "perf/validate/checks/check.h"
#include "perf/validate/checks/fleet.h"
#include "support/process/read_file.h"

namespace weft::fabric::checking {
namespace {

Cause cause_at(CauseKind kind, CausePlace place, Port port, double value, double expected) {
  Cause cause;
  cause.kind = kind;
  cause.place = place;
  cause.port = port;
  cause.value = value;
  cause.expected = expected;
  cause.low = 0.98 * value;
  cause.high = 1.02 * value;
  cause.confidence = 0.97;
  cause.samples = 4;
  return cause;
}

Cause path_cause(CauseKind kind, Port from, Port to, double value, double expected) {
  Cause cause = cause_at(kind, CausePlace::kPath, from, value, expected);
  cause.peer = to;
  return cause;
}

// A fault, and the expected place of the finding with that id.
struct Fault {
  const char* id;
  FleetKind kind;
  void (*inject)(Fleet&);
  PlaceKind place;
  const char* host = "";
  int rail = -1;
  Direction direction = Direction::kBoth;
  Severity severity = Severity::kFail;
  std::set<std::string> also = {};  // ids that follow from the same fault

  friend void PrintTo(const Fault& fault, std::ostream* out) { *out << fault.id; }
};

void lose_of_million(Fleet& fleet, Probe probe, Port port, std::uint64_t events) {
  fleet.each(probe, [&](FlowSample& s) {
    if (s.flow.from != port) return;
    s.packets = 1'000'000;
    s.retransmits = events;
  });
}

using enum FleetKind;
using enum PlaceKind;
using enum Direction;
using enum Severity;

const std::vector<Fault>& faults() {
  static const std::vector<Fault> all = {
      // clang-format off
      {"link-state", kInfiniband, [](Fleet& f) { f.port(2, 1).state = "1: DOWN"; },
       kPort, "h2", 1, kBoth, kFatal},
      {"link-rate", kRoce, [](Fleet& f) { f.port(1, 1).rate_gbps = 200; },
       kPort, "h1", 1, kBoth, kFatal},
      {"link-width", kInfiniband, [](Fleet& f) { f.port(1, 1).width_lanes = 1; }, kPort, "h1", 1},
      {"link-flaps", kPlain, [](Fleet& f) { f.move(3, 0, "net.carrier_changes", 2); },
       kPort, "h3", 0},
      {"bit-errors", kInfiniband, [](Fleet& f) { f.move(1, 0, "ib.symbol_error", 4); },
       kPort, "h1", 0, kReceive},
      {"corrected-bits", kRoce, [](Fleet& f) { f.move(1, 0, "eth.rx_corrected_bits_phy", 9'000'000); },
       kPort, "h1", 0, kReceive, kWarn},
      {"crc-errors", kRoce, [](Fleet& f) { f.move(0, 1, "eth.rx_crc_errors_phy", 12); },
       kPort, "h0", 1, kReceive},
      {"icrc-errors", kRoce, [](Fleet& f) { f.move(0, 1, "hw.rx_icrc_encapsulated", 1); },
       kPort, "h0", 1, kReceive},
      {"pfc-config", kRoce, [](Fleet& f) { f.port(2, 0).pfc_priorities = 0; },
       kPort, "h2", 0},
      {"pause", kRoce, [](Fleet& f) { f.move(1, 1, "eth.tx_prio3_pause_duration", 9'000'000); },
       kPort, "h1", 1, kReceive, kWarn},
      {"xmit-wait", kInfiniband, [](Fleet& f) { f.move(1, 1, "ib.port_xmit_wait", 30'000'000'000); },
       kPort, "h1", 1, kTransmit, kWarn},
      {"pause-storm", kRoce, [](Fleet& f) { f.move(1, 1, "eth.tx_pause_storm_error_events", 1); },
       kPort, "h1", 1, kReceive, kFatal},
      {"class-leak", kRoce, [](Fleet& f) { f.port(3, 0).after["eth.tx_prio3_bytes"].value = 20'000'000'000; },
       kPort, "h3", 0, kTransmit},
      {"ecn-marking", kRoce, [](Fleet& f) {
         for (auto& h : f.facts.hosts) h.ports[0].after["hw.np_ecn_marked_roce_packets"].value = 0;
       }, kPort, "h0", 0, kReceive},
      {"cnp-sent", kRoce, [](Fleet& f) { f.port(0).after["hw.np_cnp_sent"].value = 0; },
       kPort, "h0", 0, kReceive, kFail, {"cnp-handled"}},
      {"cnp-handled", kRoce, [](Fleet& f) { f.port(2).after["hw.rp_cnp_handled"].value = 0; },
       kPort, "h2", 0, kTransmit},
      {"cnp-ignored", kRoce, [](Fleet& f) { f.move(3, 1, "hw.rp_cnp_ignored", 2); },
       kPort, "h3", 1, kTransmit},
      {"dcqcn-config", kRoce, [](Fleet& f) { f.port(3, 1).cc_parameters[0].second = "600"; },
       kPort, "h3", 1},
      {"discards", kRoce, [](Fleet& f) { f.move(2, 1, "eth.rx_prio3_discards", 9); },
       kPort, "h2", 1, kReceive},
      {"retransmits", kSoftRoce, [](Fleet& f) {
         for (int h : {0, 1, 3}) f.move(h, 0, "hw.out_of_seq_request", 30);
         f.move(2, 0, "hw.rcvd_seq_err", 90);
       }, kPort, "h2", 0, kTransmit},
      {"out-of-sequence", kInfiniband, [](Fleet& f) { f.move(1, 1, "hw.out_of_sequence", 50); },
       kPort, "h1", 1, kReceive, kWarn},
      {"timeouts", kInfiniband, [](Fleet& f) { f.move(1, 0, "hw.local_ack_timeout_err", 2); },
       kPort, "h1", 0, kTransmit, kFatal},
      {"rnr", kInfiniband, [](Fleet& f) { f.move(1, 0, "hw.out_of_buffer", 8); },
       kPort, "h1", 0, kReceive, kWarn},
      {"ib-subnet", kInfiniband, [](Fleet& f) { f.port(3, 1).sm_lid = 0; },
       kPort, "h3", 1, kBoth, kFatal},
      {"port-missing", kRoce, [](Fleet& f) { f.port(2, 1).absent = "this host has no such port"; },
       kPort, "h2", 1, kBoth, kFatal},
      {"no-address", kPlain, [](Fleet& f) { f.port(1, 1).address.reset(); },
       kPort, "h1", 1, kBoth, kFatal},
      {"rails-differ", kPlain, [](Fleet& f) { f.host(2).ports.pop_back(); },
       kHost, "h2", -1, kBoth, kWarn},
      {"rails-one-subnet", kPlain, [](Fleet& f) {
         for (PortFacts& port : f.host(1).ports) {
           port.subnet = "10.0.0.0/16";
           port.arp_for_all = true;
         }
       }, kHost, "h1", -1, kBoth, kWarn},
      {"mtu", kPlain, [](Fleet& f) { f.port(0, 1).mtu = 1500; }, kPort, "h0", 1, kBoth, kFatal},
      {"gid", kRoce, [](Fleet& f) { f.port(1, 1).gids.pop_back(); }, kPort, "h1", 1, kBoth, kFatal},
      {"duplicate-address", kPlain, [](Fleet& f) { f.port(1, 1).address = f.port(2, 1).address; },
       kPort, "h1", 1, kBoth, kFatal},
      {"rail-map", kRoce, [](Fleet& f) { f.port(2, 0).pci = "0000:9a:00.0"; },
       kPort, "h2", 0, kBoth, kWarn},
      {"pcie-link", kRoce, [](Fleet& f) { f.port(2, 0).pcie_width = 8; }, kPort, "h2", 0},
      {"pcie-errors", kRoce, [](Fleet& f) { f.move(2, 0, "pci.TOTAL_ERR_FATAL", 1); }, kPort, "h2", 0},
      {"pcie-stalls", kRoce, [](Fleet& f) { f.move(2, 0, "eth.outbound_pci_stalled_rd_events", 5); },
       kPort, "h2", 0, kBoth, kWarn},
      {"firmware", kInfiniband, [](Fleet& f) { f.port(1, 0).firmware = "28.36.1010"; },
       kPort, "h1", 0, kBoth, kWarn},
      {"fec", kRoce, [](Fleet& f) { f.port(2, 0).settings[0].second = "BaseR"; },
       kPort, "h2", 0, kBoth, kWarn},
      {"module", kRoce, [](Fleet& f) { f.port(2, 0).gauges["module.received_tenth_uw"].value = 90; },
       kPort, "h2", 0, kBoth, kWarn},
      {"nic-temperature", kRoce, [](Fleet& f) { f.port(2, 0).gauges["nic.celsius"].value = 105; },
       kPort, "h2", 0, kBoth, kWarn},
      {"nic-health", kRoce, [](Fleet& f) { f.move(2, 0, "log.errors", 1); }, kPort, "h2", 0},
      {"pcie-settings", kRoce, [](Fleet& f) { f.port(2, 0).settings[1].second = "on"; },
       kPort, "h2", 0, kBoth, kWarn},
      {"rail-switch", kRoce, [](Fleet& f) { f.port(2, 0).switch_name = "leaf-1"; }, kPort, "h2", 0},
      {"gpu-errors", kRoce, [](Fleet& f) { f.host(1).gpu_state["gpu3.ecc_uncorrected"] =
           {ReadingState::kValue, 2}; }, kHost, "h1"},
      {"nvlink", kRoce, [](Fleet& f) { f.host(1).gpu_state["gpu3.nvlinks_down"] =
           {ReadingState::kValue, 1}; }, kHost, "h1"},
      {"gpu-slowdown", kRoce, [](Fleet& f) { f.host(1).gpu_state["gpu7.slowdowns"].value = 8; },
       kHost, "h1", -1, kBoth, kWarn},
      {"numa", kRoce, [](Fleet& f) { f.port(1, 0).local_cpus = "64-127"; },
       kPort, "h1", 0, kBoth, kWarn},
      {"host-setup", kRoce, [](Fleet& f) {
         f.host(1).memlock_bytes = 65536;
         f.host(1).governor = "powersave";
         f.host(1).huge_pages = "never";
       }, kHost, "h1", -1, kBoth, kWarn},
      {"gpudirect", kRoce, [](Fleet& f) { f.host(1).peer_memory = f.host(1).dmabuf = false; },
       kHost, "h1"},
      {"rail-out", kPlain, [](Fleet& f) {
         f.outages = {{1, "h0", "h1", false, "no answer"}, {1, "h2", "h0", false, "no answer"}};
       }, kPort, "h0", 1},
      {"no-failover", kPlain, [](Fleet& f) { f.outages = {{kNoRail, "h0", "h1", false, ""}}; },
       kFleet, "", -1, kBoth, kWarn},
      {"nothing-measured", kPlain, [](Fleet& f) { f.samples = {}; }, kFleet},
      {"tester-starved", kPlain, [](Fleet& f) {
         f.each(Probe::kRate, [](FlowSample& s) {
           if (s.flow.from.host != 2) return;
           s.sender_starved = 0.4;
           s.window_gbps.assign(6, 240);  // 400 without the waits
         });
       }, kTester, "h2", -1, kBoth, kFail, {"port-not-measured"}},
      {"port-not-measured", kPlain, [](Fleet& f) {
         std::erase_if(f.samples.flows, [](const FlowSample& s) { return s.flow.to == Port{1, 1}; });
       }, kPort, "h1", 1, kReceive},
      {"probe-left-out", kPlain, [](Fleet& f) { f.left_out = {Probe::kIncast}; }, kFleet},
      {"collective-wrong", kPlain, [](Fleet& f) {
         f.collectives.push_back({"all_gather", "ring", 20, 1, 0, "rank 1, chunk 2", 0, 0, ""});
       }, kFleet, "", -1, kBoth, kFatal},
      {"busbw", kPlain, [](Fleet& f) { f.collectives[0].busbw_gbps = 100; },
       kFleet, "", -1, kBoth, kWarn},
      {"false-report", kPlain, [](Fleet& f) {
         f.samples.false_reports = {{"h2", -1, "samples", "parse error"}};
       }, kHost, "h2"},
      {"unreachable", kPlain, [](Fleet& f) {
         f.causes = {cause_at(CauseKind::kUnreachable, CausePlace::kPort, {2, 1}, 0, 0)};
         for (FlowSample& s : f.samples.flows)
           if (s.flow.from == Port{2, 1} || s.flow.to == Port{2, 1}) s.reached = false;
       }, kPort, "h2", 1, kBoth, kFatal, {"cross-rail"}},
      {"cables-swapped", kPlain, [](Fleet& f) {
         Cause cause = cause_at(CauseKind::kSwapped, CausePlace::kPort, {2, 1}, 0, 0);
         cause.peer = {2, 0};
         f.causes = {cause};
       }, kPort, "h2", 1},
      {"path-mtu", kPlain, [](Fleet& f) {
         f.causes = {cause_at(CauseKind::kMtu, CausePlace::kReceive, {2, 1}, 1500, 9000)};
       }, kPort, "h2", 1, kReceive, kFatal},
      {"latency", kPlain, [](Fleet& f) {
         f.causes = {cause_at(CauseKind::kLatency, CausePlace::kPort, {2, 1}, 30, 3)};
       }, kPort, "h2", 1},
      {"latency-tail", kPlain, [](Fleet& f) {
         f.each(Probe::kLatency, [](FlowSample& s) {
           if (s.flow.from.host == 1 || s.flow.to.host == 1) s.latency->p99_us = 50'000;
         });
       }, kHost, "h1", -1, kBoth, kWarn, {"latency-tail"}},
      {"port-rate", kPlain, [](Fleet& f) {
         f.causes = {cause_at(CauseKind::kRate, CausePlace::kTransmit, {3, 1}, 200, 400)};
       }, kPort, "h3", 1, kTransmit},
      {"host-rate", kPlain, [](Fleet& f) {
         f.causes = {cause_at(CauseKind::kRate, CausePlace::kHostReceive, {3, 1}, 200, 400)};
       }, kHost, "h3", -1, kReceive},
      {"path-rate", kPlain, [](Fleet& f) {
         f.causes = {path_cause(CauseKind::kRate, {3, 1}, {0, 1}, 200, 400)};
       }, kPath, "h3", 1, kTransmit},
      {"rail-rate", kPlain, [](Fleet& f) {
         f.causes = {cause_at(CauseKind::kRate, CausePlace::kRail, {3, 1}, 200, 400)};
       }, kRail, "", 1},
      {"switch-rate", kPlain, [](Fleet& f) {
         f.causes = {cause_at(CauseKind::kRate, CausePlace::kGroup, {0, 1}, 200, 400)};
         f.causes[0].ports = {{0, 1}, {1, 1}};
       }, kSwitch, "", 1},
      {"fleet-rate", kPlain, [](Fleet& f) {
         f.each(Probe::kRate, [](FlowSample& s) { s.window_gbps.assign(6, 120); });
       }, kFleet},
      {"rate-noise", kPlain, [](Fleet& f) {
         f.each(Probe::kRate, [](FlowSample& s) {
           s.window_gbps.assign(6, 440 - 40 * ((s.round + s.flow.from.host) % 3));
         });
       }, kFleet},
      {"unstable-rate", kPlain, [](Fleet& f) {
         f.causes = {cause_at(CauseKind::kUnstable, CausePlace::kPort, {1, 1}, 1, 390)};
       }, kPort, "h1", 1, kBoth, kWarn},
      {"drift", kPlain, [](Fleet& f) {
         f.drift = {{"port.h1.rail1.transmit_gbps", 390, 350}};
       }, kPort, "h1", 1, kTransmit, kWarn},
      {"loss", kPlain, [](Fleet& f) {
         f.causes = {cause_at(CauseKind::kLoss, CausePlace::kTransmit, {1, 1}, 1e-3, 0)};
         lose_of_million(f, Probe::kLowLoad, {1, 1}, 1000);
       }, kPort, "h1", 1, kTransmit},
      {"congestion-loss", kPlain, [](Fleet& f) {
         f.causes = {cause_at(CauseKind::kLoss, CausePlace::kTransmit, {1, 1}, 1e-3, 0)};
         lose_of_million(f, Probe::kRate, {1, 1}, 1000);
       }, kPort, "h1", 1, kTransmit, kWarn},
      {"incast", kInfiniband, [](Fleet& f) {
         f.each(Probe::kIncast, [](FlowSample& s) { s.window_gbps.assign(6, 80); });
       }, kPort, "h0", 0, kReceive, kWarn},
      {"victim-flow", kInfiniband, [](Fleet& f) {
         f.each(Probe::kVictim, [](FlowSample& s) { s.latency->p99_us = 400; });
       }, kPath, "h0", 0, kTransmit, kWarn},
      {"bisection", kInfiniband, [](Fleet& f) {
         f.each(Probe::kBisection, [](FlowSample& s) { s.window_gbps.assign(6, 200); });
       }, kRail, "", 0, kBoth, kWarn},
      {"all-to-all", kInfiniband, [](Fleet& f) {
         f.each(Probe::kAllToAll, [](FlowSample& s) { s.window_gbps.assign(6, 60); });
       }, kRail, "", 0, kBoth, kWarn},
      {"cross-rail", kInfiniband, [](Fleet& f) {
         f.each(Probe::kCrossRail, [](FlowSample& s) {
           if (s.flow.from.host == 0) s.window_gbps.assign(6, 100);
         });
       }, kPath, "h0", 0, kTransmit, kWarn},
      {"loopback", kInfiniband, [](Fleet& f) {
         f.each(Probe::kLoopback, [](FlowSample& s) {
           if (s.flow.from.host == 1) s.window_gbps.assign(6, 100);
         });
       }, kPort, "h1", 0},
      {"ecmp-entropy", kInfiniband, [](Fleet& f) {
         f.each(Probe::kEntropy, [](FlowSample& s) {
           if (s.flow.label == 5) s.window_gbps.assign(6, 100);
         });
       }, kPath, "h0", 0, kTransmit, kWarn},
      // clang-format on
  };
  return all;
}

// Rows whose findings the job makes, because the checks cannot detect them; and flows-meet, which
// is only information (worlds/clean_worlds_test.cc).
const std::set<std::string_view> kOfTheJob = {"declared",        "not-run",    "rank-lost",
                                              "deadline-passed", "job-failed", "flows-meet"};

class Row : public ::testing::TestWithParam<Fault> {};

TEST_P(Row, FindsItsFaultAtItsPlaceAndNothingElse) {
  const Fault& fault = GetParam();
  Fleet fleet = healthy_fleet(fault.kind);
  const Judgement healthy = fleet.judged();
  EXPECT_EQ(in_short(that_weigh(healthy)), "");
  fault.inject(fleet);
  const std::vector<Finding> findings = that_weigh(fleet.judged());
  bool found = false;
  for (const Finding& finding : findings) {
    if (finding.id == fault.id && finding.where.host == fault.host && !found) {
      found = true;
      EXPECT_EQ(finding.where.kind, fault.place);
      EXPECT_EQ(finding.where.rail, fault.rail);
      EXPECT_EQ(finding.where.direction, fault.direction);
      EXPECT_EQ(finding.severity, fault.severity);
      EXPECT_FALSE(finding.evidence.empty() && finding.text.empty() &&
                   finding.value == finding.expected);
      continue;
    }
    const bool twin = finding.id == std::string("duplicate-address") && finding.id == fault.id;
    EXPECT_TRUE(twin || fault.also.contains(finding.id)) << in_short(finding);
  }
  EXPECT_TRUE(found) << in_short(findings);
}

INSTANTIATE_TEST_SUITE_P(Registry, Row, ::testing::ValuesIn(faults()), [](const auto& row) {
  std::string name;
  for (const char c : std::string(row.param.id)) name += c == '-' ? '_' : c;
  return name;
});

TEST(Registry, EveryRowHasAFaultAndAHealthyFleet) {
  std::set<std::string_view> judged, seen = kOfTheJob;
  for (const Fault& fault : faults()) {
    seen.insert(fault.id);
    for (const Coverage& row : healthy_fleet(fault.kind).judged().coverage)
      if (row.judged > 0) judged.insert(row.id);
  }
  for (const Check& check : checks()) {
    EXPECT_TRUE(seen.contains(check.id)) << check.id << " has no fault above";
    if (kOfTheJob.contains(check.id)) continue;
    EXPECT_TRUE(judged.contains(check.id)) << check.id << " judges nothing in any healthy fleet";
  }
}

TEST(Registry, RowsHaveWordsAndIdsOfTheirOwn) {
  std::set<std::string_view> ids;
  for (const Check& check : checks()) {
    EXPECT_TRUE(ids.insert(check.id).second) << check.id;
    EXPECT_TRUE(std::regex_match(std::string(check.id), std::regex("[a-z]+(-[a-z]+)*")));
    for (const std::string_view text : {check.title, check.source, check.healthy})
      EXPECT_FALSE(text.empty() || text.ends_with('.')) << check.id << ": " << text;
    for (const std::string_view text : {check.meaning, check.remedy}) {
      EXPECT_TRUE(text.ends_with('.')) << check.id << ": " << text;
      EXPECT_GE(text.size(), 40u) << check.id;
    }
    EXPECT_EQ(find_check(check.id), &check);
  }
  EXPECT_EQ(find_check("no-such-check"), nullptr);
}

TEST(Registry, TheListNamesAllAndFitsATerminal) {
  const std::string text = list_text();
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
  for (const Check& check : checks()) {
    // Names of files must not be broken across lines, so that they can be searched for.
    std::istringstream words(std::string(check.source) + " " + std::string(check.healthy));
    for (std::string word; words >> word;)
      EXPECT_NE(text.find(word), std::string::npos) << word << " of " << check.id;
    EXPECT_NE(text.find("\n" + std::string(check.id) + " "), std::string::npos) << check.id;
  }
}

// A section for each check: what a wrong value means, and what to do.
std::string list_markdown() {
  std::string text;
  const auto list = nlohmann::json::parse(list_json());
  for (const auto& check : list["checks"]) {
    const auto word = [&](const char* key) { return check[key].get<std::string>(); };
    text +=
        fmt::format("### {}\n\n{} ({}, {}). Source: {}. Healthy: {}.\n\n{}\n\n*What to do.* {}\n\n",
                    word("id"), word("title"), word("kind"), word("severity"), word("source"),
                    word("healthy"), word("meaning"), word("remedy"));
  }
  return text;
}

TEST(Registry, ThePageOfTheDocsIsTheList) {
  const std::string path = WEFT_SOURCE_DIR "/docs/checks.md";
  const std::string page =
      "# What `weft validate` checks\n\nEach check by its id, as findings, `--json` and "
      "`skipped_checks` of a policy have it. `weft validate --list` prints the short form. "
      "[validate.md](validate.md) says how findings come about.\n\n" +
      list_markdown();
  if (std::getenv("WEFT_WRITE_DOCS") != nullptr) std::ofstream(path) << page;
  EXPECT_EQ(read_file(path), page) << "write the page again: run this test with WEFT_WRITE_DOCS=1";
}

TEST(Registry, AFilterForDatagramsIsNoDeadLink) {
  Fleet fleet = healthy_fleet(FleetKind::kPlain);
  const auto lose = [](FlowSample& s) {
    if (s.flow.from.host == 2 || s.flow.to.host == 2) s.reached = false;
  };
  for (const Probe probe : {Probe::kReach, Probe::kPathMtu}) {
    const Round round{probe, {{{0, 0}, {2, 0}}, {{2, 0}, {1, 0}}, {{1, 0}, {0, 0}}}, 0.1};
    for (const Flow& flow : round.flows) {
      FlowSample sample;
      sample.round = static_cast<int>(fleet.samples.rounds.size());
      sample.flow = flow;
      fleet.samples.flows.push_back(sample);
    }
    fleet.samples.rounds.push_back(round);
    fleet.each(probe, lose);
  }
  EXPECT_EQ(in_short(that_weigh(fleet.judged())), "");
  for (FlowSample& sample : fleet.samples.flows) lose(sample);
  EXPECT_NE(in_short(that_weigh(fleet.judged())).find("unreachable"), std::string::npos);
}

TEST(Registry, ThePolicySkipsChecks) {
  Fleet fleet = healthy_fleet(FleetKind::kPlain);
  fleet.port(0, 1).mtu = 1500;
  fleet.policy.skipped_checks = {"mtu"};
  const Judgement judgement = fleet.judged();
  EXPECT_TRUE(judgement.findings.empty());
  for (const Coverage& row : judgement.coverage) EXPECT_NE(row.id, "mtu");
}

TEST(Registry, CoverageCountsPortsToWhichACheckApplies) {
  Fleet fleet = healthy_fleet(FleetKind::kRoce, 3, 2);
  fleet.port(1, 1).after["eth.rx_crc_errors_phy"].state = ReadingState::kNotAvailable;
  std::map<std::string_view, Coverage> rows;
  for (const Coverage& row : fleet.judged().coverage) rows[row.id] = row;
  EXPECT_EQ(rows["crc-errors"].total, 6);
  EXPECT_EQ(rows["crc-errors"].judged, 5);
  EXPECT_EQ(rows["ib-subnet"].total, 0);
  EXPECT_EQ(rows["host-setup"].total, 3);
}

}  // namespace
}  // namespace weft::fabric::checking
