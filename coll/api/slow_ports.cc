// Sets the slow ports of a job, and applies them to the shapes of communicators.
#include "coll/select/slow_ports.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <utility>

#include "coll/runtime/selector.h"

namespace weft {

PortNames port_names(const Topology& topology) {
  PortNames names;
  for (int h = 0; h < topology.nhosts(); ++h) names.hosts.push_back(topology.host_name(h));
  for (int r = 0; r < topology.nrails(); ++r) names.rails.push_back(topology.slot(r));
  return names;
}

void set_slow_ports(Core& core, const char* what, const std::string& text) {
  std::vector<PortRate> ports = parse_slow_ports(what, text, port_names(*core.topology));
  const auto known = std::ranges::find(core.port_sets, ports);
  core.port_set = static_cast<std::uint32_t>(known - core.port_sets.begin());
  if (known == core.port_sets.end()) core.port_sets.push_back(std::move(ports));
  core.groups.forget_candidates();
  ++core.selection;
  for (const auto& [id, g] : core.groups.all) {
    if (!g) continue;
    shape_ports(*g);
    g->picks.clear();
    g->settled = {};
  }
}

WorldOptions options_for(Core& core, const std::vector<Rank>& left) {
  const CoreLock lock(core.mutex);
  const Topology& topology = *core.topology;
  WorldOptions of = core.options;
  std::vector<PortRate> ports = core.port_sets[core.port_set];
  std::erase_if(ports, [&](const PortRate& p) {
    return std::ranges::none_of(left, [&](Rank r) { return topology.host(r) == p.host; });
  });
  of.slow_ports = text_of(ports, port_names(topology));
  return of;
}

void shape_ports(GroupState& g) {
  const Core& core = *g.core;
  const Topology& topology = *core.topology;
  const auto world = [&](Rank r) { return g.ranks[static_cast<std::size_t>(r)]; };
  const auto& hosts = g.shape.hosts;
  std::vector<PortRate> ports;
  for (std::size_t h = 0; h < hosts.size() && hosts.size() > 1 && !g.one_machine; ++h)
    for (PortRate p : core.port_sets[core.port_set])
      if (p.host == topology.host(world(hosts[h].front()))) {
        p.host = static_cast<int>(h);
        ports.push_back(p);
      }
  const std::vector<double> rail_rates =
      take_rail_rates(ports, static_cast<int>(hosts.size()), topology.nrails());
  g.shape.slow_ports =
      ports_of_ranks(ports, hosts, [&](Rank r) { return topology.rail(world(r)); });
  // Rails of unequal rate, from the NICs or the slow ports, get chunks in proportion.
  std::vector<double> weight;
  bool declared = true;
  for (const Rank r : hosts.front()) {
    const auto& rails = topology.place(world(r)).rails;
    const auto rail = static_cast<std::size_t>(topology.rail(world(r)));
    weight.push_back(rail < rails.size() ? rails[rail].rate_gbps : 0);
    declared = declared && weight.back() > 0;
  }
  for (std::size_t l = 0; l < weight.size(); ++l) {
    if (!declared) weight[l] = 1;
    weight[l] *= rail_rates[static_cast<std::size_t>(topology.rail(world(hosts.front()[l])))];
  }
  const auto [low, high] = std::ranges::minmax_element(weight);
  g.shape.rail_weight = *low < *high ? weight : std::vector<double>();
}

void World::set_slow_ports(const std::string& ports) {
  std::uint64_t digest = 0;
  for (const char c : ports)
    digest = (digest + 1) * 0x9e3779b97f4a7c15u ^ static_cast<unsigned char>(c);
  const auto mine = static_cast<std::int64_t>(digest >> 1);
  const std::array<std::int64_t, 2> both{mine, -mine};
  std::array<std::int64_t, 2> all{};
  world()
      .internal()
      .all_reduce(both.data(), all.data(), both.size(), DType::kInt64, RedOp::kMin)
      .check();
  if (all[0] != -all[1])
    throw Error(fmt::format(
        "set_slow_ports: ranks pass different ports, rank {} '{}'; pass the same on all ranks",
        rank(), ports));
  const CoreLock lock(core_->mutex);
  weft::set_slow_ports(*core_, "set_slow_ports", ports);
}

}  // namespace weft
