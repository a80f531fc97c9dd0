// Builds the simulated fabric for a shape and a machine, and its cost model.
#include <algorithm>
#include <functional>

#include "coll/sim/simulate.h"

namespace weft {

CostModel model_of(const SimFabricOptions& o) {
  const auto GBps = [](double us_per_byte) { return us_per_byte > 0 ? 1e-3 / us_per_byte : 0; };
  double speed = 0;
  for (const double scale : o.rail_scale) speed += scale;
  const double scale = o.rail_scale.empty() ? 1 : speed / static_cast<double>(o.rail_scale.size());
  Machine machine;
  machine.host = {o.host.latency_us, o.host.gbps};
  machine.rail = {o.rail.latency_us, o.rail.gbps * scale};
  machine.spine = {o.spine.latency_us, o.spine.gbps};
  machine.payload_share = o.payload_share;
  machine.core_us = (o.post_us + o.complete_us) / 2;
  machine.reduce_GBps = GBps(o.reduce_us_per_byte);
  machine.copy_GBps = GBps(o.copy_us_per_byte);
  machine.rail_copies = o.rail_copies;
  CostModel m = costs_of(machine);
  m.eager_bytes = static_cast<double>(o.eager_below);
  m.fan_in_penalty = 0;
  if (o.uplink_gbps > 0) m.uplink_us_per_byte = 8 / (o.uplink_gbps * o.payload_share * 1e3);
  if (!o.rail_of_rank.empty()) m.rails_per_host = 1 + std::ranges::max(o.rail_of_rank);
  return m;
}

SimFabricOptions fabric_of(const Shape& shape, int rails) {
  SimFabricOptions options;
  const auto n = static_cast<std::size_t>(shape.nranks);
  options.host_of_rank.assign(n, 0);
  options.rail_of_rank.assign(n, 0);
  const auto place = [&](Rank r, std::size_t host, std::size_t local) {
    options.host_of_rank[static_cast<std::size_t>(r)] = static_cast<int>(host);
    options.rail_of_rank[static_cast<std::size_t>(r)] =
        static_cast<int>(rails > 0 ? local % static_cast<std::size_t>(rails) : local);
  };
  for (std::size_t h = 0; h < shape.hosts.size(); ++h)
    for (std::size_t l = 0; l < shape.hosts[h].size(); ++l) place(shape.hosts[h][l], h, l);
  if (shape.hosts.empty())
    for (Rank r = 0; r < shape.nranks; ++r) place(r, 0, static_cast<std::size_t>(r));
  return options;
}

void set_machine(SimFabricOptions& o, const Machine& m) {
  const auto us_per_byte = [](double GBps) { return GBps > 0 ? 1e-3 / GBps : 0; };
  o.host = {m.host.us, m.host.gbps};
  o.rail = {m.rail.us, m.rail.gbps};
  o.spine = {m.spine.us, m.spine_gbps()};
  o.payload_share = m.payload_share;
  // The fabric has the same cost per message within a host and between hosts.
  const bool rails =
      std::ranges::adjacent_find(o.host_of_rank, std::not_equal_to<>()) != o.host_of_rank.end();
  o.post_us = o.complete_us = m.core_us + (rails ? m.rail_core_us : 0);
  o.reduce_us_per_byte = us_per_byte(m.reduce_GBps);
  o.copy_us_per_byte = us_per_byte(m.copy_GBps);
  o.rail_copies = m.rail_copies;
}

SimFabricOptions fabric_of(const Shape& shape, int rails, const Machine& machine) {
  SimFabricOptions options = fabric_of(shape, rails);
  set_machine(options, machine);
  options.carry_data = false;
  return options;
}

}  // namespace weft
