// The simulated fabric under the conformance suite: eager and rendezvous, with delays and
// reordering, across hosts and rails, with core costs, and without data.
// labels: sim
// ctest: alone
#include "transport/conformance.h"
#include "transport/sim/sim.h"

namespace weft::testing {
namespace {

Endpoints endpoints_of(SimFabricOptions options) {
  auto fabric = std::make_shared<SimFabric>(std::move(options));
  Endpoints out;
  for (Rank r = 0; r < fabric->nranks(); ++r) out.ends.push_back(fabric->endpoint(r));
  out.idle = [f = fabric.get()] { f->advance(); };
  out.kill = [f = fabric.get()](Rank r) { f->kill(r); };
  out.threads = false;
  out.below = std::move(fabric);
  return out;
}

std::vector<Maker> makers() {
  const auto maker = [](std::string name, auto change) {
    return Maker{std::move(name), [change](int n) {
                   SimFabricOptions o;
                   for (int r = 0; r < n; ++r) {
                     o.host_of_rank.push_back(r);
                     o.rail_of_rank.push_back(0);
                   }
                   change(o);
                   return endpoints_of(std::move(o));
                 }};
  };
  return {
      maker("OneRail", [](SimFabricOptions&) {}),
      maker("OneHost", [](SimFabricOptions& o) { std::ranges::fill(o.host_of_rank, 0); }),
      maker("Rendezvous", [](SimFabricOptions& o) { o.eager_below = 0; }),
      maker("Eager", [](SimFabricOptions& o) { o.eager_below = SIZE_MAX; }),
      maker("CrossRailReordered",
            [](SimFabricOptions& o) {
              for (std::size_t r = 0; r < o.rail_of_rank.size(); ++r) {
                o.host_of_rank[r] = static_cast<int>(r / 2);
                o.rail_of_rank[r] = static_cast<int>(r % 3);
              }
              o.delay_us_max = 300;
              o.reorder = true;
            }),
      maker("Cores",
            [](SimFabricOptions& o) {
              o.cpu_of_rank.assign(o.host_of_rank.size(), 0);
              o.post_us = o.complete_us = 1;
              o.copy_us_per_byte = 0.0001;
              o.delay_us_max = 10;
            }),
      maker("NoViews", [](SimFabricOptions& o) { o.views = false; }),
      maker("Phantom", [](SimFabricOptions& o) { o.carry_data = false; }),
  };
}

INSTANTIATE_TEST_SUITE_P(Sim, Conformance, ::testing::ValuesIn(makers()), maker_name);

}  // namespace
}  // namespace weft::testing
