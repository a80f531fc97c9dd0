#include "coll/schedule/schedule.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "tests/coll/schedules.h"

namespace weft {
namespace {

TEST(Chunks, PartsCoverTheRangeInOrder) {
  for (int count = 0; count <= 20; ++count)
    for (int n = 1; n <= 9; ++n) {
      const Chunks whole{5, count};
      int next = 5;
      for (int i = 0; i < n; ++i) {
        const Chunks part = whole.part(i, n);
        EXPECT_EQ(part.first, next);
        EXPECT_EQ(part.count, count / n + (i < count % n ? 1 : 0));
        next = part.end();
      }
      EXPECT_EQ(next, whole.end());
    }
}

TEST(Chunks, PartIsModulo) {
  const Chunks whole{2, 7};
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(whole.part(i + 3, 3), whole.part(i, 3));
    EXPECT_EQ(whole.part(i - 3, 3), whole.part(i, 3));
    EXPECT_EQ(whole.part(i - 9, 3), whole.part(i, 3));
  }
}

TEST(Group, AtIsModulo) {
  const std::vector<Rank> ranks{4, 7, 9};
  const Group g{ranks, 1};
  EXPECT_EQ(g.size(), 3);
  EXPECT_EQ(g.at(0), 4);
  EXPECT_EQ(g.at(-1), 9);
  EXPECT_EQ(g.at(4), 7);
  EXPECT_EQ(g.at(-6), 4);
}

TEST(Schedule, LeavesOutStepsOfNothingAndToItself) {
  Schedule s;
  s.rank = 1;
  s.nranks = 3;
  s.nchunks = 4;
  s.send(1, s.all());
  s.recv(0, {2, 0});
  EXPECT_TRUE(s.steps.empty());
  s.send(0, {0, 1}, 2);
  s.recv(2, {1, 1});
  s.recv_reduce(2, {2, 2});
  const std::vector<Step> expected{
      {Op::kSend, 0, 2, {0, 1}}, {Op::kRecv, 2, 0, {1, 1}}, {Op::kRecvReduce, 2, 0, {2, 2}}};
  EXPECT_EQ(s.steps, expected);
}

TEST(Schedule, PrintsAsText) {
  Schedule s;
  s.nranks = s.nchunks = 4;
  s.send(1, {3, 1});
  s.recv_reduce(3, {0, 2}, 1);
  s.recv(2, {2, 1});
  EXPECT_EQ(to_string(s),
            "rank 0 of 4, 4 chunks\n"
            "  0 send  -> 1  chunks [3,4)  channel 0\n"
            "  1 recv_reduce  <- 3  chunks [0,2)  channel 1\n"
            "  2 recv  <- 2  chunks [2,3)  channel 0\n");
  s.steps.clear();
  s.block = {0, 2, 1, 3};
  s.weight = {1, 0.5, 1, 1};
  EXPECT_EQ(to_string(s), "rank 0 of 4, 4 chunks\n  block 0 2 1 3\n  weight 1 0.5 1 1\n");
}

TEST(Schedule, HashTellsEveryFieldApart) {
  Schedule s;
  s.nranks = s.nchunks = 4;
  s.send(1, {3, 1});
  s.recv(2, {2, 1});
  const auto changed = [&](auto change) {
    Schedule other = s;
    change(other);
    return hash(other);
  };
  EXPECT_EQ(hash(s), changed([](Schedule&) {}));
  std::set<std::uint64_t> hashes{hash(s)};
  hashes.insert(changed([](Schedule& o) { o.rank = 1; }));
  hashes.insert(changed([](Schedule& o) { o.nranks = 5; }));
  hashes.insert(changed([](Schedule& o) { o.nchunks = 5; }));
  hashes.insert(changed([](Schedule& o) { o.steps.pop_back(); }));
  hashes.insert(changed([](Schedule& o) { std::swap(o.steps[0], o.steps[1]); }));
  hashes.insert(changed([](Schedule& o) { o.steps[0].op = Op::kRecv; }));
  hashes.insert(changed([](Schedule& o) { o.steps[0].peer = 2; }));
  hashes.insert(changed([](Schedule& o) { o.steps[0].channel = 1; }));
  hashes.insert(changed([](Schedule& o) { o.steps[0].at.first = 2; }));
  hashes.insert(changed([](Schedule& o) { o.steps[0].at.count = 2; }));
  hashes.insert(changed([](Schedule& o) { o.block = {0, 1, 2, 3}; }));
  hashes.insert(changed([](Schedule& o) { o.weight = {1, 1, 1, 2}; }));
  hashes.insert(changed([](Schedule& o) { o.steps[0].joined = true; }));
  hashes.insert(changed([](Schedule& o) { o.packs = true; }));
  EXPECT_EQ(hashes.size(), 15u);
}

// Golden schedules: golden/<collective>.<algorithm>.<hosts>x<ranks per host>.txt. After an intended
// change, WEFT_UPDATE_GOLDEN=1 rewrites them; read the diff before you commit it.
const std::filesystem::path kGolden = std::filesystem::path(__FILE__).parent_path() / "golden";

std::string print_all(Collective collective, const std::string& algorithm, Shape shape) {
  const Algorithm* a = find_algorithm(collective, algorithm);
  if (a == nullptr) return "no such algorithm";
  std::string text;
  for (const Schedule& s : testing::build_all(*a, shape)) text += to_string(s);
  return text;
}

TEST(Golden, SchedulesAreAsTheyWere) {
  struct Case {
    Collective collective;
    const char* algorithm;
    int hosts, per_host;
  };
  constexpr Case kCases[] = {
      {Collective::kAllReduce, "direct", 1, 3},
      {Collective::kAllReduce, "flat", 1, 3},
      {Collective::kAllReduce, "ring", 1, 4},
      {Collective::kAllReduce, "recursive_doubling", 1, 3},
      {Collective::kAllReduce, "recursive_doubling", 1, 4},
      {Collective::kAllReduce, "halving_doubling", 1, 4},
      {Collective::kAllReduce, "halving_doubling", 1, 5},
      {Collective::kAllReduce, "hierarchical", 3, 2},
      {Collective::kAllReduce, "hierarchical_leader", 2, 2},
      {Collective::kAllGather, "hierarchical", 2, 2},
      {Collective::kReduceScatter, "hierarchical_hd", 2, 2},
      {Collective::kBroadcast, "hierarchical", 2, 3},
      {Collective::kBroadcast, "hierarchical", 5, 1},
      {Collective::kBroadcast, "tree", 2, 3},
      {Collective::kBarrier, "dissemination", 1, 3},
      {Collective::kReduce, "direct", 1, 3},
      {Collective::kReduce, "hierarchical", 2, 2},
      {Collective::kReduce, "tree", 2, 3},
      {Collective::kGather, "tree", 2, 3},
      {Collective::kScatter, "tree", 2, 3},
      {Collective::kGather, "hierarchical", 3, 2},
      {Collective::kScatter, "hierarchical", 3, 2},
      {Collective::kAllToAll, "pairwise", 1, 3},
      {Collective::kAllToAll, "bruck", 1, 5},
      {Collective::kAllToAll, "hierarchical", 2, 2},
  };
  for (const Case& c : kCases) {
    std::ostringstream file;
    file << name(c.collective) << "." << c.algorithm << "." << c.hosts << "x" << c.per_host
         << ".txt";
    const std::string now =
        print_all(c.collective, c.algorithm, testing::uniform(c.hosts, c.per_host));
    if (std::getenv("WEFT_UPDATE_GOLDEN") != nullptr) std::ofstream(kGolden / file.str()) << now;
    std::ifstream in(kGolden / file.str());
    ASSERT_TRUE(in) << "no " << file.str() << "; write it with WEFT_UPDATE_GOLDEN=1";
    std::ostringstream before;
    before << in.rdbuf();
    EXPECT_EQ(now, before.str()) << file.str();
  }
}

}  // namespace
}  // namespace weft
