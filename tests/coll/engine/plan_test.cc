// Where a plan lets a result be produced in memory of a transport.
#include "coll/engine/plan.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "coll/schedules.h"

namespace weft {
namespace {

using testing::full_name;
using testing::uniform;

// Staged memory belongs to one transport, and lives as long as that transport's sends need it: a
// send over another one would read what somebody else writes there.
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

}  // namespace
}  // namespace weft
