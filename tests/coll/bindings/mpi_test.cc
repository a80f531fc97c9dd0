// labels: multiproc
// sanitize: no
// MPI programs on weft with both MPIs, preloaded and linked: a suite (bindings/mpi/suite.c) that
// compares each collective with MPI's own, and small programs (bindings/mpi/programs.c).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <set>
#include <sstream>
#include <string>

#include "support/process/shell.h"

namespace weft {
namespace {

const std::filesystem::path kBuild = std::filesystem::path(WEFT_BINARY).parent_path() / "mpi";

// An MPI library: the command that starts a program, and how to set a variable for it.
struct Mpi {
  std::string name, launch, variable;
  std::string library() const { return (kBuild / name / "libweft_mpi.so").string(); }
  std::string program(const std::string& kind) const { return (kBuild / name / kind).string(); }
};

void PrintTo(const Mpi& mpi, std::ostream* os) { *os << mpi.name; }

// Open MPI's sums of 8-bit integers are wrong with its AVX component.
const Mpi kOpenMpi{"openmpi",
                   "timeout 240 mpirun --allow-run-as-root --oversubscribe --mca op ^avx -n {}",
                   " -x {}={}"};
const Mpi kMpich{"mpich", "timeout 240 mpiexec.mpich -n {}", " -genv {} {}"};

using Variables = std::map<std::string, std::string>;

class MpiPrograms : public ::testing::TestWithParam<Mpi> {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(GetParam().library()))
      GTEST_SKIP() << "missing capability: " << GetParam().name
                   << ", with which this build has made no library";
    const std::string version =
        fmt::format("{} --version", GetParam().name == "openmpi" ? "mpirun" : "mpiexec.mpich");
    if (run(version).exit_code != 0)
      GTEST_SKIP() << "missing capability: the launcher of " << GetParam().name;
  }
  Output start(int ranks, const std::string& what, Variables variables = {}) const {
    std::string command = fmt::format(fmt::runtime(GetParam().launch), ranks);
    variables["WEFT_MPI_COUNTS"] = "1";
    for (const auto& [name, value] : variables)
      command += fmt::format(fmt::runtime(GetParam().variable), name, value);
    return run(command + " " + what);
  }
  Output preloaded(int ranks, const std::string& arguments = "", Variables variables = {}) const {
    variables["LD_PRELOAD"] = GetParam().library();
    return start(ranks, GetParam().program("suite") + " " + arguments, variables);
  }
};

// The calls of a function by weft and by MPI, from the program's last lines.
struct Calls {
  long weft = 0, mpi = 0;
  std::string why;
};
Calls calls_of(const Output& output, const std::string& function) {
  std::istringstream lines(output.text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name;
    Calls calls;
    if (!(words >> name >> calls.weft >> calls.mpi) || name != function) continue;
    std::getline(words, calls.why);
    return calls;
  }
  return {};
}

void expect_right(const Output& output) {
  EXPECT_EQ(output.exit_code, 0) << output.text;
  EXPECT_NE(output.text.find("right: "), std::string::npos) << output.text;
}

constexpr const char* kTaken[] = {"MPI_Bcast",
                                  "MPI_Allreduce",
                                  "MPI_Iallreduce",
                                  "MPI_Reduce",
                                  "MPI_Ireduce",
                                  "MPI_Reduce_scatter",
                                  "MPI_Reduce_scatter_block",
                                  "MPI_Ireduce_scatter",
                                  "MPI_Allgather",
                                  "MPI_Iallgather",
                                  "MPI_Allgatherv",
                                  "MPI_Gather",
                                  "MPI_Gatherv",
                                  "MPI_Scatter",
                                  "MPI_Iscatter",
                                  "MPI_Iscatterv",
                                  "MPI_Alltoall",
                                  "MPI_Alltoallv",
                                  "MPI_Barrier"};

TEST_P(MpiPrograms, HaveTheResultsOfMpi) {
  const Output output = preloaded(2);
  expect_right(output);
  for (const char* function : kTaken)
    EXPECT_GT(calls_of(output, function).weft, 0) << function << "\n" << output.text;
  EXPECT_NE(calls_of(output, "MPI_Allreduce").why.find("element type"), std::string::npos);
  EXPECT_NE(calls_of(output, "MPI_Allreduce").why.find("operator"), std::string::npos);
  EXPECT_NE(calls_of(output, "MPI_Bcast").why.find("one rank"), std::string::npos);
  EXPECT_EQ(calls_of(output, "MPI_Scan").weft, 0);
  EXPECT_EQ(calls_of(output, "MPI_Scan").mpi, 2);
}

TEST_P(MpiPrograms, LinkedInFront) {
  const Output output = start(2, GetParam().program("linked") + " threads");
  expect_right(output);
  EXPECT_GT(calls_of(output, "MPI_Allreduce").weft, 0) << output.text;
}

TEST_P(MpiPrograms, WithoutWeft) {
  const Output output = preloaded(2, "short", {{"WEFT_MPI", "off"}});
  expect_right(output);
  EXPECT_EQ(calls_of(output, "MPI_Allreduce").weft, 0) << output.text;
  EXPECT_NE(calls_of(output, "MPI_Allreduce").why.find("weft is off"), std::string::npos);
}

