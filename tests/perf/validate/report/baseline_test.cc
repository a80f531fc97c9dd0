#include "perf/validate/report/baseline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/perf/validate/report/example_report.h"
#include "tests/support/process/read_file.h"
#include "tests/support/process/temporary_folder.h"
#include "topo/base/status.h"

namespace weft::fabric {
namespace {

using ::testing::HasSubstr;

template <typename Do>
std::string error_when(const Do& act) {
  try {
    act();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST(ReportBaseline, IsStoredFirstAndComparedThen) {
  testing::TemporaryFolder folder;
  const std::string path = folder / "base.json";
  Report healthy = healthy_report(), slow = slow_port_report();
  EXPECT_FALSE(compare_with_baseline(path, healthy));
  EXPECT_TRUE(healthy.baseline.empty());
  healthy.verdict = Verdict::kCritical;
  store_baseline(path, healthy);
  EXPECT_FALSE(compare_with_baseline(path, healthy)) << "stored of a run that is no measure";
  EXPECT_THAT(to_text(healthy, {}), HasSubstr("  baseline     not stored in " + path));
  healthy.baseline_note.clear();
  healthy.verdict = Verdict::kWarn;
  store_baseline(path, healthy);
  EXPECT_TRUE(compare_with_baseline(path, healthy));
  EXPECT_TRUE(healthy.drift.empty());
  const std::string stored = read_file(path);
  EXPECT_TRUE(compare_with_baseline(path, slow));
  EXPECT_EQ(slow.baseline, path);
  ASSERT_EQ(slow.drift.size(), 1U);
  EXPECT_EQ(slow.drift[0].name, "port.h3.rail1.transmit_gbps");
  EXPECT_EQ(slow.drift[0].before, 392);
  EXPECT_EQ(slow.drift[0].now, 187);
  EXPECT_EQ(read_file(path), stored);
  EXPECT_THAT(to_text(slow, {}), HasSubstr("  drift        against "));
}

TEST(ReportBaseline, WhatGotWorseComesFirst) {
  const auto with = [](double rate0, double rate1, double p99) {
    Report report = example_report(5, 2, [=](Port from, Port) {
      return from == Port{0, 0} ? rate0 : from == Port{1, 0} ? rate1 : 392.0;
    });
    for (FlowSample& flow : report.samples.flows)
      if (flow.latency && flow.flow.from == Port{2, 1}) flow.latency->p99_us = p99;
    return report;
  };
  const std::vector<Drift> drift =
      drift_since(baseline_of(with(392, 200, 2.6)), with(300, 392, 26), "base.json");
  ASSERT_EQ(drift.size(), 3U);
  EXPECT_EQ(drift[0].name, "port.h2.rail1.p99_us");
  EXPECT_EQ(drift[1].name, "port.h0.rail0.transmit_gbps");
  EXPECT_EQ(drift[2].name, "port.h1.rail0.transmit_gbps");  // better than before
}

TEST(ReportBaseline, SmallChangesAreNoDrift) {
  const Report report = example_report(4, 2, [](Port, Port) { return 380.0; });
  EXPECT_TRUE(drift_since(baseline_of(healthy_report()), report, "base.json").empty());
}

TEST(ReportBaseline, OtherHostsAreRefusedByName) {
  Report report = healthy_report();
  report.hosts[1].name = "h9";
  EXPECT_EQ(
      error_when([&] { (void)drift_since(baseline_of(healthy_report()), report, "base.json"); }),
      "--baseline base.json: of other hosts: h1 are not in this run, h9 are not in the baseline. "
      "Give each fleet a file of its own, or remove this one to store a new baseline");
  EXPECT_THAT(
      error_when([&] {
        (void)drift_since(baseline_of(healthy_report()), emulated_report(), "base.json");
      }),
      HasSubstr("of another kind of run (2 rails, verbs; this run: 2 rails, tcp, emulated)"));
}

TEST(ReportBaseline, AReportMayStandForABaseline) {
  testing::TemporaryFolder folder;
  std::ofstream(folder / "run.json") << json_text(healthy_report());
  const Baseline baseline = read_baseline(folder / "run.json");
  EXPECT_EQ(baseline.numbers, baseline_of(healthy_report()).numbers);
  EXPECT_EQ(baseline.numbers.at("port.h3.rail1.transmit_gbps"), 392);
}

TEST(ReportBaseline, ComesBackAsItWas) {
  testing::TemporaryFolder folder;
  const Baseline baseline = baseline_of(healthy_report());
  write_baseline(baseline, folder / "base.json");
  const Baseline back = read_baseline(folder / "base.json");
  EXPECT_EQ(back.numbers, baseline.numbers);
  EXPECT_EQ(back.hosts, baseline.hosts);
  EXPECT_EQ(back.started, baseline.started);
}

TEST(ReportBaseline, ABadFileIsNamed) {
  testing::TemporaryFolder folder;
  const std::string path = folder / "base.json";
  const auto error_with = [&](const std::string& text) {
    std::ofstream(path) << text;
    return error_when([&] { (void)read_baseline(path); });
  };
  const std::string begin = "--baseline " + path + ": ";
  EXPECT_EQ(error_when([&] { (void)read_baseline(path); }),
            begin + "cannot be read: No such file or directory");
  const std::string neither = begin + "neither a baseline nor a report of --json: ";
  EXPECT_EQ(error_with("nonsense"), neither + "the document is not an object");
  EXPECT_EQ(error_with("{\"schema\": \"weft.baseline/1\", \"hosts\": [\"h0\"]}"),
            neither + "the document lacks \"numbers\"");
  EXPECT_EQ(error_with("{\"schema\": \"weft.baseline/1\", \"hosts\": [0], \"numbers\": {}}"),
            neither + "hosts[0] is 0, and no text");
  EXPECT_EQ(error_with("{\"schema\": \"weft.baseline/7\", \"hosts\": [], \"numbers\": {}}"),
            begin + "schema \"weft.baseline/7\", and not weft.baseline/1");
  EXPECT_EQ(error_with(std::string(1000, '[')), begin + "nested too deeply");
  Report report = healthy_report();
  const std::string unwritable = folder / "none/base.json";
  EXPECT_EQ(error_when([&] { (void)store_baseline(unwritable, report); }),
            "--baseline " + unwritable + ": cannot be written: No such file or directory");
}

}  // namespace
}  // namespace weft::fabric
