// The rail contract: which algorithms keep it, that every violating step is found, and that
// violations are refused with the path.
#include "coll/schedule/rail_contract.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "support/jobs/ranks.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Shape shape_of(int nhosts, int per_host, int nrails) {
  Shape s;
  s.nranks = nhosts * per_host;
  for (int h = 0; h < nhosts; ++h) {
    s.hosts.emplace_back();
    for (int l = 0; l < per_host; ++l) {
      s.hosts.back().push_back(h * per_host + l);
      s.rail.push_back(l * nrails / per_host);
    }
  }
  return s;
}

TEST(RailContract, AlgorithmsMadeForRailsKeepIt) {
  for (const int nhosts : {2, 3, 4})
    for (const int per_host : {2, 4}) {
      const Shape shape = shape_of(nhosts, per_host, 2);
      for (const Algorithm& a : algorithms()) {
        if (!a.name.starts_with("hierarchical") || !a.applies(shape)) continue;
        const auto breach = find_breach(a, shape);
        EXPECT_FALSE(breach) << name(a.collective) << " " << a.name << ": " << to_string(*breach);
      }
    }
}

TEST(RailContract, EveryCollectiveThatNeedsNoRootHasOneThatKeepsIt) {
  const Shape shape = shape_of(3, 2, 2);
  for (const Collective c :
       {Collective::kAllReduce, Collective::kAllGather, Collective::kReduceScatter,
        Collective::kAllToAll, Collective::kBarrier, Collective::kBroadcast}) {
    bool any = false;
    for (const Algorithm& a : algorithms())
      any = any || (a.collective == c && a.applies(shape) && !find_breach(a, shape));
    EXPECT_TRUE(any) << name(c);
  }
}

TEST(RailContract, AFlatAlgorithmBreaksIt) {
  const auto breach =
      find_breach(*find_algorithm(Collective::kAllReduce, "direct"), shape_of(2, 2, 2));
  ASSERT_TRUE(breach);
  EXPECT_EQ(breach->from, 0);
  EXPECT_EQ(breach->to, 3);
  EXPECT_EQ(breach->by_way_of, 1);
  EXPECT_THAT(to_string(*breach),
              HasSubstr("rank 0 (host 0, rail 0) -> rank 3 (host 1, rail 1): step "));
  EXPECT_THAT(to_string(*breach), HasSubstr("0 -> 1 (inside host 0) -> 3 (along rail 1)"));
}

TEST(RailContract, OneRailOrOneHostHasNone) {
  const Algorithm& direct = *find_algorithm(Collective::kAllReduce, "direct");
  EXPECT_FALSE(find_breach(direct, shape_of(2, 2, 1)));
  EXPECT_FALSE(find_breach(direct, shape_of(1, 4, 2)));
}

// Redirects any single send of a correct schedule to another rank: found exactly if it leaves the
// rail.
TEST(RailContract, EveryStrayStepIsFound) {
  int found = 0;
  Shape shape = shape_of(3, 4, 4);
  const Algorithm& a = *find_algorithm(Collective::kAllToAll, "hierarchical");
  for (shape.rank = 0; shape.rank < shape.nranks; ++shape.rank) {
    const Schedule right = a.build(shape);
    ASSERT_FALSE(find_breach(right, shape));
    for (std::size_t i = 0; i < right.steps.size(); ++i)
      for (Rank peer = 0; peer < shape.nranks; ++peer) {
        if (right.steps[i].op != Op::kSend || peer == shape.rank) continue;
        Schedule wrong = right;
        wrong.steps[i].peer = peer;
        const bool leaves = peer / 4 != shape.rank / 4 && peer % 4 != shape.rank % 4;
        const auto breach = find_breach(wrong, shape);
        ASSERT_EQ(breach.has_value(), leaves) << "step " << i << " to " << peer;
        if (breach) {
          ASSERT_EQ(breach->step, i);
          ++found;
        }
      }
  }
  EXPECT_GT(found, 1000);
}

