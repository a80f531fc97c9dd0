// Training in the lab: the bytes that weft reports for each axis equal the ports' counters except
// for headers; tensor parallelism stays within hosts, pipelines and replicas stay on their rails.
// Needs root.
// labels: lab
// ctest: whole
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <vector>

#include "support/process/shell.h"
#include "support/process/temporary_folder.h"
#include "tests/lab/shared_lab.h"

namespace weft {
namespace {

using Bytes = std::int64_t;

constexpr int kSteps = 20;
constexpr int kHosts = 2, kRanksPerHost = 2;  // and a rail for each rank of a host
// Sizes in the model below: a micro-batch between two stages, and the tied embedding.
constexpr Bytes kBoundary = 2 * 64 * 64 * 4, kTied = 256 * 64 * 4;
// Ethernet, IP and TCP add 66 bytes to 1448; acknowledgements go in the other direction.
constexpr double kHeaders = 1.06;
// Rendezvous, and the exchange of the norm and the loss in each step.
constexpr Bytes kSlack = 60000;

class TrainInTheLab : public testing::LabTest {
 protected:
  void train(const std::string& layout) {
    const Output o = run(fmt::format(
        "WEFT_METRICS={0}/m.prom {1} lab netlab --use {2} --ppn {3} "
        "--json {0}/ports -- weft train {4} --algo ring --steps {5} --sample 0 "
        "--eval-every 0 "
        "--width 64 --layers 2 --positions 64 --micro-batch 2 --batch 8 --log {0}/log",
        folder_.path(), WEFT_BINARY, lab(kHosts, kRanksPerHost), kRanksPerHost, layout, kSteps));
    ASSERT_EQ(o.exit_code, 0) << o.text;
    std::ifstream log(folder_ / "log");
    for (std::string line; std::getline(log, line);) steps_.push_back(nlohmann::json::parse(line));
    ASSERT_EQ(steps_.size(), static_cast<std::size_t>(kSteps));
    // weft_sent_bytes_total{rank="1",peer="3",link="rail 1 (rail1)"} 3277852
    const std::regex sent(
        R"x(weft_sent_bytes_total\{rank="(\d+)",peer="(\d+)",link="([^"]*)"\} (\d+))x");
    for (int r = 0; r < kHosts * kRanksPerHost; ++r) {
      std::ifstream metrics(fmt::format("{}/m.rank{}.prom", folder_.path(), r));
      ASSERT_TRUE(metrics) << r;
      std::smatch m;
      for (std::string line; std::getline(metrics, line);)
        if (std::regex_search(line, m, sent)) {
          const int peer = std::stoi(m[2]);
          const Bytes bytes = std::stoll(m[4]);
          const bool inside = peer / kRanksPerHost == r / kRanksPerHost;
          EXPECT_EQ(m[3] == "shm", inside) << line;
          if (inside) {
            inside_ += bytes;
          } else {  // to the rank of the same rail, along that rail
            EXPECT_EQ(m[3].str().substr(0, 6), fmt::format("rail {}", r % kRanksPerHost)) << line;
            EXPECT_EQ(peer % kRanksPerHost, r % kRanksPerHost) << line;
            port_[r] += bytes;
          }
        }
    }
    std::ifstream file(folder_ / "ports");
    const auto ports = nlohmann::json::parse(file)["ports"];
    ASSERT_EQ(ports.size(), port_.size());
    for (std::size_t p = 0; p < ports.size(); ++p) {  // host by host, rail by rail, like the ranks
      const Bytes counted = ports[p]["tx_bytes"], said = port_[static_cast<int>(p)];
      EXPECT_GE(counted, said) << ports[p];
      EXPECT_LE(static_cast<double>(counted), kHeaders * static_cast<double>(said) + kSlack)
          << ports[p];
    }
  }
  // Bytes sent by rank 0 over all steps.
  Bytes sent(const char* axis) const {
    Bytes sum = 0;
    for (const auto& step : steps_) sum += step["sent"][axis].get<Bytes>();
    return sum;
  }

  const testing::TemporaryFolder folder_;
  std::vector<nlohmann::json> steps_;
  Bytes inside_ = 0;
  std::map<int, Bytes> port_;  // by rank, which is by port
};

TEST_F(TrainInTheLab, PipelinesKeepToTheirRail) {
  train("--tp 2 --pp 2");
  if (HasFatalFailure()) return;
  const Bytes wanted = kSteps * (4 * kBoundary + kTied / 2);
  EXPECT_GT(sent("tensor"), sent("pipeline"));
  EXPECT_EQ(sent("data") + sent("other"), 0);
  EXPECT_EQ(sent("pipeline"), wanted);
  EXPECT_LE(port_.at(0), wanted + kSlack);  // without those of tensor parallelism
  EXPECT_GE(inside_, sent("tensor"));
}

TEST_F(TrainInTheLab, ReplicasKeepToTheirRail) {
  train("--tp 2 --dp 2");
  if (HasFatalFailure()) return;
  EXPECT_GT(sent("data"), 0);
  EXPECT_EQ(sent("pipeline") + sent("other"), 0);
  EXPECT_GE(port_.at(0), sent("data"));
  EXPECT_LE(port_.at(0), sent("data") + kSlack);
}

// One pair of ranks between the hosts, so that one rail is unused: rank 1 of host 0 and rank 2 of
// host 1 use rail 1, that of the lower rank.
TEST_F(TrainInTheLab, ARailOfOthersIsLeftAloneUnlessMessagesMaySpread) {
  for (const bool spread : {false, true}) {
    const Output o = run(fmt::format(
        "{} WEFT_METRICS={}/m.prom {} lab netlab --use {} --ppn 2 "
        "--json {}/ports -- weft train --pp 4 --untied --width 256 --positions "
        "256 --layers 4 --batch 8 --micro-batch 8 --steps 3 --sample 0",
        spread ? "WEFT_SPREAD=1" : "", folder_.path(), WEFT_BINARY, lab(2, 2), folder_.path()));
    ASSERT_EQ(o.exit_code, 0) << o.text;
    const std::regex sent(
        R"x(weft_rail_sent_bytes_total\{rank="(\d+)",link="rail (\d)[^"]*"\} (\d+))x");
    std::map<int, Bytes> said;  // by host and rail
    for (int rank = 0; rank < 4; ++rank) {
      std::ifstream metrics(fmt::format("{}/m.rank{}.prom", folder_.path(), rank));
      std::smatch m;
      for (std::string line; std::getline(metrics, line);)
        if (std::regex_search(line, m, sent))
          said[rank / 2 * 2 + std::stoi(m[2])] += std::stoll(m[3]);
    }
    ASSERT_EQ(said.size(), 4u);
    std::ifstream file(folder_ / "ports");
    const auto ports = nlohmann::json::parse(file)["ports"];
    for (int p = 0; p < 4; ++p) {
      const Bytes counted = ports[static_cast<std::size_t>(p)]["tx_bytes"];
      EXPECT_GE(counted, said[p]) << p;
      EXPECT_LE(static_cast<double>(counted), kHeaders * static_cast<double>(said[p]) + 2 * kSlack)
          << p;
    }
    constexpr Bytes kOneWay = 3 * 8 * 256 * 256 * 4;  // of the boundary, all steps
    EXPECT_GE(said[0] + said[1], kOneWay);
    if (spread) {
      EXPECT_GT(std::min(said[0], said[2]), kOneWay / 10);
    } else {
      EXPECT_LT(std::max(said[0], said[2]), kSlack);
    }
  }
}

}  // namespace
}  // namespace weft
