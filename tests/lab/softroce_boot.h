// One boot of the Soft-RoCE guest for all tests that look inside of it: it runs the script
// softroce_checks, each of whose checks leaves NAME.txt, what it printed, and NAME.code.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "support/process/shell.h"

namespace weft::testing {

// Empty, or why there is no guest here.
const std::string& missing_softroce();

// Tests of the lab: in the guest, or of what makes it.
class Softroce : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!missing_softroce().empty())
      GTEST_SKIP() << "missing capability: the Soft-RoCE guest (" << missing_softroce() << ")";
  }
};

struct CheckResult {
  std::string text;
  int code = -1;
};

// What the checks left. The first to ask boots the guest, for minutes.
const Output& softroce_log();
std::string softroce_left(const std::string& file);  // empty where the check did not make it

class Guest : public Softroce {
 protected:
  static CheckResult result(const std::string& check);
  static std::string left(const std::string& file) { return softroce_left(file); }
  static nlohmann::json json(const std::string& check);
  // Ended with 0, and no result was wrong; what it printed.
  static std::string good(const std::string& check);
  // Both ends of a pair test that went well and found every byte right.
  static void expect_good_pair(const std::string& check);
};

}  // namespace weft::testing