// For large clusters, only a representative sample of hosts is checked.
TEST(RailContract, SomeHostsSpeakForAll) {
  std::vector<Shape> shapes;
  for (const auto& [nhosts, per_host, nrails] :
       {std::tuple{16, 8, 8}, {9, 8, 8}, {24, 4, 2}, {67, 1, 1}, {33, 2, 2}})
    shapes.push_back(shape_of(nhosts, per_host, nrails));
  for (unsigned seed = 1; seed <= 8; ++seed) {  // hosts of 1 to 8 ranks
    std::minstd_rand random(seed);
    Shape s;
    s.nranks = 0;
    for (unsigned h = 0; h < 20 + seed; ++h) {
      s.hosts.emplace_back();
      for (int l = static_cast<int>(random() % 8); l >= 0; --l) {
        s.hosts.back().push_back(s.nranks++);
        s.rail.push_back(l);
      }
    }
    shapes.push_back(s);
  }
  for (const Shape& shape : shapes) {
    for (const Algorithm& a : algorithms())
      if (a.applies(shape)) {
        bool any = false;
        for (Shape of_rank = shape; of_rank.rank < shape.nranks; ++of_rank.rank)
          any = any || find_breach(a.build(of_rank), of_rank);
        EXPECT_EQ(find_breach(a, shape).has_value(), any)
            << name(a.collective) << " " << a.name << ", " << shape.hosts.size() << " hosts, "
            << shape.nranks << " ranks";
      }
  }
}

// ---- communicators -------------------------------------------------------------------------

TEST(RailContract, ACommunicatorRefusesAndNamesThePath) {
  testing::run_ranks(testing::places({2, 2}, 2), {}, [](World& world) {
    Communicator c = world.world();
    try {
      c.set_algorithm(Collective::kAllReduce, "ring");
      ADD_FAILURE() << "taken";
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), HasSubstr("rank 1 (host 0, rail 1) -> rank 2 (host 1, rail 0)"));
      EXPECT_THAT(e.what(), HasSubstr("WEFT_CROSS_RAIL=allow"));
    }
    std::vector<float> v(100'000, 1.0f);
    for (const std::size_t n : {std::size_t{1}, std::size_t{1000}, v.size()}) {
      c.all_reduce(v.data(), v.data(), n, DType::kFloat32, RedOp::kMax).check();
      const Algorithm* chosen = find_algorithm(Collective::kAllReduce, c.last_algorithm());
      ASSERT_NE(chosen, nullptr) << c.last_algorithm();
      // The choice is not limited to hierarchical ones: with 2x2 ranks, recursive doubling
      // qualifies.
      EXPECT_FALSE(find_breach(*chosen, shape_of(2, 2, 2))) << chosen->name;
    }
  });
}

