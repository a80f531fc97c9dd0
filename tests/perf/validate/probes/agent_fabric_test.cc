// The real fabric over threads of this process, with one that sends false reports; and the gather
// of the facts of many hosts at rank 0.
#include "perf/validate/probes/agent_fabric.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "support/jobs/job_around.h"
#include "tests/perf/validate/agents.h"

namespace weft::fabric {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Runs a round of rate flows over loopback among three hosts; `lie` rewrites rank 2's reports to
// rank 0.
class LyingJob final : public testing::JobAround {
 public:
  LyingJob(std::unique_ptr<Job> job, std::function<std::string(std::string)> lie)
      : JobAround(std::move(job)), lie_(std::move(lie)) {}
  std::vector<std::string> gather(std::string_view mine) override {
    return JobAround::gather(lie_(std::string(mine)));
  }

 private:
  std::function<std::string(std::string)> lie_;
};

struct Seen {
  std::vector<FlowSample> samples;
  std::vector<FalseReport> lies;
  int streams = 0;  // that fill a port
};

Seen run_round(const std::function<std::string(std::string)>& lie) {
  constexpr int kHosts = 3;
  const Topology topology = loopback_topology(kHosts, 1, 1);
  std::vector<std::unique_ptr<Job>> jobs = local_jobs(kHosts);
  jobs[2] = std::make_unique<LyingJob>(std::move(jobs[2]), lie);
  Round round;
  round.seconds = 0.05;
  round.flows = {{{0, 0}, {2, 0}}, {{2, 0}, {1, 0}}, {{1, 0}, {0, 0}}};
  FleetFacts facts;
  for (int h = 0; h < kHosts; ++h) {
    HostFacts& host = facts.hosts.emplace_back();
    host.host = topology.host_name(h);
    host.ports.resize(1);
  }
  Seen seen;
  std::vector<std::thread> ranks;
  for (std::unique_ptr<Job>& job : jobs)
    ranks.emplace_back([&, job = job.get()] {
      AgentFabric fabric(*job, topology, facts, Policy{}, 0, "tcp");
      if (job->rank() == 0) {
        seen.streams = calibrate(fabric).of_flow;
        seen.samples = fabric.run(round);
        fabric.stop();
        seen.lies = fabric.false_reports();
      } else {
        fabric.serve();
      }
      job->leave();
    });
  for (std::thread& rank : ranks) rank.join();
  return seen;
}

TEST(AgentFabricOverThreads, HonestHostsAreMeasured) {
  const Seen seen = run_round([](std::string text) { return text; });
  EXPECT_THAT(seen.lies, IsEmpty());
  EXPECT_EQ(seen.streams, 1) << "loopback is held to a rate that one stream fills";
  ASSERT_EQ(seen.samples.size(), 3u);
  for (const FlowSample& s : seen.samples) {
    EXPECT_TRUE(s.reached) << s.error;
    EXPECT_GT(s.bytes, 0u);
    ASSERT_TRUE(s.sent_bytes);
    EXPECT_LE(s.bytes, *s.sent_bytes);
  }
}

// Whatever a host reports about its measurement, the round ends, the liar is named, and the other
// hosts are measured.
TEST(AgentFabricOverThreads, ALiarIsNamedAndTheOthersAreMeasured) {
  for (const char* text : {"{", "[[]]", "[[7,true,\"x\"]]", "\"\"", "[{\"flow\":0}]"}) {
    const Seen seen = run_round([&](const std::string& mine) {
      return mine.find("starved") == mine.npos ? mine : std::string(text);
    });
    EXPECT_FALSE(seen.lies.empty()) << text;
    for (const FalseReport& lie : seen.lies) EXPECT_EQ(lie.host, "h2") << text;
    ASSERT_EQ(seen.samples.size(), 3u);
    EXPECT_FALSE(seen.samples[0].reached);
    EXPECT_FALSE(seen.samples[1].reached);
    EXPECT_TRUE(seen.samples[2].reached) << seen.samples[2].error;
  }
}

using Rates = std::map<int, double>;  // by streams, the median of the measurements

struct Tried {
  int streams;
  std::vector<int> tried;
};
Tried tried(double expected_gbps, const Rates& rates) {
  Tried found{};
  found.streams = streams_that_fill(expected_gbps, [&](int streams) {
    found.tried.push_back(streams);
    const double rate = rates.at(streams);
    return std::vector<double>{0.9 * rate, rate, 1.01 * rate};
  });
  return found;
}

TEST(StreamsThatFill, AreTheFewestThatReachTheBest) {
  const Tried sublinear = tried(0, {{1, 30}, {2, 58}, {4, 97}, {8, 98}});
  EXPECT_EQ(sublinear.streams, 4);
  EXPECT_THAT(sublinear.tried, ElementsAre(1, 2, 4, 8)) << "16 would add nothing, as 8 did";
  EXPECT_EQ(tried(0, {{1, 30}, {2, 30.5}}).streams, 1);
  EXPECT_EQ(tried(0, {{1, 30}, {2, 25}}).streams, 1);
  EXPECT_EQ(tried(400, {{1, 30}, {2, 60}, {4, 120}, {8, 240}, {16, 391}}).streams, 16);
  EXPECT_EQ(streams_that_fill(400, [](int) { return std::vector<double>(); }), 1);
}

TEST(StreamsThatFill, AreAllThatAFlowMayHaveWhereAHashChoosesALinkForEach) {
  // Ports of two links: with twice the streams, half of the flows still use one link by chance.
  const std::map<int, std::vector<double>> bonded = {{1, {195, 195, 195}},  {2, {195, 195, 195}},
                                                     {4, {390, 195, 390}},  {8, {390, 390, 292}},
                                                     {16, {390, 390, 390}}, {32, {390, 390, 390}}};
  EXPECT_EQ(streams_that_fill(400, [&](int streams) { return bonded.at(streams); }), kMostStreams);
}

TEST(StreamsThatFill, AreToldByThePortsThatAreFast) {
  EXPECT_EQ(
      streams_that_fill(
          400,
          [](int streams) {
            const double rate = std::min(390.0, 42.0 * streams);
            return std::vector<double>{std::min(rate, 100.0), rate, rate, std::min(rate, 100.0)};
          }),
      16);
}

TEST(StreamsThatFill, OneThatReachesTheDeclaredRateIsAllThatIsTried) {
  EXPECT_THAT(tried(100, {{1, 96}}).tried, ElementsAre(1));
  // A faulty port does not hide that one stream fills another port.
  int calls = 0;
  EXPECT_EQ(streams_that_fill(100,
                              [&](int) {
                                return ++calls, std::vector<double>{50, 51, 96};
                              }),
            1);
  EXPECT_EQ(calls, 1);
}

// Ports of an RDMA device with this driver: whether flow labels select paths.
bool labels_work(const char* link_layer, const char* driver, const char* transport) {
  const Topology topology = loopback_topology(2, 1, 1);
  std::vector<std::unique_ptr<Job>> jobs = local_jobs(2);
  FleetFacts facts;
  for (int h = 0; h < 2; ++h) {
    PortFacts& port = facts.hosts.emplace_back().ports.emplace_back();
    port.pci = "0000:3b:00.0";
    port.link_layer = link_layer;
    port.driver = driver;
  }
  return AgentFabric(*jobs[0], topology, facts, Policy{}, 0, transport).supports(Probe::kEntropy);
}

TEST(AgentFabric, AsksForWaysWhereTheTransportLetsLabelsChooseThem) {
  EXPECT_TRUE(labels_work("Ethernet", "mlx5_core", "verbs"));
  EXPECT_FALSE(labels_work("InfiniBand", "mlx5_core", "verbs"));
  EXPECT_FALSE(labels_work("Ethernet", "rdma_rxe", "verbs"));
  EXPECT_TRUE(labels_work("", "", "tcp"));
}

// A rank of a job without other ranks: records its contribution to each gather, and on rank 0
// returns those of the others.
class LoneJob final : public Job {
 public:
  using Brought = std::vector<std::vector<std::string>>;  // by gather, by rank
  LoneJob(Rank rank, int size, Brought& brought) : rank_(rank), size_(size), brought_(brought) {}
  Rank rank() const override { return rank_; }
  int size() const override { return size_; }
  std::vector<std::string> all_gather(std::string_view) override {
    ADD_FAILURE() << "every rank would hold what all bring";
    return {};
  }
  std::vector<std::string> gather(std::string_view mine) override {
    const std::size_t n = gathers_++;
    if (brought_.size() <= n) brought_.resize(n + 1);
    brought_[n].resize(static_cast<std::size_t>(size_));
    brought_[n][static_cast<std::size_t>(rank_)] = mine;
    return rank_ == 0 ? brought_[n] : std::vector<std::string>();
  }
  bool failed() const noexcept override { return false; }
  Status failure() const override { return {}; }
  void report(const Status&, const Scope&) noexcept override {}
  std::vector<Rank> silent(std::chrono::milliseconds) const override { return {}; }
  void leave() noexcept override {}
  void abort(const char*) noexcept override {}
  std::unique_ptr<Job> shrink() override { return nullptr; }

