// `weft validate` with wrongly started ranks, so that no test ran: exit code 4, and no statement
// about the fabric.
// labels: multiproc waits
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "perf/validate/report/report.h"
#include "support/process/shell.h"
#include "support/process/temporary_folder.h"
#include "transport/control/socket.h"

namespace weft::fabric {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

void expect_not_run(const Output& o, const std::string& why) {
  EXPECT_EQ(o.exit_code, 4) << o.text;
  EXPECT_THAT(o.text, AllOf(HasSubstr(why), Not(HasSubstr("CRITICAL"))));
}

// Two ranks; `rank` runs `what` in its shell before it starts.
Output two_ranks(int rank, const std::string& what, const std::string& arguments = "") {
  return run(fmt::format(
      "timeout 120 {0} launch -N 2 --hosts 2 -- bash -c 'if [ $WEFT_RANK = {1} ]; then {2} fi; "
      "exec {0} validate --timeout-ms 8000 --budget 6s {3}'",
      WEFT_BINARY, rank, what, arguments));
}

TEST(NotRun, WithTooFewOpenFiles) {
  expect_not_run(run(fmt::format("ulimit -n 64; timeout 60 {} validate --budget 6s", WEFT_BINARY)),
                 "`ulimit -n");
}

TEST(NotRun, WithTheSecretOfAnotherJob) {
  const testing::TemporaryFolder folder;
  const std::string json = folder / "report.json";
  expect_not_run(two_ranks(1, "export WEFT_SECRET=another;", "--json " + json),
                 "another WEFT_SECRET");
  const Report report = read_report(json);
  EXPECT_EQ(report.verdict, Verdict::kTester);
  ASSERT_EQ(report.judgement.findings.size(), 1u);
  EXPECT_EQ(report.judgement.findings[0].id, "not-run");
}

TEST(NotRun, WithAnotherNumberOfRanks) {
  expect_not_run(two_ranks(1, "export WEFT_SIZE=3;"), "start all ranks with the same size");
}

TEST(NotRun, OnAPortThatIsInUse) {
  const Fd other = listen_at("127.0.0.1");
  expect_not_run(
      run(fmt::format("WEFT_RANK=0 WEFT_SIZE=2 WEFT_SECRET=s WEFT_ROOT=127.0.0.1:{} timeout 60 {} "
                      "validate --timeout-ms 8000 --budget 6s",
                      port_of(other.get()), WEFT_BINARY)),
      "Address already in use");
}

// A full file system of 64 KiB.
TEST(NotRun, WithAReportOnAFullDisk) {
  const testing::TemporaryFolder folder;
  const std::string disk = folder / "disk";
  std::filesystem::create_directory(disk);
  if (mount("none", disk.c_str(), "tmpfs", 0, "size=64k") != 0)
    GTEST_SKIP() << "missing capability: root";
  {
    std::ofstream old(disk + "/old.json");
    old << "{}\n";
    std::ofstream(disk + "/rest") << std::string(1 << 17, 'x');
  }
  for (const char* file : {"new.json", "old.json"}) {
    const Output o = run(
        fmt::format("timeout 60 {} validate --budget 6s --json {}/{}", WEFT_BINARY, disk, file));
    expect_not_run(o, "No space left on device");
    EXPECT_THAT(o.text, Not(HasSubstr("verdict"))) << o.text;
  }
  umount(disk.c_str());
}

}  // namespace
}  // namespace weft::fabric
