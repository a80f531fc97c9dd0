// `weft validate` with a rank that dies, stops or cannot connect: a report that names it, and never
// exit code 0. Processes on emulated hosts.
// labels: multiproc waits
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "perf/validate/report/report.h"
#include "support/process/shell.h"
#include "support/process/temporary_folder.h"

namespace weft::fabric {
namespace {

using ::testing::HasSubstr;

// Runs `what` in the shell of `rank` ($$) before that rank starts, of four ranks on two hosts.
Output run_with(int rank, const std::string& what, const std::string& arguments) {
  return run(fmt::format(
      "timeout 120 {0} launch -N 4 --hosts 2 -- bash -c 'if [ $WEFT_RANK = {1} ]; then {2} fi; "
      "exec {0} validate --timeout-ms 8000 --budget 30s {3}' 2>&1",
      WEFT_BINARY, rank, what, arguments));
}

const Finding* find(const Report& report, const std::string& id) {
  for (const Finding& finding : report.judgement.findings)
    if (finding.id == id) return &finding;
  return nullptr;
}

class LostRank : public ::testing::TestWithParam<int> {
 protected:
  // The report names the rank's host.
  void expect_lost(const std::string& signal) {
    const testing::TemporaryFolder folder;
    const std::string json = folder / "report.json";
    // Dead or stopped during the probes, which take 20 s.
    const Output o =
        run_with(GetParam(), fmt::format("(sleep 4; kill -{} $$) &", signal), "--json " + json);
    EXPECT_NE(o.exit_code, 0) << o.text;
    EXPECT_NE(o.exit_code, 124) << "it hangs\n" << o.text;
    const std::string host = GetParam() < 2 ? "host0" : "host1";
    EXPECT_THAT(o.text,
                HasSubstr(fmt::format("{} is lost: peer failed: rank {} ", host, GetParam())));
    ASSERT_TRUE(std::filesystem::exists(json)) << o.text;
    const Report report = read_report(json);
    EXPECT_EQ(report.verdict, Verdict::kCritical);
    const Finding* lost = find(report, "rank-lost");
    ASSERT_NE(lost, nullptr);
    EXPECT_EQ(lost->where.host, host);
    EXPECT_FALSE(report.failure.empty());
  }
};

TEST_P(LostRank, ThatDiesIsNamed) { expect_lost("KILL"); }
TEST_P(LostRank, ThatStopsIsNamed) { expect_lost("STOP"); }

// Rank 0 writes the reports; if it is lost, rank 1 does.
INSTANTIATE_TEST_SUITE_P(RootAndLeaf, LostRank, ::testing::Values(0, 3),
                         [](const auto& info) { return "Rank" + std::to_string(info.param); });

// A host whose memory or NIC corrupts data: every rank checks, but only rank 0 has all results.
TEST(WrongData, TheHostThatChangesDataIsNamed) {
  const testing::TemporaryFolder folder;
  const std::string json = folder / "report.json";
  const Output o = run(
      fmt::format("WEFT_FAULT=flip:rank=2,every=40,min=1024 timeout 120 {} validate -N 4 --hosts 4 "
                  "--budget 20s --timeout-ms 8000 --json {} 2>&1",
                  WEFT_BINARY, json));
  EXPECT_EQ(o.exit_code, 2) << o.text;
  ASSERT_TRUE(std::filesystem::exists(json)) << o.text;
  const Report report = read_report(json);
  EXPECT_EQ(report.failure, "");
  const Finding* wrong = find(report, "collective-wrong");
  ASSERT_NE(wrong, nullptr) << o.text;
  EXPECT_EQ(wrong->where.host, "host2");
}

TEST(LostRankAtTheStart, ThatCannotConnectIsNamed) {
  const testing::TemporaryFolder folder;
  const std::string json = folder / "report.json";
  const Output o = run_with(3, "export WEFT_ROOT=127.0.0.1:9;", "--json " + json);
  EXPECT_EQ(o.exit_code, 2) << o.text;
  EXPECT_THAT(o.text, HasSubstr("rank 3 could not reach rank 0 at \"127.0.0.1\", port 9"));
  EXPECT_THAT(o.text, HasSubstr("verdict: CRITICAL - the job failed: "));
  ASSERT_TRUE(std::filesystem::exists(json)) << o.text;
  const Report report = read_report(json);
  EXPECT_EQ(report.verdict, Verdict::kCritical);
  const Finding* failed = find(report, "job-failed");
  ASSERT_NE(failed, nullptr);
  EXPECT_THAT(failed->text, HasSubstr("rank 3 did not arrive within 8000 ms"));
}

}  // namespace
}  // namespace weft::fabric
