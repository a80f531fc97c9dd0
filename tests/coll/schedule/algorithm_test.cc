// Checks every algorithm on all small shapes and a sample of the large ones.
// labels: sim
// ctest: whole
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <limits>
#include <set>
#include <utility>

#include "coll/engine/engine.h"
#include "coll/schedule/building_blocks.h"
#include "coll/schedule/check.h"
#include "tests/coll/schedules.h"

namespace weft {
namespace {

using testing::build_all;
using testing::full_name;

constexpr int kUnlimited = std::numeric_limits<int>::max();
constexpr int kCredits[] = {0, 1, 2, kUnlimited};

std::vector<Rank> roots(Collective collective, int n) {
  if (!rooted(collective)) return {0};
  std::set<Rank> some{0, n / 2, n - 1};
  if (n <= 9)
    for (Rank r = 0; r < n; ++r) some.insert(r);
  return {some.begin(), some.end()};
}

void expect_right(const Algorithm& algorithm, Shape shape, std::span<const int> credits) {
  if (!algorithm.applies(shape)) return;
  for (Rank root : roots(algorithm.collective, shape.nranks)) {
    shape.root = root;
    const auto schedules = build_all(algorithm, shape);
    // The engine slices messages by its own rank's schedule, so all ranks' schedules must agree.
    for (const Schedule& s : schedules)
      if (by_blocks(algorithm.collective)) {
        EXPECT_EQ(wants_packed(1, s), wants_packed(1, schedules[0]))
            << full_name(algorithm) << ", " << shape.nranks << " ranks, " << shape.hosts.size()
            << " hosts, root " << root << ": ranks " << s.rank << " and 0 cut messages differently";
      }
    for (int c : credits)
      EXPECT_EQ(check(algorithm.collective, schedules, {.credits = c, .root = root}), "")
          << full_name(algorithm) << ", " << shape.nranks << " ranks, " << shape.hosts.size()
          << " hosts, root " << root << ", " << c << " credits";
  }
}

TEST(Algorithms, AreRightOnOneHostOfUpTo17) {
  for (const Algorithm& a : algorithms())
    for (int n = 1; n <= 17; ++n) expect_right(a, testing::on_one_host(n), kCredits);
}

TEST(Algorithms, AreRightOnUpTo8HostsOf8) {
  for (const Algorithm& a : algorithms())
    for (int hosts = 1; hosts <= 8; ++hosts)
      for (int per_host = 1; per_host <= 8; ++per_host)
        expect_right(a, testing::uniform(hosts, per_host), kCredits);
}

TEST(Algorithms, AreRightWhereRanksAreDealtOutOverHosts) {
  for (const Algorithm& a : algorithms())
    for (auto [hosts, per_host] : {std::pair{2, 2}, {2, 3}, {3, 2}, {4, 4}, {5, 3}, {3, 8}})
      expect_right(a, testing::round_robin(hosts, per_host), kCredits);
}

TEST(Algorithms, AreRightOnHostsOfDifferentSizes) {
  for (const Algorithm& a : algorithms())
    for (const std::vector<int>& sizes :
         {std::vector{1, 2}, {3, 1}, {1, 1, 5}, {4, 3, 2, 1}, {2, 7, 7}})
      expect_right(a, testing::is_vector(sizes), kCredits);
}

TEST(Algorithms, AreRightForPrimesAndAroundPowersOfTwo) {
  for (const Algorithm& a : algorithms())
    for (int n : {19, 23, 31, 32, 33, 61, 63, 64, 65}) {
      expect_right(a, testing::on_one_host(n), std::array{0, 2});
    }
}

TEST(Algorithms, AreRightAtLargeSizes) {
  for (const Algorithm& a : algorithms())
    for (int n : {127, 128, 129}) expect_right(a, testing::on_one_host(n), std::array{0});
}

TEST(Algorithms, HierarchicalIsRightOn128HostsOf8) {
  for (const Algorithm& a : algorithms())
    if (a.name.starts_with("hierarchical") && a.collective == Collective::kAllReduce)
      expect_right(a, testing::uniform(128, 8), std::array{0});
}

// In every algorithm: one reduction over all ranks, whose result is then distributed.
TEST(Algorithms, ReduceInTheOrderOfRanksWhereTheyMust) {
  std::vector<Shape> shapes{testing::uniform(2, 2), testing::uniform(3, 4),
                            testing::round_robin(4, 2), testing::is_vector({4, 1, 3})};
  for (int n : {1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 33}) shapes.push_back(testing::on_one_host(n));
  int free = 0;
  for (const Algorithm& a : algorithms()) {
    if (!reduces(a.collective)) continue;
    for (Shape shape : shapes) {
      if (!a.applies(shape)) continue;
      shape.root = shape.nranks / 2;
      const CheckOptions options{.root = shape.root, .canonical = true};
      free += !check(a.collective, build_all(a, shape), options).empty();
      shape.deterministic = true;
      EXPECT_EQ(check(a.collective, build_all(a, shape), options), "")
          << full_name(a) << ", " << shape.nranks << " ranks on " << shape.hosts.size() << " hosts";
    }
  }
  EXPECT_GT(free, 50) << "the check would pass anything";
}

// All blocks of an all_to_all that leave a host use the rail of their destination.
TEST(Algorithms, AnAllToAllMovesEachBlockAtMostTwice) {
  const Algorithm& a = *find_algorithm(Collective::kAllToAll, "hierarchical");
  for (const Schedule& s : build_all(a, testing::uniform(4, 3))) {
    int messages = 0, near = 0, far = 0;
    for (const Step& step : s.steps)
      if (step.op == Op::kSend) {
        messages += !step.joined;
        (step.peer / 3 == s.rank / 3 ? near : far) += step.at.count;
      }
    EXPECT_EQ(messages, 2 + 3);
    EXPECT_EQ(near, 2 * 4);
    EXPECT_EQ(far, 3 * 3);
  }
}

TEST(Algorithms, OfOneRankHaveNoSteps) {
  for (const Algorithm& a : algorithms())
    EXPECT_TRUE(a.build(Shape{}).steps.empty()) << full_name(a);
}

TEST(Algorithms, HierarchicalNeverCrossesRails) {
  for (const Algorithm& a : algorithms()) {
    if (!a.name.starts_with("hierarchical")) continue;
    for (const Schedule& s : build_all(a, testing::uniform(4, 3)))
      for (const Step& step : s.steps) {
        const bool same_host = step.peer / 3 == s.rank / 3;
        EXPECT_TRUE(same_host || step.peer % 3 == s.rank % 3) << full_name(a);
        EXPECT_EQ(step.channel, same_host ? 0 : 1) << full_name(a);
      }
  }
}

// The root's links are the bottleneck: it sends or receives the message once, in a gather or
// scatter without its own blocks; no rank forwards more than its share along its rail.
TEST(Algorithms, RootedOnesByRailMoveTheMessageOnceThroughTheRoot) {
  for (Collective c :
       {Collective::kBroadcast, Collective::kReduce, Collective::kGather, Collective::kScatter})
    for (auto [hosts, per_host] : {std::pair{2, 4}, {5, 3}, {11, 2}, {16, 8}, {17, 1}, {37, 2}}) {
      Shape shape = testing::uniform(hosts, per_host);
      shape.root = shape.nranks / 3;
      const bool out = c == Collective::kBroadcast || c == Collective::kScatter;
      const bool blocks = by_blocks(c);
      for (const Schedule& s : build_all(*find_algorithm(c, "hierarchical"), shape)) {
        int near = 0, far[2] = {0, 0};
        for (const Step& step : s.steps)
          if (step.peer / per_host == s.rank / per_host)
            near += (step.op == Op::kSend) == out ? step.at.count : 0;
          else
            far[step.op == Op::kSend] += step.at.count;
        EXPECT_LE(std::max(far[0], far[1]) * per_host, s.nchunks) << name(c) << s.rank;
        if (s.rank != shape.root) continue;
        const int others = (per_host - 1) * s.nchunks / per_host;
        EXPECT_EQ(near, blocks || per_host == 1 ? others : s.nchunks) << name(c);
        EXPECT_EQ(far[out] * per_host, s.nchunks - (blocks ? per_host : 0)) << name(c);
      }
    }
}

TEST(Algorithms, RootedOnesByRailAreRightAtManyHostCounts) {
  for (Collective c :
       {Collective::kBroadcast, Collective::kReduce, Collective::kGather, Collective::kScatter})
    for (int hosts : {9, 11, 13, 19, 33, 37, 64, 100})
      expect_right(*find_algorithm(c, "hierarchical"), testing::uniform(hosts, 2), std::array{0});
}

// Number of chunks, counted per transfer, that a rank sends to other hosts.
int sent_between_hosts(const Schedule& s, int per_host) {
  int chunks = 0;
  for (const Step& step : s.steps)
    if (step.op == Op::kSend && step.peer / per_host != s.rank / per_host) chunks += step.at.count;
  return chunks;
}

TEST(Algorithms, HierarchicalMovesTheFewestBytesBetweenHosts) {
  for (const char* name : {"hierarchical", "hierarchical_hd"})
    for (int hosts : {2, 3, 4, 5, 7, 8})
      for (const Schedule& s :
           build_all(*find_algorithm(Collective::kAllReduce, name), testing::uniform(hosts, 4)))
        // 2 (H-1)/H of the 1/g of the message that travels along the own rail
        EXPECT_EQ(sent_between_hosts(s, 4) * 4 * hosts, 2 * (hosts - 1) * s.nchunks) << name;
}

TEST(Algorithms, BandwidthOptimalOnesSendNoMoreThanTheyMust) {
  for (const char* name : {"direct", "ring", "halving_doubling"})
    for (int n = 2; n <= 33; ++n)
      for (const Schedule& s :
           build_all(*find_algorithm(Collective::kAllReduce, name), testing::on_one_host(n))) {
        int sent = 0;
        for (const Step& step : s.steps) sent += step.op == Op::kSend ? step.at.count : 0;
        EXPECT_EQ(sent, 2 * (n - 1)) << name << " of " << n;
      }
}

TEST(Algorithms, GiveSlowRailsLess) {
  Shape shape = testing::uniform(3, 2);
  shape.rail_weight = {2, 1};
  for (const char* name : {"hierarchical", "hierarchical_hd"}) {
    const Schedule s = find_algorithm(Collective::kAllReduce, name)->build(shape);
    EXPECT_EQ(s.weight, (std::vector<double>{2, 2, 2, 1, 1, 1}));
  }
  const Algorithm& broadcast = *find_algorithm(Collective::kBroadcast, "hierarchical");
  EXPECT_EQ(broadcast.build(shape).weight, (std::vector<double>{2, 2, 1, 1}));
  EXPECT_EQ(check(Collective::kBroadcast, build_all(broadcast, shape)), "");
  shape.rail_weight = {3, 3};
  EXPECT_TRUE(broadcast.build(shape).weight.empty());
}

TEST(Algorithms, AreRightWhereAHostHasSlowPorts) {
  const std::vector<std::vector<double>> rates{
      {0}, {0.5}, {0.9, 1}, {0, 0.3, 1}, {0.25, 0, 0, 0.7}};
  for (const Algorithm& a : algorithms()) {
    if (a.collective != Collective::kAllReduce) continue;
    for (auto [hosts, per_host] :
         {std::pair{2, 1}, {2, 2}, {3, 2}, {4, 2}, {5, 3}, {3, 8}, {17, 4}})
      for (std::size_t slow = 0; slow < rates.size(); ++slow) {
        Shape shape = testing::uniform(hosts, per_host);
        const int host = static_cast<int>(slow) * 2 % hosts;
        for (int l = 0; l < std::min(per_host, static_cast<int>(rates[slow].size())); ++l)
          shape.slow_ports.push_back({host, per_host - 1 - l, rates[slow][l]});
        if (slow % 2 == 1)
          for (int l = 0; l < per_host; ++l) shape.rail_weight.push_back(l == 0 ? 0.8 : 1);
        expect_right(a, shape, hosts > 5 ? std::span<const int>(kCredits, 2) : kCredits);
      }
  }
}

TEST(Algorithms, AreRightWhereSeveralHostsHaveSlowPorts) {
  const std::vector<std::vector<SlowPort>> all{
      {{0, 0, 0.5}, {2, 1, 0.5}},
      {{1, 0, 0}, {1, 1, 0.4}, {2, 0, 0.9}},
      {{0, 0, 0.5}, {0, 1, 0.5}, {1, 0, 0.25}, {1, 1, 0.25}},
      {{0, 1, 0}, {2, 1, 0.1}},
      {{0, 0, 0.5}, {1, 0, 0.5}, {2, 0, 0.5}}};
  for (const char* name : {"hierarchical", "hierarchical_hd", "hierarchical_hd4"})
    for (auto [hosts, per_host] : {std::pair{3, 2}, {4, 2}, {5, 3}, {7, 8}, {19, 4}})
      for (const std::vector<SlowPort>& ports : all) {
        Shape shape = testing::uniform(hosts, per_host);
        shape.slow_ports = ports;
        const bool all_slow = hosts == 3 && &ports == &all.back();
        EXPECT_EQ(slow_hosts(shape).empty(), all_slow);
        expect_right(*find_algorithm(Collective::kAllReduce, name), shape,
                     hosts > 5 ? std::span<const int>(kCredits, 2) : kCredits);
      }
}

// The share of the message that passes each port of a host, both directions added.
std::vector<double> sent_by_port(const Algorithm& a, const Shape& shape, int host) {
  std::vector<double> sent;
  for (const Rank r : shape.hosts[static_cast<std::size_t>(host)]) {
    Shape of = shape;
    of.rank = r;
    const Schedule s = a.build(of);
    double all = 0, mine = 0;
    for (const double w : s.weight) all += w;
    for (const Step& step : s.steps) {
      const auto& here = shape.hosts[static_cast<std::size_t>(host)];
      if (step.op != Op::kSend || std::ranges::count(here, step.peer) > 0) continue;
      for (int c = step.at.first; c < step.at.end(); ++c) mine += s.weight[c];
    }
    sent.push_back(mine / all);
  }
  return sent;
}

// The largest bytes / rate of any port is within 3 % of the bound from the rates.
TEST(Algorithms, PortsAreBusyByTheirRates) {
  struct Case {
    int hosts, per_host;
    std::vector<double> rates;
  };
  for (const auto& [hosts, per_host, rates] :
       {Case{4, 2, {0.5}}, Case{4, 2, {0.25}}, Case{32, 8, {0.5}}, Case{32, 8, {0}},
        Case{31, 4, {0.1, 0.9}}, Case{6, 1, {0.6}}, Case{9, 4, {0.5, 0.5, 0.5, 0.5}},
        Case{2, 4, {0.3}}}) {
    Shape shape = testing::uniform(hosts, per_host);
    const int slow_host = hosts / 2;
    double live = per_host;
    for (std::size_t l = 0; l < rates.size(); ++l) {
      shape.slow_ports.push_back({slow_host, static_cast<int>(l), rates[l]});
      live -= 1 - rates[l];
    }
    const double bound = std::max(1 / live, 2.0 * (hosts - 1) / (per_host * (hosts - 1) + live));
    for (const char* name : {"hierarchical", "hierarchical_hd", "hierarchical_hd4"}) {
      double longest = 0;
      for (int h = 0; h < hosts; ++h) {
        const auto sent = sent_by_port(*find_algorithm(Collective::kAllReduce, name), shape, h);
        for (std::size_t l = 0; l < sent.size(); ++l) {
          const double rate = h == slow_host && l < rates.size() ? rates[l] : 1;
          if (rate == 0) {
            EXPECT_EQ(sent[l], 0) << name;
          } else {
            longest = std::max(longest, sent[l] / rate);
          }
        }
      }
      EXPECT_LE(longest, 1.03 * bound) << name << ", " << hosts << " x " << per_host;
      EXPECT_GE(longest, 0.999 * bound) << name << ", " << hosts << " x " << per_host;
    }
  }
}

// Likewise for two slow hosts, on the same rail and on different ones: within 5 %, since both
// reduce the share of the slower one.
TEST(Algorithms, PortsOfSeveralSlowHostsAreBusyByTheirRates) {
  for (const int rail : {0, 3})
    for (const double rate : {0.5, 0.25}) {
      Shape shape = testing::uniform(24, 4);
      shape.slow_ports = {{5, 0, rate}, {17, rail, rate}};
      const double bound = std::max(1 / (3 + rate), 2.0 * 23 / (24 * 4 - 2 * (1 - rate)));
      for (const char* name : {"hierarchical", "hierarchical_hd", "hierarchical_hd4"}) {
        double longest = 0;
        for (int h = 0; h < 24; ++h) {
          const auto sent = sent_by_port(*find_algorithm(Collective::kAllReduce, name), shape, h);
          for (std::size_t l = 0; l < sent.size(); ++l) {
            const bool slow = (h == 5 && l == 0) || (h == 17 && static_cast<int>(l) == rail);
            longest = std::max(longest, sent[l] / (slow ? rate : 1));
          }
        }
        EXPECT_LE(longest, 1.05 * bound) << name << ", rail " << rail << " at " << rate;
        EXPECT_GE(longest, 0.999 * bound) << name << ", rail " << rail << " at " << rate;
      }
    }
}

TEST(Algorithms, DirectRotatesItsPeers) {
  // In no step do two ranks send to the same rank.
  const auto schedules =
      build_all(*find_algorithm(Collective::kAllReduce, "direct"), testing::on_one_host(7));
  for (int i = 0; i < 6; ++i) {
    std::set<Rank> targets;
    for (const Schedule& s : schedules) targets.insert(s.steps[i].peer);
    EXPECT_EQ(targets.size(), 7u);
  }
}

TEST(Registry, FindsByCollectiveAndName) {
  std::set<std::string> names;
  for (const Algorithm& a : algorithms()) {
    EXPECT_EQ(find_algorithm(a.collective, a.name), &a);
    EXPECT_TRUE(names.insert(full_name(a)).second) << full_name(a) << " is there twice";
    EXPECT_FALSE(a.about.empty());
  }
  EXPECT_EQ(find_algorithm(Collective::kBarrier, "ring"), nullptr);
  EXPECT_EQ(algorithm_names(Collective::kBroadcast), "direct, ring, hierarchical, tree");
}

TEST(Registry, NotAllHaveRailsWhereHostsDiffer) {
  const Algorithm& a = *find_algorithm(Collective::kAllReduce, "hierarchical");
  const Algorithm& b = *find_algorithm(Collective::kBarrier, "hierarchical");
  EXPECT_TRUE(a.applies(testing::is_vector({2, 1})));
  EXPECT_FALSE(b.applies(testing::is_vector({2, 1})));
  EXPECT_TRUE(b.applies(testing::is_vector({2, 2})));
  EXPECT_TRUE(a.applies(testing::on_one_host(5)));
}

// A program may hold its World in a static object that is constructed before weft's own static
// objects.
constexpr int kStillThere = 7, kGone = 8;
struct Program {
  ~Program() {
    if (ends) _exit(find_algorithm(Collective::kAllReduce, "flat") == flat ? kStillThere : kGone);
  }
  const Algorithm* flat = nullptr;
  bool ends = false;
} program;

TEST(Registry, OutlivesStaticObjects) {
  program.flat = find_algorithm(Collective::kAllReduce, "flat");
  ASSERT_NE(program.flat, nullptr);
  EXPECT_EXIT(
      {
        program.ends = true;
        std::exit(kGone);
      },
      ::testing::ExitedWithCode(kStillThere), "");
}

}  // namespace
}  // namespace weft
