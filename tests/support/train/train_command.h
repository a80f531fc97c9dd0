// Runs `weft train` as processes, on a small model in fp64, and parses its losses.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "support/jobs/setting.h"
#include "support/process/shell.h"
#include "support/process/temporary_folder.h"

namespace weft::testing {

class TrainCommand : public ::testing::Test {
 protected:
  std::string command(const std::string& flags) const {
    return fmt::format(
        "{} train --type double --steps 12 --batch 8 --width 32 --layers 2 "
        "--positions 16 --sample 0 {}",
        WEFT_BINARY, flags);
  }
  // Step -> loss; the last loss of a repeated step.
  std::map<int, double> losses(const std::string& flags) {
    const std::string log = folder_ / fmt::format("log{}", ++logs_);
    output_ = run(command(flags + " --log " + log));
    EXPECT_EQ(output_.exit_code, 0) << output_.text;
    std::map<int, double> all;
    std::ifstream in(log);
    for (std::string line; std::getline(in, line);) {
      const auto step = nlohmann::json::parse(line);
      all[step["step"]] = step["loss"];
    }
    return all;
  }
  static void expect_near(const std::map<int, double>& a, const std::map<int, double>& b) {
    ASSERT_EQ(a.size(), b.size());
    for (const auto& [step, loss] : a) EXPECT_NEAR(b.at(step) / loss, 1, 1e-10) << step;
  }

  const TemporaryFolder folder_;
  std::mt19937 random_{seed()};
  int logs_ = 0;
  Output output_;
};

}  // namespace weft::testing
