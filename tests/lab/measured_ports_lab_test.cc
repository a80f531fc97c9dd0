// A port becomes slow while a job runs, and later recovers. The job measures both changes, and the
// port's host sends less while the port is slow. Needs root.
// labels: lab
// ctest: whole alone
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "coll/api/communicator.h"
#include "support/process/shell.h"
#include "tests/lab/shared_lab.h"

namespace {

constexpr std::size_t kCount = 1 << 20;
constexpr weft::Rank kOnH4 = 6;  // the first of its two ranks

// Returns the bytes that this rank's host has sent on its rails.
double sent_bytes() {
  std::ifstream file("/proc/self/net/dev");
  double all = 0;
  for (std::string line; std::getline(file, line);) {
    const auto colon = line.find(':');
    if (colon == std::string::npos || line.find("rail") > colon) continue;
    double column = 0;
    std::istringstream columns(line.substr(colon + 1));
    for (int i = 0; i < 9; ++i) columns >> column;
    all += column;
  }
  return all;
}

// All ranks: sets the rate at which h4 sends on rail 1.
void set_rate(weft::Communicator& all, const char* rate) {
  const std::string command = fmt::format(
      "tc qdisc change dev rail1 handle 1: root tbf rate {} burst 32kb limit 1mb", rate);
  if (all.rank() == kOnH4 && std::system(command.c_str()) != 0)
    throw weft::Error("tc failed: " + command);
  all.barrier().check();
}

int rank_main() try {
  auto world = weft::World::from_environment();
  weft::Communicator all = world->world();
  all.set_algorithm(weft::Collective::kAllReduce, "hierarchical");
  const std::vector<float> in(kCount, 1);
  std::vector<float> out(kCount);
  // Measures the ports, and prints how much h4 sends in an all_reduce.
  const auto look = [&] {
    const std::string slow = world->measure_slow_ports();
    all.barrier().check();
    const double before = sent_bytes();
    all.all_reduce(in.data(), out.data(), kCount, weft::DType::kFloat32, weft::RedOp::kSum).check();
    all.barrier().check();
    if (all.rank() == kOnH4)
      std::printf("slow '%s', %.2f of a message\n", slow.c_str(),
                  (sent_bytes() - before) / (kCount * sizeof(float)));
    if (out != std::vector<float>(kCount, static_cast<float>(all.size())))
      throw weft::Error("wrong data");
  };
  for (int i = 0; i < 3; ++i) look();
  set_rate(all, "50mbit");
  look();
  look();
  set_rate(all, "100mbit");
  look();
  return 0;
} catch (const std::exception& e) {
  std::printf("FAILED: %s\n", e.what());
  return 1;
}

class MeasuredPorts : public weft::testing::LabTest {};

TEST_F(MeasuredPorts, AreFoundWhileSlowAndNoLonger) {
  const weft::Output o = weft::run(fmt::format(
      "timeout 120 {} lab netlab --use {} --ppn 2 -- {} --rank 2>&1", WEFT_BINARY,
      lab_to_break(4, 2, "100mbit"), std::filesystem::read_symlink("/proc/self/exe").string()));
  ASSERT_EQ(o.exit_code, 0) << o.text;
  // Sent bytes with headers and receipts: 1.5 messages while h4 reduces its share, otherwise 1.16.
  const std::string healthy = "slow '', 1.[56][0-9] of a message\n";
  const std::string slow = "slow 'h4:1=0.[45]5?', 1.[12][0-9] of a message\n";
  EXPECT_THAT(o.text,
              ::testing::ContainsRegex(healthy + healthy + healthy + slow + slow + healthy));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::string(argv[1]) == "--rank") return rank_main();
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