// The other ranks would wait for a rank that cannot start.
TEST_P(MpiPrograms, GoOnWithoutWeftWhereItCannotStart) {
  const Output output = preloaded(2, "short", {{"WEFT_RAILS", "no_such_device"}});
  expect_right(output);
  EXPECT_NE(output.text.find("MPI runs without weft"), std::string::npos) << output.text;
  EXPECT_NE(output.text.find("no_such_device"), std::string::npos) << output.text;
  EXPECT_EQ(calls_of(output, "MPI_Allreduce").weft, 0) << output.text;
}

TEST_P(MpiPrograms, RanksThatDisagreeLearnWhoDid) {
  const Output output = preloaded(3, "disagree");
  EXPECT_EQ(output.exit_code, 0) << output.text;
  for (int r = 0; r < 3; ++r) {
    const std::size_t at = output.text.find(fmt::format("rank {}: weft: ", r));
    ASSERT_NE(at, std::string::npos) << output.text;
    const std::string line = output.text.substr(at + 14, output.text.find('\n', at) - at - 14);
    EXPECT_NE(line.find("rank 1"), std::string::npos) << line;
  }
}

// Lines printed by the small programs (bindings/mpi/programs.c).
std::string seen(const Output& output) {
  std::istringstream lines(output.text);
  std::string all;
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("= ") && !line.starts_with("= wrong_counts")) all += line + "\n";
  return all;
}

TEST_P(MpiPrograms, SeeWhatTheySeeWithoutWeft) {
  const bool openmpi = GetParam().name == "openmpi";
  const int ranks = openmpi ? 4 : 2;
  const std::string program = GetParam().program("programs");
  const Output plain = start(ranks, program, {{"PROGRAMS_ALONE", "1"}});
  const Output output = start(ranks, program, {{"LD_PRELOAD", GetParam().library()}});
  EXPECT_EQ(output.exit_code, 0) << output.text;
  EXPECT_NE(seen(output).find("= over"), std::string::npos) << output.text;
  EXPECT_EQ(seen(output), seen(plain)) << output.text << plain.text;
  for (const char* function : {"MPI_Iallgather", "MPI_Ialltoallv", "MPI_Iallreduce"})
    EXPECT_GT(calls_of(output, function).weft, 0) << function << "\n" << output.text;
  EXPECT_NE(calls_of(output, "MPI_Bcast").why.find("argument"), std::string::npos) << output.text;
  for (const char* function : {"MPI_Neighbor_alltoallw", "MPI_Ineighbor_allgatherv"})
    EXPECT_GT(calls_of(output, function).mpi, 0) << function << "\n" << output.text;
  EXPECT_GT(calls_of(output, openmpi ? "MPIX_Allreduce_init" : "MPI_Allreduce_init").mpi, 0);
  if (openmpi) return;
  EXPECT_GT(calls_of(output, "MPI_Psend_init").mpi, 0) << output.text;
  EXPECT_GT(calls_of(output, "MPI_Allgatherv_c").weft, 0) << output.text;
}

// The others wait for the rank that exits; the launcher ends them, and returns its exit code.
// MPICH's launcher may instead return the SIGKILL with which it ended the others.
TEST_P(MpiPrograms, EndAsWithoutWeft) {
  const bool openmpi = GetParam().name == "openmpi";
  for (const auto& [how, codes] : {std::pair("return", openmpi ? std::set{7} : std::set{7, 9}),
                                   std::pair("signal", std::set{openmpi ? 137 : 9})}) {
    const Output output = start(2, GetParam().program("programs"),
                                {{"LD_PRELOAD", GetParam().library()}, {"PROGRAMS_END", how}});
    EXPECT_TRUE(codes.contains(output.exit_code)) << how << "\n" << output.text;
    EXPECT_EQ(output.text.find("weft:"), std::string::npos) << output.text;
  }
}

TEST_P(MpiPrograms, OfAnotherMpiAreToldSo) {
  const Mpi& other = GetParam().name == "openmpi" ? kMpich : kOpenMpi;
  if (!std::filesystem::exists(other.library()))
    GTEST_SKIP() << "missing capability: " << other.name;
  // Without a launcher: MPICH's may exit before it has forwarded a program's last output.
  const Output output = run(
      fmt::format("timeout 60 env LD_PRELOAD={} {}", other.library(), GetParam().program("suite")));
  EXPECT_NE(output.exit_code, 0);
  EXPECT_NE(output.text.find("lib/weft/" + GetParam().name), std::string::npos) << output.text;
}

INSTANTIATE_TEST_SUITE_P(Mpis, MpiPrograms, ::testing::Values(kOpenMpi, kMpich),
                         [](const auto& mpi) { return mpi.param.name; });

// MPICH's ranks poll without yielding: with more ranks than cores this takes minutes.
class OpenMpiPrograms : public MpiPrograms {};

TEST_P(OpenMpiPrograms, OnMoreRanksThanCores) { expect_right(preloaded(5)); }

// Emulates two hosts: tcp between them, shared memory within each.
TEST_P(OpenMpiPrograms, BetweenHosts) {
  const Output output =
      start(4, fmt::format("sh -c 'WEFT_HOST_ID=host$((OMPI_COMM_WORLD_RANK / 2)) LD_PRELOAD={} "
                           "WEFT_RAILS=lo exec {}'",
                           GetParam().library(), GetParam().program("suite")));
  expect_right(output);
  EXPECT_GT(calls_of(output, "MPI_Allreduce").weft, 0) << output.text;
}

INSTANTIATE_TEST_SUITE_P(Mpis, OpenMpiPrograms, ::testing::Values(kOpenMpi),
                         [](const auto& mpi) { return mpi.param.name; });

}  // namespace
}  // namespace weft
