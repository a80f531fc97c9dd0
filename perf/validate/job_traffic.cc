// Folds a job onto the ranks that there are, and predicts its calls.
#include "perf/validate/job_traffic.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

namespace weft::fabric {
namespace {

using Groups = std::vector<std::vector<Rank>>;

const char* word_of(TrafficAxis axis) {
  switch (axis) {
    case TrafficAxis::kTensor:
      return "tensor";
    case TrafficAxis::kPipeline:
      return "pipeline";
    case TrafficAxis::kData:
      break;
  }
  return "data";
}

int of_axis(TrafficAxis axis, int tp, int pp, int dp) {
  return axis == TrafficAxis::kTensor ? tp : axis == TrafficAxis::kPipeline ? pp : dp;
}

std::vector<int> host_by_rank(const Players& players) {
  std::vector<int> host(players.rail.size(), 0);
  for (std::size_t h = 0; h < players.hosts.size(); ++h)
    for (const Rank r : players.hosts[h]) host[static_cast<std::size_t>(r)] = static_cast<int>(h);
  return host;
}

// The shape of a group, whose ranks are numbered anew.
Shape shape_of_group(const std::vector<Rank>& group, const std::vector<int>& host) {
  Shape shape;
  shape.nranks = static_cast<int>(group.size());
  std::map<int, std::vector<Rank>> hosts;
  for (std::size_t i = 0; i < group.size(); ++i)
    hosts[host[static_cast<std::size_t>(group[i])]].push_back(static_cast<Rank>(i));
  for (auto& [h, ranks] : hosts) shape.hosts.push_back(std::move(ranks));
  return shape;
}

using Users = std::map<std::pair<int, int>, int>;  // ranks by host and rail

Users users_of(const Groups& groups, const Players& players, const std::vector<int>& host) {
  Users users;
  for (const std::vector<Rank>& group : groups)
    for (const Rank r : group)
      ++users[{host[static_cast<std::size_t>(r)], players.rail[static_cast<std::size_t>(r)]}];
  return users;
}

}  // namespace

Players players_of(const Topology& topology) {
  Players players;
  players.rails = topology.nrails();
  for (int h = 0; h < topology.nhosts(); ++h) players.hosts.push_back(topology.ranks_of(h));
  for (Rank r = 0; r < topology.nranks(); ++r) players.rail.push_back(topology.rail(r));
  return players;
}

FoldedJob fold(const TrafficAsked& job, const Players& players) {
  FoldedJob folded{job.tp, job.pp, job.dp, false, {}};
  std::size_t all = 0, local = players.hosts.front().size();
  for (const std::vector<Rank>& host : players.hosts) {
    all += host.size();
    local = std::min(local, host.size());
  }
  const std::int64_t wanted = std::int64_t{job.tp} * job.pp * job.dp;
  folded.folded = static_cast<std::int64_t>(all) < wanted;
  if (folded.folded) {
    folded.tp = std::min(job.tp, static_cast<int>(local));
    local -= local % static_cast<std::size_t>(folded.tp);
  }
  for (const std::vector<Rank>& host : players.hosts)
    folded.order.insert(
        folded.order.end(), host.begin(),
        folded.folded ? host.begin() + static_cast<std::ptrdiff_t>(local) : host.end());
  if (!folded.folded) {
    folded.order.resize(static_cast<std::size_t>(wanted));
    return folded;
  }
  const int columns = static_cast<int>(folded.order.size()) / folded.tp;
  folded.dp = std::min(job.dp, columns);
  folded.pp = std::min(job.pp, columns);
  return folded;
}

Groups groups_of(const FoldedJob& job, TrafficAxis axis) {
  const int size = of_axis(axis, job.tp, job.pp, job.dp);
  const int columns = static_cast<int>(job.order.size()) / job.tp;
  const auto rank = [&](int column, int slot) {
    return job.order[static_cast<std::size_t>(column * job.tp + slot)];
  };
  Groups groups;
  if (size < 2) return groups;
  if (axis == TrafficAxis::kTensor) {
    for (int c = 0; c < columns; ++c)
      for (int slot = 0; slot < size; ++slot) {
        if (slot == 0) groups.emplace_back();
        groups.back().push_back(rank(c, slot));
      }
    return groups;
  }
  const int step = axis == TrafficAxis::kData ? 1 : columns / size;
  for (int slot = 0; slot < job.tp; ++slot)
    for (int g = 0; g < columns / size; ++g) {
      std::vector<Rank>& group = groups.emplace_back();
      const int first = axis == TrafficAxis::kData ? g * size : g;
      for (int i = 0; i < size; ++i) group.push_back(rank(first + i * step, slot));
    }
  return groups;
}

std::size_t kind_of(const JobPlayed& played, const TrafficPart& part) {
  const auto found = std::ranges::find_if(played.kinds, [&](const TrafficKind& kind) {
    return kind.axis == word_of(part.axis) && kind.collective == name(part.collective) &&
           kind.bytes == part.bytes;
  });
  return static_cast<std::size_t>(found - played.kinds.begin());
}

JobPlayed to_play(const JobTraffic& traffic, const FoldedJob& job) {
  JobPlayed played;
  const TrafficAsked& asked = traffic.job;
  played.model = asked.model;
  played.tp = asked.tp;
  played.pp = asked.pp;
  played.dp = asked.dp;
  played.folded = job.folded;
  played.played_tp = job.tp;
  played.played_pp = job.pp;
  played.played_dp = job.dp;
  played.ranks = static_cast<int>(job.order.size());
  for (const TrafficBeat& beat : traffic.beats)
    for (const TrafficPart& part : beat.parts) {
      const std::size_t k = kind_of(played, part);
      if (k == played.kinds.size()) {
        TrafficKind& kind = played.kinds.emplace_back();
        kind.axis = word_of(part.axis);
        kind.collective = name(part.collective);
        kind.group = of_axis(part.axis, asked.tp, asked.pp, asked.dp);
        kind.played_group = of_axis(part.axis, job.tp, job.pp, job.dp);
        kind.bytes = part.bytes;
      }
      played.kinds[k].calls += beat.times * part.calls;
    }
  return played;
}

SlowestPort slowest_port(const Samples& samples) {
  std::map<std::pair<Port, bool>, double> best;  // of a port and direction: the rate it has shown
  for (const FlowSample& s : samples.flows) {
    if (samples.rounds[static_cast<std::size_t>(s.round)].probe != Probe::kRate) continue;
    for (const bool sends : {true, false}) {
      double& rate = best[{sends ? s.flow.from : s.flow.to, sends}];
      rate = std::max(rate, s.gbps());
    }
  }
  if (best.empty()) return {};
  const auto slowest = std::ranges::min_element(
      best, [](const auto& a, const auto& b) { return a.second < b.second; });
  return {slowest->first.first, slowest->first.second, slowest->second};
}

std::string in_short(const SlowestPort& slowest, const std::vector<FleetHost>& hosts) {
  return fmt::format("{} rail {} {}", hosts[static_cast<std::size_t>(slowest.port.host)].name,
                     slowest.port.rail, slowest.sends ? "transmit" : "receive");
}

double predicted_us(Collective collective, std::uint64_t bytes, const Groups& groups,
                    const Players& players, const CostModel& costs, double slowest_gbps) {
  constexpr std::size_t kMostGroups = 8;  // groups are alike, but for those that hosts cut apart
  const std::vector<int> host = host_by_rank(players);
  const Users all = users_of(groups, players, host);
  double most = 0;
  for (std::size_t g = 0; g < std::min(groups.size(), kMostGroups); ++g) {
    const Shape shape = shape_of_group(groups[g], host);
    const Users own = users_of({groups[g]}, players, host);
    CostModel model = costs;
    if (slowest_gbps > 0) model.rail.us_per_byte = 8e-3 / slowest_gbps;
    double sharing = 1;
    model.rails_per_host = 1;
    std::map<int, int> rails;  // of the group, by host
    for (const auto& [place, users] : own) {
      sharing = std::max(sharing, static_cast<double>(all.at(place)) / users);
      model.rails_per_host = std::max(model.rails_per_host, ++rails[place.first]);
    }
    model.rail.us_per_byte *= sharing;
    if (collective == Collective::kSendRecv) {
      const LinkCost& link = shape.hosts.size() > 1 ? model.rail : model.host;
      most = std::max(most, link.alpha_us + 2 * (link.step_us + model.step_us) +
                                static_cast<double>(bytes) * link.us_per_byte);
    } else {
      most = std::max(most, pick(collective, shape, bytes, model).prediction.time_us);
    }
  }
  return most;
}

}  // namespace weft::fabric