 private:
  Rank rank_;
  int size_;
  Brought& brought_;
  std::size_t gathers_ = 0;
};

// Facts of 1,024 hosts of 8 ranks, 32 KiB each: only rank 0 receives them, and no gather has more
// than those of 64 hosts.
TEST(GatherFromAgents, BringsFactsOf64HostsAtATimeToRankZeroOnly) {
  constexpr int kHosts = 1024, kLocal = 8, kRanks = kHosts * kLocal;
  constexpr std::size_t kFacts = 32 * 1024;
  const Topology topology = loopback_topology(kHosts, kLocal, 8);
  LoneJob::Brought brought;
  int taken = 0;
  for (Rank r = kRanks - 1; r >= 0; --r) {  // rank 0 last, after the contributions of the others
    LoneJob job(r, kRanks, brought);
    const std::string mine(kFacts, static_cast<char>('a' + topology.host(r) % 26));
    gather_from_agents(job, topology, topology.local(r) == 0 ? mine : "",
                       [&](int host, const std::string& text) {
                         EXPECT_EQ(r, 0);
                         EXPECT_EQ(host, taken++);
                         ASSERT_EQ(text.size(), kFacts);
                         EXPECT_EQ(text[0], 'a' + host % 26);
                       });
  }
  EXPECT_EQ(taken, kHosts);
  for (const std::vector<std::string>& one : brought) {
    std::size_t bytes = 0;
    for (const std::string& part : one) bytes += part.size();
    EXPECT_LE(bytes, 64 * kFacts);
  }
}

}  // namespace
}  // namespace weft::fabric
