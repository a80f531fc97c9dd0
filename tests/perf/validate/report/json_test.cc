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
  EXPECT_EQ(json["schema"], "weft.validate/2");
  EXPECT_EQ(json["verdict"], "CRITICAL");
  EXPECT_EQ(json["exit_code"], 2);
  const Json& finding = json["findings"][0];
  EXPECT_EQ(finding["id"], "port-rate");
  EXPECT_EQ(finding["value_gbps"], 187);
  EXPECT_EQ(finding["expected_gbps"], 392);
  EXPECT_EQ(finding["where"]["host"], "h3");
  EXPECT_EQ(finding["where"]["direction"], "transmit");
  EXPECT_EQ(finding["sentence"], "h3 rail 1 (mlx5_1) sends at 187 of 392 Gb/s");
  EXPECT_FALSE(finding["remedy"].get<std::string>().empty());
  EXPECT_EQ(json["plan"]["smallest_loss_per_packet"], 2e-6);
  EXPECT_EQ(json["plan"]["left_out"], Json({"bisection", "entropy"}));
}

TEST(ReportJson, HasRawSamplesAndTheChangesOfCounters) {
  const Report report = slow_port_report();
  const Json json = json_of(report);
  EXPECT_EQ(json["samples"]["flows"].size(), report.samples.flows.size());
  const Json& port = json["ports"][7];
  EXPECT_EQ(port["host"], "h3");
  EXPECT_EQ(port["rail"], 1);
  EXPECT_EQ(port["transmit_gbps"], 187);
  EXPECT_EQ(port["receive_gbps"], 392);
  EXPECT_EQ(port["p99_us"], 2.6);
  const Json& changes = json["counters"][7]["changes"];
  EXPECT_EQ(changes["hw.out_of_sequence"], 98);
  EXPECT_EQ(changes["hw.roce_slow_restart"], Json({{"state", "unknown"}}));
  EXPECT_EQ(json["facts"]["hosts"].size(), 4U);
}

TEST(ReportJson, WhatWasNotMeasuredIsAbsent) {
  const Json json = json_of(job_failed_report());
  EXPECT_FALSE(json["ports"][0].contains("transmit_gbps"));
  EXPECT_FALSE(json["ports"][0].contains("p50_us"));
  EXPECT_EQ(json["failure"], "peer failed: rank 5 on host h2: connection closed (while at rate)");
}

TEST(ReportJson, ComesBackAsItWas) {
  for (const Report& report :
       {healthy_report(), slow_port_report(), loss_report(), two_faults_report(),
        warn_and_unknown_report(), tester_report(), emulated_report(), job_failed_report()})
    EXPECT_EQ(to_json(report_from_json(to_json(report))), to_json(report));
}

// As of a job that never came together.
TEST(ReportJson, AReportWithoutHostsComesBack) {
  Report report;
  report.failure = "rank 3 did not arrive";
  report.verdict = Verdict::kCritical;
  EXPECT_EQ(to_json(report_from_json(to_json(report))), to_json(report));
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
  p.cost = {{"gpu_hour_usd", 3}};
  const Report back = report_from_json(to_json(report));
  EXPECT_EQ(to_json(back), to_json(report));
  EXPECT_EQ(back.policy.rail_rate_gbps, p.rail_rate_gbps);
  EXPECT_EQ(back.policy.thresholds.victim_ratio, 3.5);
  EXPECT_EQ(back.policy.dcqcn, std::optional<bool>(false));
}

TEST(ReportJson, WhateverIsFoundIsAParsableDocumentThatComesBack) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const std::string text = json_text(RandomReport(seed).draw());
    const Json json = Json::parse(text, nullptr, false);
    ASSERT_FALSE(json.is_discarded()) << seed;
    // Numbers that are none became null, and bytes that are no text were replaced: from then on
    // the document stays as it is.
    ASSERT_EQ(json_text(report_from_json(json)), text) << seed;
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
            "the schema is \"weft.validate/1\", and not weft.validate/2");
  EXPECT_EQ(with("/verdict", "FINE"), "verdict is \"FINE\", and no known word");
  EXPECT_EQ(with("/hosts/2/cores", "many"),
            "hosts[2].cores is \"many\", and no whole number in range");
  EXPECT_EQ(with("/samples/flows/5/received_bytes", -1),
            "samples.flows[5].received_bytes is -1, and no whole number in range");
  EXPECT_EQ(with("/samples/flows/5/round", 99),
            "samples.flows[5].round is 99, and there are 6 rounds");
  EXPECT_EQ(with("/findings/0/where", 3), "findings[0].where is no object");
  EXPECT_EQ(with("/findings/0/severity", "bad"),
            "findings[0].severity is \"bad\", and no known word");
  EXPECT_EQ(with("/policy/thresholds/warn_rate_share", "x"),
            "policy.thresholds.warn_rate_share is \"x\", and no number");
  Json json = good;
  json.erase("hosts");
  EXPECT_EQ(error_of(json), "the document lacks \"hosts\"");
  EXPECT_EQ(error_of(Json(3)), "the document is no object");
}

// Any value at any place of a document is refused, or read: nothing else happens.
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
            (folder / "a.json") + " is no report of `weft validate`: no JSON object");
  EXPECT_EQ(error(file(std::string(5000, '['))),
            (folder / "a.json") + " is no report: nested too deeply");
  EXPECT_EQ(
      error(file("{\"schema\": \"weft.validate/1\"}")),
      (folder / "a.json") + " is no report of `weft validate`: the document lacks \"verdict\"");
  EXPECT_EQ(error(file(json_text(slow_port_report()))), "no error");
  EXPECT_EQ(read_report(folder / "a.json").verdict, Verdict::kCritical);
}

}  // namespace
}  // namespace weft::fabric
