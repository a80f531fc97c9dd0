// Rails of RDMA devices that fail in the middle of collectives, in one boot of the Soft-RoCE guest
// (softroce_failover_checks): cables that are pulled, silence, loss, and a rank that is killed.
// WEFT_FAILOVER_ROUNDS=100 pulls cables that often (default: a quick version).
// labels: lab
// ctest: whole
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "support/shell.h"

namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using weft::Output;
using weft::run;

std::string read_file(const fs::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

class FailingRails : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    const Output check = run(WEFT_SOURCE_DIR "/tests/lab/softroce check");
    missing_ = check.exit_code == 0 ? "" : check.text;
    if (!missing_.empty()) return;
    const char* rounds = std::getenv("WEFT_FAILOVER_ROUNDS");
    out_ = fs::temp_directory_path() / fmt::format("softroce_failover_{}", getpid());
    fs::create_directories(out_);
    const fs::path tests = fs::read_symlink("/proc/self/exe").parent_path();
    log_ = run(fmt::format("{} lab softroce --once --timeout {} --out {} -- {} {} {} {} {}",
                           WEFT_BINARY, rounds ? 300 + 8 * std::atoi(rounds) : 270, out_.string(),
                           WEFT_SOURCE_DIR "/tests/lab/softroce_failover_checks", WEFT_BINARY,
                           tests.string(), rounds ? rounds : "3", getpid()))
               .text;
    std::printf("%s", log_.c_str());
  }
  static void TearDownTestSuite() { fs::remove_all(out_); }
  void SetUp() override {
    if (!missing_.empty())
      GTEST_SKIP() << "missing capability: the Soft-RoCE guest (" << missing_ << ")";
  }

  // What the check printed; its exit code in `code`.
  static std::string result(const std::string& check, int& code) {
    code = -1;
    if (!fs::exists(out_ / (check + ".code"))) {
      ADD_FAILURE() << "the guest did not come to " << check << ":\n" << log_;
      return "";
    }
    code = std::stoi(read_file(out_ / (check + ".code")));
    return read_file(out_ / (check + ".txt"));
  }
  static std::string good(const std::string& check) {
    int code = 0;
    const std::string text = result(check, code);
    EXPECT_EQ(code, 0) << check << ":\n" << text << read_file(out_ / (check + "_faults.txt"));
    EXPECT_THAT(text, Not(HasSubstr("WRONG")));
    return text;
  }

  inline static std::string missing_;
  inline static fs::path out_;
  inline static std::string log_;
};

TEST_F(FailingRails, APulledCableIsTakenOutAndBack) {
  const std::string text = good("cable");
  EXPECT_THAT(text, ContainsRegex("rail 1 \\(rxe_h.r1 on host h.*\\) is taken out: "));
  EXPECT_THAT(text, ContainsRegex("rail 1 \\(rxe_h.r1 on host h.*\\) is back"));
  EXPECT_THAT(text, ContainsRegex("rank 3: [0-9]+ operations right.*taken out [1-9].*back [1-9]"));
}

// The link stays up, and nothing arrives.
TEST_F(FailingRails, SilenceIsNoticed) {
  const std::string text = good("silence");
  EXPECT_THAT(text, ContainsRegex("rail 0 \\(rxe_h.r0 on host h.*\\) is taken out: "));
  EXPECT_THAT(text, ContainsRegex("rank 0: [0-9]+ operations right.*taken out [1-9].*back [1-9]"));
}

TEST_F(FailingRails, CablesArePulledAtRandomMoments) {
  EXPECT_THAT(good("at_random"), ContainsRegex("rank 3: [0-9]+ operations right"));
}

TEST_F(FailingRails, AKilledRankIsNamed) {
  int code = 0;
  const std::string text = result("killed", code);
  EXPECT_NE(code, 0);
  EXPECT_NE(code, 124) << "somebody waited for ever:\n" << text;
  EXPECT_THAT(text, AllOf(HasSubstr("rank 3"), HasSubstr("h1"))) << text;
}

// How fast is not judged here: docs/benchmarks has the figures.
TEST_F(FailingRails, LossOnOneRailIsNoHindrance) {
  for (const char* check : {"one_clean_rail", "two_rails_one_lossy"}) {
    good(check);
    const auto report = nlohmann::json::parse(read_file(out_ / (std::string(check) + ".json")));
    ASSERT_EQ(report["rows"].size(), 1U) << check;
    const auto& row = report["rows"][0];
    EXPECT_EQ(row.value("wrong", 0), 0) << check;
    std::printf("%s: %.0f us, of the bound %.3f\n", check, row["time_us_p50"].get<double>(),
                row.value("of_bound", 0.0));
  }
}

}  // namespace
