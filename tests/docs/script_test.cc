// labels: multiproc
// The script `weft` in a tree of its own, whose cmake, ninja and ctest only pretend.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "support/process/read_file.h"
#include "support/process/shell.h"
#include "support/process/temporary_folder.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

class Script : public ::testing::Test {
 protected:
  void SetUp() override {
    const fs::path source = WEFT_SOURCE_DIR;
    fs::create_directories(file("cmake"));
    fs::create_directories(file("bin"));
    fs::copy(source / "weft", file("weft"));
    fs::copy(source / "CMakePresets.json", file("CMakePresets.json"));
    for (const char* name : {"read_tests.awk", "count_tests.awk", "packages.txt"})
      fs::copy(source / "cmake" / name, file("cmake") + "/" + name);
    program("cmake", "mkdir -p build/release\n");
    program("ninja", "mkdir -p \"$2\"\n");
  }
  std::string file(const std::string& name) const { return folder_ / name; }
  void program(const std::string& name, const std::string& text) const {
    const std::string path = file("bin") + "/" + name;
    std::ofstream(path) << "#!/bin/bash\n" << text;
    fs::permissions(path, fs::perms::owner_all);
  }

  const testing::TemporaryFolder folder_;
};

// The reports of both lie in the same place. "first" goes on when "second" waits for it, or is
// over.
TEST_F(Script, TwoTestRunsKeepTheirResultsApart) {
  program("ctest",
          "while [ $# -gt 0 ]; do case $1 in --output-junit) xml=$2 ;; -R) name=$2 ;; esac; shift;"
          " done\n"
          "if [ $name = first ]; then touch started; status=run\n"
          "  until [ -e over ] || grep -q waiting said 2>/dev/null; do sleep 0.05; done\n"
          "else status=fail; fi\n"
          "printf '<testsuite>\\n\\t<testcase name=\"%s\" status=\"%s\">\\n\\t</testcase>\\n"
          "</testsuite>\\n' $name $status >\"$xml\"\n");
  const Output both =
      run("cd " + file("") +
          " && export PATH=$PWD/bin:$PATH WEFT_SETUP=off WEFT_PRESET=release && "
          "{ ./weft test -R first & while [ ! -e started ]; do sleep 0.05; done; "
          "./weft test -R second >said 2>&1; echo code $?; touch over; wait $!; echo code $?; }");
  EXPECT_NE(both.text.find("1 passed, 0 failed, 0 skipped"), std::string::npos) << both.text;
  EXPECT_NE(both.text.find("code 1\ncode 0"), std::string::npos) << both.text;
  const std::string said = read_file(file("said"));
  EXPECT_NE(said.find("0 passed, 1 failed, 0 skipped"), std::string::npos) << said;
}

TEST_F(Script, WhatWasCleanedIsBuiltAgain) {
  program(
      "ninja",
      "mkdir -p \"$2\"; echo built >>build/log; printf '#!/bin/bash\\necho ran\\n' >\"$2/weft\"; "
      "chmod +x \"$2/weft\"\n");
  const Output all = run("cd " + file("") +
                         " && export PATH=$PWD/bin:$PATH WEFT_SETUP=off WEFT_PRESET=release && "
                         "./weft && ./weft && rm build/release/weft && ./weft; cat build/log");
  EXPECT_TRUE(all.text.ends_with("built\nbuilt\n")) << all.text;
  EXPECT_EQ(all.text.find("No such file"), std::string::npos) << all.text;
}

}  // namespace
}  // namespace weft
