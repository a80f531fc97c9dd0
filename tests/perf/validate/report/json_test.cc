#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/perf/validate/report/random_report.h"
#include "tests/support/process/temporary_folder.h"
#include "topo/base/status.h"

namespace weft::fabric {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;

std::string error_of(const Json& json) {
  try {
    (void)report_from_json(json);
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

Json json_of(const Report& report) { return Json::parse(json_text(report)); }

TEST(ReportJson, HasTheVerdictFirstAndUnitsInItsKeys) {
  const Json json = json_of(slow_port_report());
  std::vector<std::string> keys;
  for (const auto& [key, value] : json.items()) keys.push_back(key);
  keys.resize(5);
  EXPECT_THAT(keys,
              ::testing::ElementsAre("schema", "verdict", "exit_code", "headline", "findings"));
  EXPECT_EQ(json["schema"], "weft.validate/3");
  EXPECT_EQ(json["verdict"], "CRITICAL");
  EXPECT_EQ(json["exit_code"], 2);
  const Json& finding = json["findings"][0];
  EXPECT_EQ(finding["id"], "port-rate");
  EXPECT_EQ(finding["value_gbps"], 187);
  EXPECT_EQ(finding["expected_gbps"], 392);
  EXPECT_EQ(finding["where"]["host"], "h3");
  EXPECT_EQ(finding["where"]["direction"], "transmit");
  EXPECT_EQ(finding["sentence"], "h3 rail 1 (mlx5_1) sends at 187 of 392 Gb/s");
  EXPECT_THAT(finding["remedy"].get<std::string>(), HasSubstr("WEFT_SLOW_PORTS=h3:1=0.48."));
  EXPECT_EQ(json["plan"]["smallest_loss_per_packet"], 2e-6);
  EXPECT_EQ(json["plan"]["left_out"], Json({"bisection", "entropy"}));
}

TEST(ReportJson, HasPortsAndTheCountersThatMoved) {
  Report report = slow_port_report();
  report.samples.flows[0].retransmits = 3;
  const Json json = json_of(report);
  EXPECT_FALSE(json.contains("samples"));
  const Json& port = json["ports"][7];
  EXPECT_EQ(port["host"], "h3");
  EXPECT_EQ(port["rail"], 1);
  EXPECT_EQ(port["transmit_gbps"], 187);
  EXPECT_EQ(port["receive_gbps"], 392);
  EXPECT_EQ(port["p99_us"], 2.6);
  const Json& changes = json["counters"][7]["changes"];
  EXPECT_EQ(changes["hw.out_of_sequence"], 98);
  EXPECT_FALSE(changes.contains("hw.roce_slow_restart"));  // "N/A" before and after
  EXPECT_FALSE(json["counters"][0]["changes"].contains("hw.out_of_sequence"));
  EXPECT_EQ(json["facts"]["hosts"].size(), 4U);
  EXPECT_FALSE(json["facts"]["hosts"][0]["ports"][0].contains("after"));
}

TEST(ReportJson, HasEveryFlowWhereAsked) {
  const Report report = slow_port_report();
  const Json json = Json::parse(json_text(report, true));
  EXPECT_EQ(json["samples"]["flows"].size(), report.samples.flows.size());
  EXPECT_EQ(json["causes"][0]["kind"], "rate");
}

// Packets lost on the way to a port are losses of both the sender and the receiver.
TEST(ReportJson, LossesAreBookedAtBothEnds) {
  Report report = healthy_report();
  for (FlowSample& flow : report.samples.flows)
    if (flow.flow.to == Port{1, 0} && flow.packets) flow.retransmits = *flow.packets / 100;
  const Json json = json_of(report);
  EXPECT_GT(json["ports"][2]["received_lost_per_packet"], 0.009);  // h1 rail 0
  EXPECT_EQ(json["ports"][2]["sent_lost_per_packet"], 0);
  EXPECT_GT(json["ports"][0]["sent_lost_per_packet"], 0.002);
  EXPECT_EQ(json["ports"][0]["received_lost_per_packet"], 0);
}

// TCP counters are per host, so all ports of a host have the same ones.
TEST(ReportJson, CountersOfTcpComeOnceForAHost) {
  Report report = healthy_report();
  for (PortFacts& port : report.facts.hosts[1].ports) {
    port.before["tcp.InSegs"] = {ReadingState::kValue, 5};
    port.after["tcp.InSegs"] = {ReadingState::kValue, 7};
  }
  int rows = 0;
  const Json json = json_of(report);
  for (const Json& row : json["counters"]) {
    if (!row["changes"].contains("tcp.InSegs")) continue;
    ++rows;
    EXPECT_EQ(row["host"], "h1");
    EXPECT_FALSE(row.contains("rail"));
    EXPECT_EQ(row["changes"]["tcp.InSegs"], 2);
  }
  EXPECT_EQ(rows, 1);
}

TEST(ReportJson, WhatWasNotMeasuredIsNull) {
  const Json json = json_of(job_failed_report());
  EXPECT_TRUE(json["ports"][0]["transmit_gbps"].is_null());
  EXPECT_TRUE(json["ports"][0]["p50_us"].is_null());
  EXPECT_EQ(json["failure"], "peer failed: rank 5 on host h2: connection closed (while at rate)");
}

TEST(ReportJson, NumbersHaveFiveDigits) {
  Report report = slow_port_report();
  report.seconds = 21.400123456789;
  report.judgement.findings[0].value = 187.123456789;
  const Json json = json_of(report);
  EXPECT_EQ(json["time_s"].dump(), "21.4");
  EXPECT_EQ(json["findings"][0]["value_gbps"].dump(), "187.12");
  EXPECT_EQ(json["ports"][0]["transmit_gbps"].dump(), "392");
}

TEST(ReportJson, TakesLittleForAPort) {
  for (const auto& [hosts, rails] : {std::pair(6, 2), {16, 8}}) {
    const std::size_t bytes = json_text(healthy_report(hosts, rails)).size();
    EXPECT_LT(bytes / static_cast<std::size_t>(hosts * rails), 1500U) << hosts;
  }
}

// The part read by later runs and people: the verdict, its reasons, the plan, and the numbers of
// ports.
Json read_part(const Json& json) {
  Json part = json;
  for (const char* key : {"facts", "counters", "coverage", "paths"}) part.erase(key);
  return part;
}
Json read_again(const Json& json) { return read_part(to_json(report_from_json(json))); }

TEST(ReportJson, ComesBackAsItWas) {
  for (const Report& report :
       {healthy_report(), slow_port_report(), loss_report(), two_faults_report(),
        warn_and_unknown_report(), tester_report(), emulated_report(), job_failed_report()})
    EXPECT_EQ(read_again(to_json(report)), read_part(to_json(report)));
}

// The previous version had other severity names, no received losses, and no reasons.
TEST(ReportJson, TheVersionBeforeIsRead) {
  Json json = to_json(slow_port_report());
  json["schema"] = "weft.validate/2";
  for (Json& finding : json["findings"]) {
    finding["severity"] = "fail";
    finding.erase("reason");
  }
  for (Json& port : json["ports"])
    for (const char* key : {"sent_lost_per_packet", "received_lost_per_packet"}) port.erase(key);
  json["causes"] = Json::array({{{"kind", "rate"}}});
  const Report report = report_from_json(json);
  EXPECT_EQ(report.judgement.findings[0].severity, Severity::kFail);
  EXPECT_EQ(report.ports[7].transmit_gbps, 187);
  EXPECT_FALSE(report.ports[7].sent_lost);
}

// The report of a job that never assembled has no hosts.
TEST(ReportJson, AReportWithoutHostsComesBack) {
  Report report;
  report.failure = "rank 3 did not arrive";
  report.verdict = Verdict::kCritical;
  EXPECT_EQ(read_again(to_json(report)), read_part(to_json(report)));
}

TEST(ReportJson, AllOfAPolicyComesBack) {
  Report report = healthy_report();
  Policy& p = report.policy;
  p.file = "fleet.toml";
  p.rate_gbps = 400;
  p.rail_rate_gbps = {{0, 400}, {3, 200}};
  p.firmware = {{"MT_0838", "28.39.1002"}};
  p.mtu = 9000;
  p.pfc_priority = 3;
  p.dscp = 26;
  p.trust = "dscp";
  p.dcqcn = false;
  p.cc_parameters = {{"rp_gd", "11"}};
  p.lossless = true;
  p.excluded_devices = {"mlx5_9"};
  p.skipped_checks = {"host-setup"};
  p.thresholds.victim_ratio = 3.5;
  const Report back = report_from_json(to_json(report));
  EXPECT_EQ(read_part(to_json(back)), read_part(to_json(report)));
  EXPECT_EQ(back.policy.rail_rate_gbps, p.rail_rate_gbps);
  EXPECT_EQ(back.policy.thresholds.victim_ratio, 3.5);
  EXPECT_EQ(back.policy.dcqcn, std::optional<bool>(false));
}

TEST(ReportJson, WhateverIsFoundIsAParsableDocumentThatComesBack) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const std::string text = json_text(RandomReport(seed).draw());
    const Json json = Json::parse(text, nullptr, false);
    ASSERT_FALSE(json.is_discarded()) << seed;
    const Json once = to_json(report_from_json(json));
    for (const char* key : {"verdict", "ports", "hosts", "policy", "plan"})
      ASSERT_EQ(once.value(key, Json()), json.value(key, Json())) << seed << key;
  }
}

TEST(ReportJson, ADamagedDocumentIsRefusedByTheFieldThatIsWrong) {
  const Json good = to_json(slow_port_report());
  const auto with = [&](const char* pointer, Json value) {
    Json json = good;
    json[Json::json_pointer(pointer)] = std::move(value);
    return error_of(json);
  };
  EXPECT_EQ(error_of(good), "no error");
  EXPECT_EQ(with("/schema", "weft.validate/1"),
            "the schema is \"weft.validate/1\", and not weft.validate/3");
  EXPECT_EQ(with("/verdict", "FINE"), "verdict is \"FINE\", and no known word");
  EXPECT_EQ(with("/hosts/2/cores", "many"),
            "hosts[2].cores is \"many\", and no whole number in range");
  EXPECT_EQ(with("/ports/5/transmit_gbps", "much"),
            "ports[5].transmit_gbps is \"much\", and no number");
  EXPECT_EQ(with("/findings/0/where", 3), "findings[0].where is not an object");
  EXPECT_EQ(with("/findings/0/severity", "bad"),
            "findings[0].severity is \"bad\", and no known word");
  EXPECT_EQ(with("/policy/thresholds/warn_rate_share", "x"),
            "policy.thresholds.warn_rate_share is \"x\", and no number");
  Json json = good;
  json.erase("hosts");
  EXPECT_EQ(error_of(json), "the document lacks \"hosts\"");
  EXPECT_EQ(error_of(Json(3)), "the document is not an object");
}

// Any value at any place of a document is refused or read, without other effects.
TEST(ReportJson, AnyDamageIsAnError) {
  const Json flat = to_json(slow_port_report()).flatten();
  const std::vector<Json> values = {nullptr, -1, 1e300, "x", true, Json::array(), Json::object()};
  std::size_t at = 0;
  int refused = 0;
  for (const auto& [pointer, old] : flat.items()) {
    if (++at % 37 != 0) continue;
    Json json = flat.unflatten();
    json[Json::json_pointer(pointer)] = values[at % values.size()];
    refused += error_of(json) != "no error";
  }
  EXPECT_GT(refused, 0);
}

TEST(ReportJson, AFileThatIsNoReportIsNamed) {
  testing::TemporaryFolder folder;
  const auto error = [&](const std::string& path) -> std::string {
    try {
      (void)read_report(path);
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  };
  const auto file = [&](const std::string& text) {
    std::ofstream(folder / "a.json") << text;
    return folder / "a.json";
  };
  EXPECT_EQ(error(folder / "none.json"),
            "cannot read the report " + (folder / "none.json") + ": No such file or directory");
  EXPECT_THAT(error(folder.path()), HasSubstr("cannot read the report " + folder.path()));
  EXPECT_EQ(error(file("{")),
            (folder / "a.json") + " is not a report of `weft validate`: no JSON object");
  EXPECT_EQ(error(file(std::string(5000, '['))),
            (folder / "a.json") + " is not a report: nested too deeply");
  EXPECT_EQ(
      error(file("{\"schema\": \"weft.validate/1\"}")),
      (folder / "a.json") + " is not a report of `weft validate`: the document lacks \"verdict\"");
  EXPECT_EQ(error(file(json_text(slow_port_report()))), "no error");
  EXPECT_EQ(read_report(folder / "a.json").verdict, Verdict::kCritical);
}

}  // namespace
}  // namespace weft::fabric
