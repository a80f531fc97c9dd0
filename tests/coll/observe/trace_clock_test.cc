// labels: multiproc
// ctest: whole
// sanitize: long
// Traces of machines with different clocks: a rank in a time namespace, whose monotonic clock has a
// known offset.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "support/process/shell.h"
#include "support/process/temporary_folder.h"

namespace weft {
namespace {

class SkewedClock : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    const Output check = run(other_machine() + "true");
    if (check.exit_code != 0)
      GTEST_SKIP() << "missing capability: time and pid namespaces (" << check.text << ")";
  }
  // A separate PID namespace makes it another machine.
  static std::string other_machine() {
    return fmt::format("unshare --time --monotonic {} --pid --fork --mount-proc ", GetParam());
  }
  nlohmann::json json(const std::string& name) const {
    std::ifstream in(folder_ / name);
    return nlohmann::json::parse(in, nullptr, false);
  }

  const testing::TemporaryFolder folder_;
};

TEST_P(SkewedClock, IsToldAndTakenOutByTheMerge) {
  const std::string perf = fmt::format("{} perf all_reduce -b 64K -e 64K -n 3 -w 0", WEFT_BINARY);
  const Output job =
      run(fmt::format("WEFT_TRACE={0}/t.json {1} launch -N 2 --hosts 2 -- sh -c "
                      "'if [ $WEFT_RANK = 1 ]; then exec {2} {3}; else exec {3}; fi'",
                      folder_.path(), WEFT_BINARY, other_machine(), perf));
  ASSERT_EQ(job.exit_code, 0) << job.text;
  const auto other = json("t.rank1.json");
  ASSERT_TRUE(other.is_object()) << job.text;
  const double ahead = other["otherData"]["clock_ahead_us"];
  const double uncertain = other["otherData"]["clock_uncertain_us"];
  EXPECT_GE(uncertain, 0);
  // The uncertainty is an upper bound, however busy the machine is.
  EXPECT_LE(std::abs(ahead - 1e6 * GetParam()), uncertain + 1);
  EXPECT_LT(uncertain, 5e5) << "no use";

  const Output merged =
      run(fmt::format("cd {} && {} trace merge t.rank0.json t.rank1.json -o all.json",
                      folder_.path(), WEFT_BINARY));
  ASSERT_EQ(merged.exit_code, 0) << merged.text;
  EXPECT_NE(merged.text.find("clocks agree within"), std::string::npos) << merged.text;
  // On no rank does an all_reduce end before all ranks have begun it.
  struct Span {
    double begin, end;
  };
  std::map<std::string, std::map<int, Span>> operations;
  const auto all = json("all.json");
  for (const auto& e : all["traceEvents"])
    if (e["ph"] == "X" && e["cat"] == "operation")
      operations[e["name"]][e["pid"]] = {e["ts"], e["ts"].get<double>() + e["dur"].get<double>()};
  int compared = 0;
  for (const auto& [name, spans] : operations) {
    if (!name.starts_with("all_reduce") || spans.size() != 2) continue;
    EXPECT_GE(spans.at(0).end + 2 * uncertain + 1, spans.at(1).begin) << name;
    EXPECT_GE(spans.at(1).end + 2 * uncertain + 1, spans.at(0).begin) << name;
    ++compared;
  }
  EXPECT_GE(compared, 3);
}

// A container may have its own clock while it shares processes and memory with its host.
TEST_P(SkewedClock, IsToldOfARankOfTheSameMachineToo) {
  const std::string perf = fmt::format("{} perf barrier -n 3 -w 0", WEFT_BINARY);
  const Output job = run(fmt::format(
      "WEFT_TRACE={0}/s.json {1} launch -N 2 -- sh -c "
      "'if [ $WEFT_RANK = 1 ]; then exec unshare --time --monotonic {2} --fork {3}; else exec {3}; "
      "fi'",
      folder_.path(), WEFT_BINARY, GetParam(), perf));
  ASSERT_EQ(job.exit_code, 0) << job.text;
  const auto other = json("s.rank1.json");
  ASSERT_TRUE(other.is_object()) << job.text;
  const double ahead = other["otherData"]["clock_ahead_us"];
  const double uncertain = other["otherData"]["clock_uncertain_us"];
  EXPECT_LE(std::abs(ahead - 1e6 * GetParam()), uncertain + 1);
}

INSTANTIATE_TEST_SUITE_P(Seconds, SkewedClock, ::testing::Values(1000, -3),
                         [](const auto& info) { return info.param < 0 ? "behind" : "ahead"; });

}  // namespace
}  // namespace weft
