// Labs of network namespaces, one of each shape, shared by all tests of a program.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <map>
#include <string>

#include "support/process/shell.h"

namespace weft::testing {

// Tests that need root and network namespaces.
class LabTest : public ::testing::Test {
 protected:
  void SetUp() override {
    static const Output check = run(WEFT_SOURCE_DIR "/tests/lab/netlab check");
    if (check.exit_code != 0)
      GTEST_SKIP() << "missing capability: root with network namespaces (" << check.text << ")";
  }
  void TearDown() override {
    for (const auto& [shape, name] : labs_)
      if (name == spoilt_) {
        netlab("down", name);
        labs_.erase(shape);
        break;
      }
    spoilt_.clear();
  }
  static void TearDownTestSuite() {
    for (const auto& [shape, name] : labs_) netlab("down", name);
    labs_.clear();
  }

  // The name of a running lab; the next `up` of any lab removes those of killed programs.
  static std::string lab(int hosts, int rails, const std::string& rate = "400mbit") {
    std::string& name = labs_[fmt::format("{} {} {}", hosts, rails, rate)];
    if (name.empty()) {
      name = fmt::format("s{}_{}", getpid(), ++made_);
      const Output up = netlab(
          "up", name,
          fmt::format("--hosts {} --rails {} --rate {} --owner {}", hosts, rails, rate, getpid()));
      EXPECT_EQ(up.exit_code, 0) << up.text;
    }
    return name;
  }
  // A lab that the test may break: the next test gets a new one.
  std::string lab_to_break(int hosts, int rails, const std::string& rate = "400mbit") {
    return spoilt_ = lab(hosts, rails, rate);
  }
  static Output netlab(const std::string& verb, const std::string& name,
                       const std::string& more = "") {
    return run(
        fmt::format("{}/tests/lab/netlab {} --lab {} {}", WEFT_SOURCE_DIR, verb, name, more));
  }

 private:
  inline static std::map<std::string, std::string> labs_;  // names by shape
  inline static int made_ = 0;
  std::string spoilt_;
};

}  // namespace weft::testing
