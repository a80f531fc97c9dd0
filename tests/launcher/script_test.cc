// labels: multiproc
// Runs the script `weft` in a temporary source tree with mock versions of cmake, ninja and ctest.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "support/process/read_file.h"
#include "support/process/shell.h"
#include "support/process/temporary_folder.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;

class Script : public ::testing::Test {
 protected:
  void SetUp() override {
    const fs::path source = WEFT_SOURCE_DIR;
    fs::create_directories(file("cmake"));
    fs::create_directories(file("tests"));
    fs::copy(source / "tests/run_tests.sh", file("tests/run_tests.sh"));
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

// Both runs write their reports to the same folder. "first" continues when "second" waits for it or
// has ended.
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

// Like a linker, the mock build updates the programs that the file `.linked` names.
TEST_F(Script, QuickRunsTheFastTestsOfWhatIsNewSinceTheyPassed) {
  program("ninja",
          "mkdir -p \"$2/tests\" && touch \"$2/weft\" && chmod +x \"$2/weft\"\n"
          "for p in $(cat .linked); do touch \"$2/tests/$p\"; done\n"
          "printf 'topo topo_fast_tests\\ncoll coll_fast_tests\\ncoll alone_test\\n' "
          ">\"$2/tests/quick.txt\"\n");
  program(
      "ctest",
      "while [ $# -gt 0 ]; do case $1 in --output-junit) xml=$2 ;; -R) echo \"ran $2\" ;; esac; "
      "shift; done\n"
      "printf '<testsuite>\\n\\t<testcase name=\"a\" status=\"%s\">\\n\\t</testcase>\\n"
      "</testsuite>\\n' \"$(cat .status)\" >\"$xml\"\n");
  // Builds the programs that a change links, and returns the output with the tests that ran. Pauses
  // first, because file times have a resolution of several milliseconds.
  const auto quick = [&](const std::string& linked, const std::string& status) {
    std::ofstream(file(".linked")) << linked;
    std::ofstream(file(".status")) << status;
    return run("cd " + file("") +
               " && export PATH=$PWD/bin:$PATH WEFT_SETUP=off WEFT_PRESET=release && sleep 0.05; "
               "touch CMakePresets.json; ./weft test --quick; echo code $?")
        .text;
  };
  EXPECT_THAT(quick("topo_fast_tests coll_fast_tests alone_test", "run"),
              AllOf(HasSubstr("ran ^(coll|topo)/\n"), HasSubstr("code 0")));
  EXPECT_THAT(quick("", "run"), AllOf(HasSubstr("nothing has changed"), Not(HasSubstr("ran"))));
  EXPECT_THAT(quick("alone_test", "fail"), AllOf(HasSubstr("ran ^(coll)/\n"), HasSubstr("code 1")));
  EXPECT_THAT(quick("topo_fast_tests", "run"), HasSubstr("ran ^(coll|topo)/\n"));
  EXPECT_THAT(quick("topo_fast_tests", "run"), HasSubstr("ran ^(topo)/\n"));
}

// Mocks the package manager: dpkg-query reads names and versions from the file `.have`, and apt-get
// adds packages to it, except those that `.refused` names.
class Packages : public Script {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "missing capability: root";
    Script::SetUp();
    std::ofstream(file(".have")) << "bash 5\n";
    std::ofstream(file(".refused")) << "none\n";
    program("dpkg-query",
            "shift 3\n"
            "awk 'NR == FNR { asked[$1] = 1; next } $1 in asked { print $0, \"installed\" }' "
            "<(printf '%s\\n' \"$@\") .have\n");
    program("apt-get",
            "echo \"$*\" >>.apt.log\n"
            "until [ $# = 0 ] || [ $1 = install ]; do shift; done; shift\n"
            "for p; do if grep -qx \"$p\" .refused; then exit 100; fi; done\n"
            "for p; do echo \"$p 1\" >>.have; done\n");
    program("ninja",
            "echo built >>.builds; printf '#!/bin/bash\\necho ran\\n' >\"$2/weft\"; "
            "chmod +x \"$2/weft\"\n");
    program("ctest", "exit 0\n");
  }
  // Returns the output of `./weft ARGUMENTS`; builds() counts its builds so far.
  std::string weft(const std::string& arguments) const {
    return run("cd " + file("") +
               " && export PATH=$PWD/bin:$PATH WEFT_SETUP=on WEFT_PRESET=release && ./weft " +
               arguments)
        .text;
  }
  int builds() const {
    const std::string text = read_file(file(".builds"));
    return static_cast<int>(std::count(text.begin(), text.end(), '\n'));
  }
  void add(const std::string& package) const {
    std::ofstream(file(".have"), std::ios::app) << package << '\n';
  }
  std::set<std::string> have() const {
    std::istringstream lines(read_file(file(".have")));
    std::set<std::string> names;
    for (std::string name, version; lines >> name >> version;) names.insert(name);
    return names;
  }
  // Returns the packages of a class in cmake/packages.txt; of all classes if `wanted` is empty.
  std::set<std::string> listed(const std::string& wanted = "") const {
    std::istringstream lines(read_file(file("cmake/packages.txt")));
    std::set<std::string> names;
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      std::string name;
      words >> name;
      if (name == "#" || (!wanted.empty() && name != wanted)) continue;
      while (words >> name) names.insert(name);
    }
    return names;
  }
};

