// Conditions under which a plan stages a result, i.e. reduces it into transport memory.
#include "coll/engine/plan.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "coll/schedules.h"

namespace weft {
namespace {

using testing::full_name;
using testing::uniform;

// Staged memory belongs to one transport and lives until that transport's sends complete: a send
// over another transport could read overwritten memory.
TEST(Plan, StagesNoResultThatGoesOverTwoLinks) {
  int staged = 0, over_two = 0;
  const std::vector<Link> links{{.views = true}, {.views = false}};
  for (const auto& [hosts, each] : {std::pair{1, 4}, {2, 2}, {3, 2}})
    for (const Algorithm& a : algorithms()) {
      const Shape shape = uniform(hosts, each);
      if (a.collective == Collective::kBarrier || !a.applies(shape)) continue;
      std::vector<Rank> world(static_cast<std::size_t>(shape.nranks));
      std::iota(world.begin(), world.end(), 0);
      const Schedule schedule = a.build(shape);
      const Rank me = schedule.rank;
      const auto host = [each = each](Rank r) { return r / each; };
      const Plan plan =
          compile(schedule,
                  {.collective = a.collective,
                   .network = hosts > 1,
                   .world = world,
                   .links = links,
                   .link_of = [&](Rank peer, int) { return host(peer) != host(me) ? 1 : 0; }},
                  false);
      SCOPED_TRACE(full_name(a));
      std::vector<bool> two(plan.nodes.size());
      for (const Node& node : plan.nodes) {
        if (node.kind != Node::Kind::kSend || node.result_of < 0) continue;
        const auto reduce = static_cast<std::size_t>(node.result_of);
        if (plan.nodes[reduce].link == node.link) continue;
        two[reduce] = true;
        EXPECT_FALSE(plan.nodes[reduce].stages);
      }
      for (std::size_t i = 0; i < plan.nodes.size(); ++i) {
        if (plan.nodes[i].kind != Node::Kind::kReduce) continue;
        staged += plan.nodes[i].stages;
        over_two += two[i];
        EXPECT_NE(plan.nodes[i].stages, two[i]);
      }
    }
  EXPECT_GT(staged, 0);
  EXPECT_GT(over_two, 0) << "the case does not occur: nothing is tested";
}

// A pair of ranks uses a tag for one message at a time; in a ring, all messages go to one peer.
TEST(Plan, MessagesOfALongRingHaveOrdinalsOfTheirOwn) {
  const std::vector<Link> links{{.views = false}};
  const auto plan_of = [&](const Shape& shape) {
    std::vector<Rank> world(static_cast<std::size_t>(shape.nranks));
    std::iota(world.begin(), world.end(), 0);
    return compile(find_algorithm(Collective::kAllReduce, "ring")->build(shape),
                   {.collective = Collective::kAllReduce,
                    .network = true,
                    .world = world,
                    .links = links,
                    .link_of = [](Rank, int) { return 0; }},
                   false);
  };
  const Plan plan = plan_of(uniform(2100, 1));
  std::set<std::pair<Rank, std::uint32_t>> sent, received;
  std::size_t sends = 0, receives = 0;
  for (const Node& node : plan.nodes) {
    if (node.kind == Node::Kind::kReduce) continue;
    const bool sends_it = node.kind == Node::Kind::kSend;
    (sends_it ? sends : receives) += 1;
    (sends_it ? sent : received).insert({node.peer, node.ordinal});
  }
  EXPECT_EQ(sends, 2u * 2099);
  EXPECT_EQ(sent.size(), sends);
  EXPECT_EQ(received.size(), receives);
  EXPECT_THROW(plan_of(uniform(10'000, 1)), Error) << "rather than to use one twice";
}

}  // namespace
}  // namespace weft
