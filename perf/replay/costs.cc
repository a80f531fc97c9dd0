// Simulates each distinct call of a trace once. Does not depend on the ranks' programs.
#include "perf/replay/costs.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <utility>

#include "coll/schedule/algorithm.h"

namespace weft::replay {
namespace {

// Calls whose simulation would take longer use the cost model. The estimate is like `weft sim`'s:
// CPU time per message and per chunk of a rank.
constexpr double kLongest_s = 2, kMessage_s = 2e-6, kChunk_s = 0.05e-6, kStep_s = 0.4e-6;

// Returns the number of elements of the message, or of a block.
std::size_t count_of(const TraceNode& node, int ranks) {
  if (node.collective == Collective::kBarrier) return 0;
  const std::uint64_t blocks = by_blocks(node.collective) ? static_cast<std::uint64_t>(ranks) : 1;
  const std::uint64_t unit = blocks * size_of(node.type);
  return std::max<std::uint64_t>((node.bytes + unit - 1) / unit, 1);
}

}  // namespace

ReplayFabric fabric_of_flags(const SimFlags& flags, int ranks) {
  SimFlags job = flags;
  job.collective = "barrier";
  job.ranks = ranks;
  const SimulatedCall call = call_of(job);
  return {call.fabric, call.machine, static_cast<int>(call.shape.hosts.size()), call.rails};
}

ReplayFabric fabric_of_job(const Topology& topology, const Machine& machine, int ranks) {
  ReplayFabric fabric;
  SimFabricOptions& o = fabric.options;
  for (Rank r = 0; r < ranks; ++r) {
    o.host_of_rank.push_back(topology.host(r));
    o.rail_of_rank.push_back(topology.rail(r));
  }
  fabric.machine = machine;
  // Count only hosts with ranks: a trace of two ranks may use one of several hosts.
  fabric.hosts =
      static_cast<int>(std::set<int>(o.host_of_rank.begin(), o.host_of_rank.end()).size());
  fabric.rails = topology.nrails();
  o.rail_scale.assign(static_cast<std::size_t>(fabric.rails), 1.0);
  o.carry_data = false;
  set_machine(o, machine);
  return fabric;
}

ReplayFabric with_half_a_rail(ReplayFabric fabric) {
  fabric.options.rail_scale.resize(static_cast<std::size_t>(fabric.rails), 1.0);
  fabric.options.rail_scale[0] *= 0.5;
  return fabric;
}

const std::string& CallCosts::limiting(const CallKey& key) const {
  static const std::string none;
  const auto it = limiting_.find(key);
  return it == limiting_.end() ? none : it->second;
}

double CallCosts::sharing(int group, const std::vector<Rank>& ranks) {
  if (const auto it = sharing_.find({group, ranks[0]}); it != sharing_.end()) return it->second;
  const SimFabricOptions& o = fabric_.options;
  const auto port = [&](Rank r) {
    const auto i = static_cast<std::size_t>(r);
    return std::pair{o.host_of_rank[i], o.rail_of_rank.empty() ? 0 : o.rail_of_rank[i]};
  };
  std::map<std::pair<int, int>, int> own, all;
  for (const Rank r : ranks) ++own[port(r)];
  for (const auto& list : trace_.groups[static_cast<std::size_t>(group)].lists) {
    bool leaves = false;
    for (const Rank r : list) leaves = leaves || port(r).first != port(list[0]).first;
    if (!leaves) continue;
    for (const Rank r : list)
      if (own.contains(port(r))) ++all[port(r)];
  }
  double most = 1;
  for (const auto& [where, users] : own)
    most = std::max(most, static_cast<double>(all[where]) / users);
  return sharing_[{group, ranks[0]}] = most;
}

CallCost CallCosts::operator()(const TraceNode& node, const std::vector<Rank>& ranks) {
  Cost cost;
  if (node.kind != NodeKind::kCollective) {
    cost = message(node.bytes, ranks[0], ranks[1]);
  } else if (node.collective == Collective::kSendRecv) {
    cost = shift(node, ranks);
  } else {
    const SimFabricOptions& o = fabric_.options;
    std::map<int, int> hosts;
    std::vector<std::pair<int, int>> places;
    for (const Rank r : ranks) {
      const auto i = static_cast<std::size_t>(r);
      const int host =
          hosts.try_emplace(o.host_of_rank[i], static_cast<int>(hosts.size())).first->second;
      places.emplace_back(host, o.rail_of_rank.empty() ? 0 : o.rail_of_rank[i]);
    }
    const double shared = hosts.size() > 1 ? sharing(node.group, ranks) : 1;
    const int root = rooted(node.collective)
                         ? static_cast<int>(std::ranges::find(ranks, node.root) - ranks.begin())
                         : 0;
    const Kind kind{static_cast<int>(node.collective),
                    node.bytes,
                    static_cast<int>(node.type),
                    root == static_cast<int>(ranks.size()) ? 0 : root,
                    shared,
                    places};
    auto it = known_.find(kind);
    if (it == known_.end()) it = known_.emplace(kind, collective(node, kind, shared)).first;
    cost = it->second;
  }
  limiting_[key_of(node)] = cost.limiting;
  return cost.call;
}

CallCosts::Cost CallCosts::collective(const TraceNode& node, const Kind& kind, double sharing) {
  const auto& places = std::get<5>(kind);
  Shape shape;
  shape.nranks = static_cast<int>(places.size());
  shape.root = std::get<3>(kind);
  SimFabricOptions o = fabric_.options;
  o.host_of_rank.clear();
  o.rail_of_rank.clear();
  for (std::size_t r = 0; r < places.size(); ++r) {
    const auto host = static_cast<std::size_t>(places[r].first);
    shape.hosts.resize(std::max(shape.hosts.size(), host + 1));
    shape.hosts[host].push_back(static_cast<Rank>(r));
    o.host_of_rank.push_back(places[r].first);
    o.rail_of_rank.push_back(places[r].second);
  }
  o.rail.gbps /= sharing;
  o.spine.gbps /= sharing;
  // Shares follow the rails' rates if all hosts have the same ranks on the same rails.
  const bool slow = std::ranges::any_of(o.rail_scale, [](double s) { return s != 1; });
  const bool equal = std::ranges::all_of(
      shape.hosts, [&](const auto& host) { return host.size() == shape.hosts[0].size(); });
  if (slow && equal && shape.hosts.size() > 1)
    for (const Rank r : shape.hosts[0])
      shape.rail_weight.push_back(
          o.rail_scale[static_cast<std::size_t>(places[static_cast<std::size_t>(r)].second)]);
  const std::size_t count = count_of(node, shape.nranks);
  const std::size_t blocks = by_blocks(node.collective) ? places.size() : 1;
  const std::size_t bytes = count * size_of(node.type) * blocks;
  // Choose algorithms for healthy rails: a running job keeps its algorithms if a rail becomes slow.
  SimFabricOptions healthy = o;
  healthy.rail_scale.clear();
  Shape equal_rails = shape;
  equal_rails.rail_weight.clear();
  const Pick best = pick(node.collective, equal_rails, bytes, model_of(healthy));
  Cost cost;
  cost.call.rails = shape.hosts.size() > 1;
  if (best.algorithm == nullptr) return cost;
  const Schedule first = best.algorithm->build(shape);
  const CostModel model = model_of(o);
  const double each = messages_of(*best.algorithm, shape, bytes, model).all() * kMessage_s +
                      first.nchunks * kChunk_s;
  std::optional<SimResult> result;
  if (each * shape.nranks < kLongest_s) {
    SimBuffers buffers;
    buffers.root = shape.root;
    result = simulate(*best.algorithm, shape, count, node.type, o, {}, buffers);
  } else if (shape.hosts.size() > 1 &&
             static_cast<double>(shape.hosts[0].size()) * each +
                     static_cast<double>(places.size() * first.steps.size()) * kStep_s <
                 kLongest_s) {
    if (const auto one = one_host_of(*best.algorithm, shape, count, node.type, o))
      result = simulate_one_host(*best.algorithm, shape, count, node.type, o, *one);
  }
  if (result) {
    cost.call.us = result->time_us;
    cost.limiting = result->limiting;
  } else {
    ++by_model_;
    const Prediction p = predict(*best.algorithm, shape, bytes, size_of(node.type), model);
    cost.call.us = p.time_us;
    cost.limiting = p.limiting;
  }
  return cost;
}

// All ranks send at once: the slowest pair determines the time, and groups share their rails.
CallCosts::Cost CallCosts::shift(const TraceNode& node, const std::vector<Rank>& ranks) {
  Cost slowest;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const Rank from = ranks[i], to = ranks[(i + 1) % ranks.size()];
    const auto host = [&](Rank r) {
      return fabric_.options.host_of_rank[static_cast<std::size_t>(r)];
    };
    const double shared = host(from) == host(to) ? 1 : sharing(node.group, ranks);
    const Cost cost =
        message(static_cast<std::uint64_t>(static_cast<double>(node.bytes) * shared), from, to);
    if (cost.call.us > slowest.call.us) slowest = cost;
  }
  return slowest;
}

CallCosts::Cost CallCosts::message(std::uint64_t bytes, Rank sender, Rank receiver) const {
  const SimFabricOptions& o = fabric_.options;
  const auto from = static_cast<std::size_t>(sender), to = static_cast<std::size_t>(receiver);
  const bool inside = o.host_of_rank[from] == o.host_of_rank[to];
  const auto rail = [&](std::size_t r) {
    return o.rail_of_rank.empty() ? 0 : static_cast<std::size_t>(o.rail_of_rank[r]);
  };
  const auto scale = [&](std::size_t r) {
    return o.rail_scale.empty() ? 1.0 : o.rail_scale[rail(r)];
  };
  const SimLink& link = inside ? o.host : rail(from) == rail(to) ? o.rail : o.spine;
  const double rate =
      inside ? link.gbps : link.gbps * o.payload_share * std::min(scale(from), scale(to));
  Cost cost;
  cost.call.us =
      link.latency_us + o.post_us + o.complete_us + static_cast<double>(bytes) * 8e-3 / rate;
  cost.call.rails = !inside;
  cost.limiting = inside ? "host" : "rail";
  return cost;
}

}  // namespace weft::replay