TEST_F(Packages, ACommandInstallsWhatTheBuildReadsAndNothingElse) {
  weft("validate");
  std::set<std::string> expected{"bash"};
  for (const char* name : {"build", "parts"})
    for (const std::string& package : listed(name)) expected.insert(package);
  EXPECT_EQ(have(), expected);
  EXPECT_GT(expected.size(), 15u);
  // Packages that start a daemon, or that would replace software of the node.
  for (const char* package : {"slurm-wlm", "munge", "openmpi-bin", "mpich", "qemu-system-x86"}) {
    EXPECT_THAT(listed(), Contains(package));
    EXPECT_THAT(have(), Not(Contains(package)));
  }
  EXPECT_THAT(read_file(file(".apt.log")), HasSubstr("--no-remove"));
}

TEST_F(Packages, ALabInstallsItsOwnAndSaysSo) {
  weft("topo");
  EXPECT_EQ(weft("lab softroce --help").find("installing"), std::string::npos);
  const std::string said = weft("lab --verbose softroce -- true");
  EXPECT_THAT(said, HasSubstr("installing"));
  EXPECT_THAT(said, HasSubstr("qemu-system-x86"));
  EXPECT_THAT(have(), IsSupersetOf(listed("lab-softroce")));
  EXPECT_THAT(have(), Not(Contains("slurm-wlm")));
  EXPECT_EQ(weft("lab softroce -- true").find("installing"), std::string::npos);
  EXPECT_EQ(builds(), 1);
}

TEST_F(Packages, TestsInstallAll) {
  weft("test");
  EXPECT_THAT(have(), IsSupersetOf(listed()));
}

TEST_F(Packages, OnlyPackagesThatABuildReadsMakeItBuildAgain) {
  weft("topo");
  weft("topo");
  EXPECT_EQ(builds(), 1);
  add("vim 9");
  weft("topo");
  EXPECT_EQ(builds(), 1);
  std::string text = read_file(file(".have"));
  text.replace(text.find("libfmt-dev 1"), 12, "libfmt-dev 2");
  std::ofstream(file(".have")) << text;
  weft("topo");
  EXPECT_EQ(builds(), 2);
}

TEST_F(Packages, WhatCannotBeHadIsAskedForOnce) {
  std::ofstream(file(".refused")) << "libucx-dev\n";
  EXPECT_THAT(weft("topo"), HasSubstr("cannot install libucx-dev; weft does without"));
  EXPECT_THAT(have(), Contains("libpmix-dev"));
  add("libfmt-dev 3");  // builds again
  EXPECT_THAT(weft("topo"), Not(HasSubstr("libucx-dev")));
  EXPECT_EQ(builds(), 2);
}

}  // namespace
}  // namespace weft
