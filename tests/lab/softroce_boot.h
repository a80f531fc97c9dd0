// One boot of the Soft-RoCE guest for all tests of a suite: it runs a script of checks, each of
// which leaves NAME.txt, what it printed, and NAME.code.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include "support/process/read_file.h"
#include "support/process/shell.h"
#include "support/process/temporary_folder.h"

namespace weft::testing {

// Empty, or why there is no guest here.
inline const std::string& missing_softroce() {
  static const std::string why = [] {
    const Output check = run(WEFT_SOURCE_DIR "/tests/lab/softroce check");
    return check.exit_code == 0 ? std::string() : check.text;
  }();
  return why;
}

// Tests in the guest, or of the lab itself.
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

class SoftroceChecks : public Softroce {
 protected:
  // options: of `weft lab softroce`. The script gets the program under test, the folder of the
  // test programs, and `more`.
  static void boot(const std::string& options, const std::string& script, const std::string& more) {
    if (!missing_softroce().empty()) return;
    out_ = std::make_unique<TemporaryFolder>();
    const auto tests = std::filesystem::read_symlink("/proc/self/exe").parent_path();
    log_ = run(std::string(WEFT_BINARY) + " lab softroce --once " + options + " --out " +
               out_->path() + " -- " WEFT_SOURCE_DIR "/tests/lab/" + script + " " + WEFT_BINARY +
               " " + tests.string() + " " + more)
               .text;
    std::printf("%s", log_.c_str());
  }
  static void TearDownTestSuite() { out_.reset(); }

  // A file that a check left; empty where it did not.
  static std::string left(const std::string& name) { return read_file(*out_ / name); }
  static CheckResult result(const std::string& check) {
    const std::string code = left(check + ".code");
    if (code.empty()) {
      ADD_FAILURE() << "the guest did not come to " << check << ":\n" << log_;
      return {};
    }
    return {left(check + ".txt"), std::stoi(code)};
  }

  inline static std::unique_ptr<TemporaryFolder> out_;
  inline static std::string log_;
};

}  // namespace weft::testing
