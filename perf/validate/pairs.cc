// Plans and measures all pairs of ranks. Does not judge the results.
#include "perf/validate/pairs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "coll/runtime/internals.h"
#include "perf/cli/table.h"
#include "perf/collective/exercise.h"
#include "perf/collective/stats.h"
#include "topo/base/clock.h"
#include "transport/factory/transport_factory.h"
#include "transport/launch/failures.h"

namespace weft {
namespace {

constexpr std::size_t kLargest = 4 << 20, kSmallest = 64 << 10;
constexpr int kWindow = 4;  // messages under way

Status send_number(Communicator& comm, std::int64_t value, Rank to) {
  return comm.send(&value, 1, DType::kInt64, to);
}
std::int64_t recv_number(Communicator& comm, Rank from) {
  std::int64_t value = 0;
  require(comm.recv(&value, 1, DType::kInt64, from));
  return value;
}

// Half a round trip of 8 bytes; both sides call it, and the one that starts gets the median, or the
// best where all ranks share one machine: any other may have waited for a core.
double ping(Communicator& comm, Rank peer, bool starts, bool best) {
  constexpr int kWarmUp = 10, kRounds = 50;
  std::vector<double> times;
  for (int i = 0; i < kWarmUp + kRounds; ++i) {
    const double start = now_us();
    if (starts) require(send_number(comm, i, peer));
    const std::int64_t got = recv_number(comm, peer);
    if (!starts) require(send_number(comm, got, peer));
    if (i >= kWarmUp) times.push_back((now_us() - start) / 2);
  }
  return best ? *std::min_element(times.begin(), times.end()) : median(times);
}

// Bursts of messages and a word back for each. The sender announces their size, 0 to end: what
// takes about 10 ms at the best rate seen so far, so that slow and fast links take equally long.
// The best burst counts: on a shared machine every other one may have waited for a core.
double send_bursts(Communicator& comm, Rank to, const Buffer& data) {
  constexpr int kBursts = 6;
  constexpr double kBurstUs = 10e3;
  double best = 0;
  std::size_t bytes = kSmallest;
  for (int burst = 0; burst < kBursts; ++burst) {
    require(send_number(comm, static_cast<std::int64_t>(bytes), to));
    const double start = now_us();
    std::vector<Request> sends;
    for (int i = 0; i < kWindow; ++i)
      sends.push_back(comm.send_async(data.data(), bytes / 4, DType::kInt32, to));
    for (Request& send : sends) require(send.wait());
    recv_number(comm, to);
    const double us = now_us() - start;
    best = std::max(best, static_cast<double>(kWindow * bytes) / (us * 1e3));
    const double fits = std::min(best * 1e3 * kBurstUs / kWindow, static_cast<double>(kLargest));
    bytes = std::max(static_cast<std::size_t>(fits), kSmallest) / 4096 * 4096;
  }
  require(send_number(comm, 0, to));
  return best;
}

void recv_bursts(Communicator& comm, Rank from, Buffer& data) {
  while (const auto bytes = static_cast<std::size_t>(recv_number(comm, from))) {
    std::vector<Request> recvs;
    for (int i = 0; i < kWindow; ++i)
      recvs.push_back(comm.recv_async(data.data() + i * kLargest, bytes / 4, DType::kInt32, from));
    for (Request& recv : recvs) require(recv.wait());
    require(send_number(comm, 1, from));
  }
}

}  // namespace

std::vector<std::vector<std::pair<Rank, Rank>>> pair_rounds(int n) {
  const int seats = n + n % 2;  // with an odd number, one sits out each round
  std::vector<std::vector<std::pair<Rank, Rank>>> rounds;
  for (int round = 0; round + 1 < seats; ++round) {
    auto& pairs = rounds.emplace_back();
    for (int i = 0; i < seats / 2; ++i) {
      // The last seat stays, the others move around it.
      const int a = i == 0 ? seats - 1 : (round + i) % (seats - 1);
      const int b = i == 0 ? round : (round + seats - 1 - i) % (seats - 1);
      if (a < n && b < n) pairs.emplace_back(std::min(a, b), std::max(a, b));
    }
  }
  return rounds;
}

bool share_memory(const Topology& topology, Rank a, Rank b) {
  return topology.same_host(a, b) && topology.place(a).machine == topology.place(b).machine;
}

bool hosts_share_memory(const Topology& topology) {
  for (int host = 0; host < topology.nhosts(); ++host)
    for (const Rank r : topology.ranks_of(host))
      if (!share_memory(topology, topology.ranks_of(host)[0], r)) return false;
  return true;
}

PairResult link_of(const Topology& topology, const std::string& transport, bool failover, Rank a,
                   Rank b) {
  const bool local = topology.same_host(a, b);
  const std::string by = transport != "auto"            ? transport
                         : share_memory(topology, a, b) ? "shm"
                                                        : transport_between_hosts(topology);
  PairResult link;
  link.from = a;
  link.to = b;
  link.link = by == "shm" ? (local ? by : by + " between hosts")
              : local     ? by + " inside a host"
                          : by + " across rails";
  link.from_host = topology.host_name(topology.host(a));
  link.to_host = topology.host_name(topology.host(b));
  if (by == "shm" || local) return link;
  const Rank low = std::min(a, b);
  const int n = topology.nrails();
  const int here = static_cast<int>(topology.ranks_of(topology.host(low)).size());
  std::vector<int>& rails = link.on_rails;
  bool known = true;
  for (int r = 0; r < n; ++r) {
    if (r != topology.rail(low) && (!failover || here >= n || r * here / n != topology.local(low)))
      continue;
    rails.push_back(r);
    const auto i = static_cast<std::size_t>(r);
    const double gbps =
        std::min(topology.place(a).rails[i].rate_gbps, topology.place(b).rails[i].rate_gbps);
    known = known && gbps > 0;
    link.rail_gbps += gbps;
  }
  if (!known) link.rail_gbps = 0;
  if (topology.rail(a) != topology.rail(b)) {  // alike are those that use as much
    if (rails.size() > 1) link.link += fmt::format(", {} at once", rails.size());
    const auto& nics = topology.place(low).rails;
    if (std::ranges::adjacent_find(nics, std::ranges::not_equal_to(), &Nic::rate_gbps) !=
            nics.end() &&
        link.rail_gbps > 0)
      link.link += fmt::format(", {:.6g} Gb/s", link.rail_gbps);
    link.rail_gbps = 0;
    return link;
  }
  link.rails = static_cast<int>(rails.size());
  link.link = fmt::format("{} rail{} {}", by, rails.size() == 1 ? "" : "s", fmt::join(rails, ","));
  return link;
}

namespace {

using Round = std::vector<std::pair<Rank, Rank>>;

}  // namespace

std::vector<Round> measuring_rounds(const Topology& topology, const std::string& transport,
                                    bool failover, bool one_machine) {
  std::vector<Round> rounds;
  for (const Round& round : pair_rounds(topology.nranks())) {
    const auto first = static_cast<std::ptrdiff_t>(rounds.size());
    std::vector<std::set<std::pair<int, int>>> busy;  // of each round from the first: host, rail
    for (const auto& [a, b] : round) {
      std::set<std::pair<int, int>> ports;
      for (const int rail : link_of(topology, transport, failover, a, b).on_rails)
        for (const Rank r : {a, b}) ports.insert({topology.host(r), rail});
      const auto free = std::ranges::find_if(busy, [&](const auto& taken) {
        return !one_machine &&
               std::ranges::none_of(ports, [&](const auto& p) { return taken.contains(p); });
      });
      const auto at = free - busy.begin();
      if (free == busy.end()) {
        busy.emplace_back();
        rounds.emplace_back();
      }
      busy[static_cast<std::size_t>(at)].merge(ports);
      rounds[static_cast<std::size_t>(first + at)].emplace_back(a, b);
    }
  }
  return rounds;
}

namespace {

// Both directions of each pair of the round; every rank gets all. Who has no pair waits without
// using a core. Sets `over` where rank 0 finds that it is later than `until_us`.
std::vector<PairResult> measure_round(World& world, const std::string& transport,
                                      const Round& round, bool one_machine, Buffer& data,
                                      double until_us, bool& over) {
  const Rank me = world.rank();
  Communicator comm = world.world();
  nlohmann::json mine = {{"over", now_us() > until_us}};
  for (const auto& [a, b] : round) {
    if (me != a && me != b) continue;
    const Rank peer = me == a ? b : a;
    const double first = ping(comm, peer, me == a, one_machine);
    const double second = ping(comm, peer, me == b, one_machine);
    if (me == b) recv_bursts(comm, peer, data);
    mine["bandwidth"] = send_bursts(comm, peer, data);
    if (me == a) recv_bursts(comm, peer, data);
    mine["latency"] = me == a ? first : second;
    mine["to"] = peer;
  }
  const auto all = job_of(world).all_gather(mine.dump());
  std::vector<PairResult> results;
  for (Rank r = 0; r < world.size(); ++r) {
    const auto theirs = nlohmann::json::parse(all[static_cast<std::size_t>(r)]);
    if (r == 0) over = theirs["over"];
    if (!theirs.contains("to")) continue;
    PairResult& result = results.emplace_back(
        link_of(world.topology(), transport, world.failover(), r, theirs["to"]));
    result.latency_us = theirs["latency"];
    result.bandwidth_GBps = theirs["bandwidth"];
  }
  return results;
}

}  // namespace

std::vector<PairResult> measure_pairs(World& world, const std::string& transport, double budget_s,
                                      const PairLimits& limits) {
  constexpr int kLooks = 2;
  const Topology& topology = world.topology();
  bool one_machine = true, over = false;
  for (Rank r = 1; r < world.size(); ++r)
    one_machine = one_machine && topology.place(r).machine == topology.place(0).machine;
  Buffer data(kLargest * kWindow, false);
  const double until_us = now_us() + budget_s * 1e6;
  std::vector<PairResult> results;
  for (const Round& round : measuring_rounds(topology, transport, world.failover(), one_machine)) {
    const auto more = measure_round(world, transport, round, one_machine, data, until_us, over);
    results.insert(results.end(), more.begin(), more.end());
    if (over) return results;
  }
  for (int look = 0; look < kLooks && one_machine; ++look)
    for (const auto& pair : out_of_line(results, limits)) {
      for (const PairResult& again :
           measure_round(world, transport, {pair}, one_machine, data, until_us, over))
        for (PairResult& r : results)
          if (r.from == again.from && r.to == again.to) {
            r.latency_us = std::min(r.latency_us, again.latency_us);
            r.bandwidth_GBps = std::max(r.bandwidth_GBps, again.bandwidth_GBps);
          }
      if (over) return results;
    }
  return results;
}

}  // namespace weft