TEST(RailContract, WhatNoAlgorithmCanIsRefusedOnlyWhereItMustBe) {
  for (const char* policy : {"auto", "never", "allow"}) {
    WorldOptions options;
    options.cross_rail = policy;
    testing::run_ranks(testing::places({2, 1}, 1), options, [](World& world) {
      float x = 1;
      world.world().all_reduce(&x, &x, 1, DType::kFloat32, RedOp::kSum).check();
      EXPECT_EQ(x, 3);
    });
    testing::run_ranks(testing::places({2, 2}, 2), options, [&](World& world) {
      // With blocks of different sizes only the two ends know a size, so no rank can forward them.
      const std::vector<std::size_t> counts(4, 10'000);
      std::vector<float> in(40'000, 1.0f), out(40'000);
      const Status s =
          world.world().all_to_all_v(in.data(), counts, out.data(), counts, DType::kFloat32);
      if (std::string(policy) == "never") {
        EXPECT_EQ(s.code(), Code::kInvalidArgument);
        EXPECT_THAT(s.message(), HasSubstr("leaves its rail: rank "));
      } else {
        EXPECT_TRUE(s.ok()) << s.to_string();
      }
    });
  }
}

// An all_to_all_v runs pairwise, whatever algorithm was requested; the requested algorithm keeps
// the contract.
TEST(RailContract, AnAlgorithmThatWasAskedForDoesNotStopBlocksOfDifferentSizes) {
  testing::run_ranks(testing::places({2, 2}, 2), {}, [](World& world) {
    Communicator c = world.world();
    c.set_algorithm(Collective::kAllToAll, "hierarchical");
    const std::vector<std::size_t> counts(4, 1);
    std::vector<float> in(4, static_cast<float>(c.rank())), out(4);
    const Status s = c.all_to_all_v(in.data(), counts, out.data(), counts, DType::kFloat32);
    EXPECT_TRUE(s.ok()) << s.to_string();
    EXPECT_EQ(out, (std::vector<float>{0, 1, 2, 3}));
  });
}

// In deterministic mode the named algorithm leaves its rails: the caller's calls are refused, but
// not the internal calls that create a communicator.
TEST(RailContract, AnAlgorithmThatDoesNotDoAnyMoreDoesNotStopNewCommunicators) {
  testing::run_ranks(testing::places({2, 2}, 2), {}, [](World& world) {
    Communicator c = world.world();
    c.set_algorithm(Collective::kAllReduce, "hierarchical");
    c.set_deterministic(true);
    std::vector<float> x(50'000, 1);
    const auto sum = [&] {
      return c.all_reduce(x.data(), x.data(), x.size(), DType::kFloat32, RedOp::kSum);
    };
    EXPECT_THAT(sum().message(), HasSubstr("all_reduce hierarchical leaves its rail"));
    EXPECT_EQ(c.split(c.rank() % 2).size(), 2);
    EXPECT_EQ(c.duplicate().size(), 4);
    EXPECT_EQ(sum().code(), Code::kInvalidArgument);  // it is still named
  });
}

// Checked when a communicator is created: of three ranks, the one alone on its host is not on the
// rail of both others.
TEST(RailContract, IsProvedWhenACommunicatorIsMade) {
  std::set<Collective> without;
  // The single rank of its host is near a rail that no rank of the other host has.
  const Shape shape = [] {
    Shape s;
    s.nranks = 3;
    s.hosts = {{0, 1}, {2}};
    s.rail = {0, 1, 2};
    return s;
  }();
  for (const Algorithm& a : algorithms())
    if (a.applies(shape)) without.insert(a.collective);
  for (const Algorithm& a : algorithms())
    if (a.applies(shape) && !find_breach(a, shape)) without.erase(a.collective);
  for (const char* policy : {"auto", "never", "allow"}) {
    WorldOptions options;
    options.cross_rail = policy;
    auto jobs = local_jobs(3);
    auto places = testing::places({2, 1}, 3);
    places[2].numa_node = 1;
    for (Place& place : places) place.rails[2].numa_node = 1;
    std::vector<std::thread> threads;
    std::vector<std::string> errors(3);
    for (std::size_t r = 0; r < 3; ++r)
      threads.emplace_back([&, r] {
        try {
          World(std::move(jobs[r]), places[r], options);
        } catch (const Error& e) {
          errors[r] = e.what();
        }
      });
    for (auto& t : threads) t.join();
    for (const std::string& e : errors) {
      if (without.empty() || std::string(policy) != "never") {
        EXPECT_EQ(e, "");
        continue;
      }
      EXPECT_THAT(e, AllOf(HasSubstr("keeps to the rails of these 3 ranks"), HasSubstr(" -> rank "),
                           HasSubstr(name(*without.begin()))));
    }
  }
  EXPECT_FALSE(without.empty()) << "this shape shows nothing";
}

TEST(RailContract, AnUnknownPolicyIsNamed) {
  WorldOptions options;
  options.cross_rail = "maybe";
  auto jobs = local_jobs(1);
  EXPECT_THROW(World(std::move(jobs[0]), testing::places({1})[0], options), Error);
}

}  // namespace
}  // namespace weft
