// Selects and runs the cases of the collectives. Does not depend on payload values.
#include "perf/validate/collective_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "coll/footprint.h"
#include "coll/runtime/internals.h"
#include "coll/schedule/algorithm.h"
#include "coll/schedule/check.h"
#include "perf/cli/names.h"
#include "perf/validate/probes/agent_fabric.h"
#include "transport/launch/failures.h"

namespace weft::fabric {
namespace {

constexpr std::size_t kSmallCounts[] = {1, 7, 1000};
constexpr std::size_t kLargeCount = 65539;                    // a prime: no chunk size divides it
constexpr std::size_t kMostOfBuffer = std::size_t{16} << 20;  // bytes of a buffer, at most

constexpr std::size_t kTimedBytes[] = {4 << 20, 16 << 20, 64 << 20};  // sizes of the all_reduce

double busbw_of(std::size_t bytes, double us, std::size_t ranks) {
  const auto n = static_cast<double>(ranks);
  return 8e-3 * static_cast<double>(bytes) / us * 2 * (n - 1) / n;
}

// The port and direction with the lowest best rate, of all ports in rate flows.
struct SlowestPort {
  Port port;
  bool sends = true;
  double gbps = 0;  // 0: no rate measured
};

SlowestPort slowest_port(const Samples& samples) {
  std::map<std::pair<Port, bool>, double> best;  // highest rate by port and direction
  for (const FlowSample& s : samples.flows) {
    if (samples.probe_of(s) != Probe::kRate) continue;
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

// Microseconds of an all_reduce of `bytes` over all ranks according to `costs`, with rails at
// `gbps`.
double all_reduce_us(std::uint64_t bytes, const Players& players, CostModel costs, double gbps) {
  costs.rail.us_per_byte = 8e-3 / gbps;
  costs.rails_per_host = 1;
  for (const std::vector<Rank>& host : players.hosts) {
    std::set<int> rails;
    for (const Rank r : host) rails.insert(players.rail[static_cast<std::size_t>(r)]);
    costs.rails_per_host = std::max(costs.rails_per_host, static_cast<int>(rails.size()));
  }
  Shape shape;
  shape.nranks = static_cast<int>(players.rail.size());
  shape.hosts = players.hosts;
  return pick(Collective::kAllReduce, shape, bytes, costs).prediction.time_us;
}

constexpr int kValidatedRanks = 64;  // proofs for larger jobs take longer than the runs

// Returns the first fault in the schedules; empty if they are correct.
std::string prove(Collective collective, const Algorithm& algorithm, const Topology& topology) {
  if (topology.nranks() > kValidatedRanks) return "";
  std::vector<Schedule> schedules;
  for (Rank r = 0; r < topology.nranks(); ++r)
    schedules.push_back(algorithm.build(shape_of(topology, r, 0)));
  return check(collective, schedules);
}

// A collective with one of its algorithms; nullptr if there is no choice.
struct Way {
  Collective collective;
  const Algorithm* algorithm;
  int turn;  // number of preceding algorithms of the collective
};

std::vector<Way> all_ways(const World& world) {
  std::vector<Way> ways;
  const Shape shape = shape_of(world.topology(), world.rank(), 0);
  for (Collective collective :
       {Collective::kAllReduce, Collective::kAllGather, Collective::kReduceScatter,
        Collective::kBroadcast, Collective::kReduce, Collective::kGather, Collective::kScatter,
        Collective::kAllToAll, Collective::kBarrier, Collective::kSendRecv}) {
    if (collective == Collective::kSendRecv && world.size() < 2) continue;
    int turn = 0;
    for (const Algorithm& a : algorithms())
      if (a.collective == collective && a.applies(shape)) ways.push_back({collective, &a, turn++});
    if (turn == 0) ways.push_back({collective, nullptr, 0});
  }
  return ways;
}

// Runs all cases with the current algorithm and returns this rank's findings.
nlohmann::json run_cases(Communicator& comm, const std::vector<Case>& cases, Memory& plain,
                         Memory& shared) {
  std::uint64_t wrong = 0;
  std::string first;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    Exercise exercise(comm, cases[i], i % 2 == 0 ? plain : shared);
    exercise.prepare();
    require(exercise.run());
    const Mismatch mismatch = exercise.check();
    if (wrong == 0 && mismatch.wrong > 0)
      first = fmt::format("{} {} of {} elements{}: {}", name(cases[i].type),
                          reduces(cases[i].collective) ? name(cases[i].op) : "", cases[i].count,
                          cases[i].in_place ? " in place" : "", mismatch.first);
    wrong += mismatch.wrong;
  }
  return {{"wrong", wrong}, {"first", first}};
}

// Combines the findings of all ranks on rank 0; sets `over` on all ranks if rank 0's time is used
// up.
CollectiveResult gather_result(World& world, CollectiveResult result, const nlohmann::json& mine,
                               bool& over) {
  const auto all = job_of(world).gather(mine.dump());
  for (std::size_t r = 0; r < all.size(); ++r) {
    std::uint64_t here = 1;  // a malformed report is treated as wrong
    std::string first = "no report";
    try {
      const auto theirs = nlohmann::json::parse(all[r]);
      here = theirs.at("wrong").get<std::uint64_t>();
      first = theirs.at("first").get<std::string>();
    } catch (const nlohmann::json::exception& e) {
      first = e.what();
    }
    if (result.wrong == 0 && here > 0) result.first_wrong = fmt::format("rank {}, {}", r, first);
    constexpr std::uint64_t kMost = 1u << 30;
    result.wrong = static_cast<int>(
        std::min(kMost, static_cast<std::uint64_t>(result.wrong) + std::min(here, kMost)));
  }
  over = told_by_root(job_of(world), over ? "over" : "") == "over";
  return result;
}

}  // namespace

std::vector<Case> validation_cases(Collective collective, int nranks) {
  std::vector<Case> cases;
  if (collective == Collective::kBarrier) return {Case{collective}};
  const auto ranks = static_cast<std::size_t>(nranks);
  const Footprint parts = footprint(collective);
  const std::size_t blocks =
      std::max({std::size_t{1}, blocks_in(parts.in, ranks), blocks_in(parts.out, ranks)});
  const auto add = [&](DType type, RedOp op, std::size_t count) {
    Case c{collective, type, op};
    const std::size_t k = cases.size();
    c.count = std::clamp<std::size_t>(kMostOfBuffer / size_of(type) / blocks, 1, count);
    // The periods of in_place and root differ from the period of the two buffers.
    c.in_place = collective != Collective::kSendRecv && k % 4 >= 2;
    c.root = rooted(collective) && k % 3 == 2 ? nranks - 1 : 0;
    cases.push_back(c);
  };
  for (DType type : kAllDTypes) {
    for (RedOp op : kAllRedOps) {
      if (op != RedOp::kSum && !reduces(collective)) break;
      if (!defined(op, type)) continue;
      const std::size_t k = cases.size();
      add(type, op, kSmallCounts[(k + k / 3) % std::size(kSmallCounts)]);
    }
    if (type == DType::kFloat32 || type == DType::kUInt8) add(type, RedOp::kSum, kLargeCount);
  }
  return cases;
}

std::vector<CollectiveResult> run_collectives(World& world, double budget_s,
                                              const std::function<void(const std::string&)>& show) {
  const auto start = std::chrono::steady_clock::now();
  const Topology& topology = world.topology();
  Communicator comm = world.world();
  const auto ranks = static_cast<std::uint64_t>(world.size());
  const std::uint64_t bytes = kMostOfBuffer + ranks * sizeof(double);  // plus one element per rank
  Memory plain(bytes, false, false), shared(bytes, false, true);
  std::vector<CollectiveResult> results;
  const std::vector<Way> ways = all_ways(world);
  // Run the first algorithm of each collective, then the second ones, and so on, so that no
  // collective is left out when time runs out.
  std::vector<std::size_t> order(ways.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return ways[i].turn; });
  for (const Way& way : ways) {
    CollectiveResult& result = results.emplace_back();
    result.collective = name(way.collective);
    if (way.algorithm != nullptr) result.algorithm = way.algorithm->name;
  }
  bool over = false;
  for (const std::size_t i : order) {
    const auto& [collective, algorithm, turn] = ways[i];
    CollectiveResult& result = results[i];
    const auto cases = validation_cases(collective, world.size());
    if (over) {
      result.left_out = static_cast<int>(cases.size());
      continue;
    }
    show(fmt::format("{} {}", result.collective, result.algorithm));
    if (algorithm != nullptr) {
      if (const std::string fault = prove(collective, *algorithm, topology); !fault.empty()) {
        result.wrong = 1;
        result.first_wrong = fault;
        continue;
      }
      comm.set_algorithm(collective, algorithm->name);
    }
    result.cases = static_cast<int>(cases.size());
    const auto mine = run_cases(comm, cases, plain, shared);
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
    over = spent.count() > budget_s;
    result = gather_result(world, std::move(result), mine, over);
    if (algorithm != nullptr) comm.set_algorithm(collective, "auto");
  }
  return results;
}

Players players_of(const Topology& topology) {
  Players players;
  for (int h = 0; h < topology.nhosts(); ++h) players.hosts.push_back(topology.ranks_of(h));
  for (Rank r = 0; r < topology.nranks(); ++r) players.rail.push_back(topology.rail(r));
  return players;
}

CollectiveResult expected_all_reduce(const std::vector<FleetHost>& hosts, const Samples& samples,
                                     const Players& players, const CostModel& costs) {
  CollectiveResult expected;
  expected.collective = name(Collective::kAllReduce);
  expected.algorithm = "auto";
  expected.timed_bytes = kTimedBytes[0];
  const SlowestPort slowest = slowest_port(samples);
  if (slowest.gbps <= 0) return expected;
  // All ranks of a host share the rails that no rank of the host owns.
  const FleetHost& host = hosts[static_cast<std::size_t>(slowest.port.host)];
  expected.limiting_link = fmt::format("{} rail {} {}", host.name, slowest.port.rail,
                                       slowest.sends ? "transmit" : "receive");
  std::set<int> used;
  for (const Rank r : players.hosts[static_cast<std::size_t>(slowest.port.host)])
    used.insert(players.rail[static_cast<std::size_t>(r)]);
  const auto usable =
      static_cast<std::size_t>(std::ranges::count(host.ports, true, &PortInfo::usable));
  const double gbps = slowest.gbps * static_cast<double>(std::max(usable, used.size())) /
                      static_cast<double>(used.size());
  CostModel links;
  links.host = links.rail = {0, 1e-9, 0};
  links.step_us = links.reduce_us_per_byte = links.fan_in_penalty = 0;
  CollectiveResult shortest;
  for (const std::size_t bytes : kTimedBytes) {
    const auto busbw = [&](const CostModel& model) {
      const double us = all_reduce_us(bytes, players, model, gbps);
      return busbw_of(bytes, us, players.rail.size());
    };
    CollectiveResult longer = expected;
    longer.timed_bytes = bytes;
    longer.predicted_busbw_gbps = busbw(costs);
    longer.link_busbw_gbps = busbw(links);
    if (longer.held_by_links()) return longer;
    if (bytes == kTimedBytes[0]) shortest = longer;
  }
  return shortest;
}

std::vector<CollectiveResult> time_all_reduce(World& world, CollectiveResult expected,
                                              double budget_s) {
  if (world.topology().nhosts() < 2) return {};
  constexpr int kMost = 20, kLeast = 3;
  Communicator comm = world.world();
  expected.timed_bytes =
      std::stoull(told_by_root(job_of(world), std::to_string(expected.timed_bytes)));
  std::vector<float> data(expected.timed_bytes / sizeof(float), 0.0F);
  std::vector<double> seconds;
  const auto once = [&] {
    const auto start = std::chrono::steady_clock::now();
    require(comm.all_reduce(data.data(), data.data(), data.size(), DType::kFloat32, RedOp::kSum));
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  // The first run sets up connections; rank 0's time of the second determines how many runs fit.
  once();
  const double first = once();
  const double of_root = std::stod(told_by_root(job_of(world), fmt::format("{}", first)));
  const int n = std::clamp(static_cast<int>(budget_s / of_root), kLeast, kMost);
  for (int i = 0; i < n; ++i) seconds.push_back(once());
  std::ranges::sort(seconds);
  expected.busbw_gbps = busbw_of(data.size() * sizeof(float), 1e6 * seconds[seconds.size() / 2],
                                 static_cast<std::size_t>(world.size()));
  return {expected};
}

}  // namespace weft::fabric
