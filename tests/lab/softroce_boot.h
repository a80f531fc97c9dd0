// One boot of the Soft-RoCE guest for all tests that need it: it runs the script softroce_checks.
// Each check leaves NAME.txt with its output, and NAME.code.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "support/process/shell.h"

namespace weft::testing {

// Returns the reason why this machine cannot run the guest; empty if it can.
const std::string& missing_softroce();

// Tests that need the guest, and tests of the program that boots it.
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

// The output of the checks. The first call boots the guest, which takes minutes.
const Output& softroce_log();
std::string softroce_left(const std::string& file);  // empty if the check did not write it

class Guest : public Softroce {
 protected:
  static CheckResult result(const std::string& check);
  static std::string left(const std::string& file) { return softroce_left(file); }
  static nlohmann::json json(const std::string& check);
  // The output of a check that ended with 0 and without wrong results.
  static std::string good(const std::string& check);
  // Expects both ends of a pair test to succeed with correct data.
  static void expect_good_pair(const std::string& check);
};

}  // namespace weft::testing
