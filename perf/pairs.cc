#include "perf/pairs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "perf/exercise.h"
#include "perf/session.h"
#include "perf/stats.h"
#include "perf/table.h"
#include "topo/clock.h"
#include "transport/between_hosts.h"

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
    std::vector<Handle> sends;
    for (int i = 0; i < kWindow; ++i)
      sends.push_back(comm.send_async(data.data(), bytes / 4, DType::kInt32, to));
    for (Handle& send : sends) require(send.wait());
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
    std::vector<Handle> recvs;
    for (int i = 0; i < kWindow; ++i)
      recvs.push_back(comm.recv_async(data.data() + i * kLargest, bytes / 4, DType::kInt32, from));
    for (Handle& recv : recvs) require(recv.wait());
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

PairResult link_of(const Topology& topology, const std::string& transport, bool failover, Rank a,
                   Rank b) {
  const bool local = topology.same_host(a, b);
  const std::string by = transport != "auto" ? transport
                         : local             ? "shm"
                                             : transport_between_hosts(topology);
  PairResult link;
  link.from = a;
  link.to = b;
  link.link = by == "shm" ? (local ? by : by + " between hosts")
              : local     ? by + " inside a host"
                          : by + " across rails";
  if (by == "shm" || local || topology.rail(a) != topology.rail(b)) return link;
  const Rank low = std::min(a, b);
  const int n = topology.nrails();
  const int here = static_cast<int>(topology.ranks_of(topology.host(low)).size());
  std::vector<int> rails;
  bool known = true;
  for (int r = 0; r < n; ++r) {
    if (r != topology.rail(low) &&
        (!failover || here >= n || r * here / n != topology.local(low)))
      continue;
    rails.push_back(r);
    const auto i = static_cast<std::size_t>(r);
    const double gbps =
        std::min(topology.place(a).rails[i].rate_gbps, topology.place(b).rails[i].rate_gbps);
    known = known && gbps > 0;
    link.rail_gbps += gbps;
  }
  if (!known) link.rail_gbps = 0;
  link.rails = static_cast<int>(rails.size());
  link.link = fmt::format("{} rail{} {}", by, rails.size() == 1 ? "" : "s", fmt::join(rails, ","));
  return link;
}

namespace {

using Round = std::vector<std::pair<Rank, Rank>>;

// Of one link, both directions of its pairs. Usual is the slowest of the faster half, but of few
// ranks of the share without a given one: of n ranks one takes part in 2 / n of all directions, and
// were it bad, the median of three would be a bad one.
PairResult typical(const std::vector<PairResult>& pairs) {
  std::vector<double> bandwidth, latency;
  std::set<Rank> ranks;
  for (const PairResult& p : pairs) {
    bandwidth.push_back(p.bandwidth_GBps);
    latency.push_back(p.latency_us);
    ranks.insert({p.from, p.to});
  }
  const std::size_t n = ranks.size(), directions = pairs.size();
  const std::size_t share = n < 4 ? directions * (n - 2) / n : (directions + 1) / 2;
  const std::size_t at = std::max<std::size_t>(share, 1) - 1;
  std::sort(bandwidth.begin(), bandwidth.end(), std::greater());
  std::sort(latency.begin(), latency.end());
  PairResult usual = pairs[0];
  usual.latency_us = latency[at];
  usual.bandwidth_GBps = bandwidth[at];
  return usual;
}

std::map<std::string, std::vector<PairResult>> by_link(const std::vector<PairResult>& results) {
  std::map<std::string, std::vector<PairResult>> links;
  for (const PairResult& r : results) links[r.link].push_back(r);
  return links;
}

// Both directions of each pair of the round; every rank gets all. Who has no pair waits without
// using a core. Sets `over` where rank 0 finds that it is later than `until_us`.
std::vector<PairResult> measure_round(World& world, const std::string& transport, const Round& round,
                                      bool one_machine, Buffer& data, double until_us,
                                      bool& over) {
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
  const auto all = world.job().all_gather(mine.dump());
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

Round out_of_line(const std::vector<PairResult>& results, const PairLimits& limits) {
  std::map<std::string, PairResult> usual;
  for (const auto& [link, all] : by_link(results)) usual[link] = typical(all);
  Round pairs;
  for (const PairResult& r : results) {
    const PairResult& u = usual.at(r.link);
    const std::pair pair(std::min(r.from, r.to), std::max(r.from, r.to));
    if ((r.latency_us > limits.warn_latency * u.latency_us ||
         r.bandwidth_GBps < limits.warn_bandwidth * u.bandwidth_GBps) &&
        std::ranges::find(pairs, pair) == pairs.end())
      pairs.push_back(pair);
  }
  return pairs;
}

std::vector<PairResult> measure_pairs(World& world, const std::string& transport, double budget_s,
                                      const PairLimits& limits) {
  constexpr int kLooks = 2;
  const Topology& topology = world.topology();
  bool one_machine = true, over = false;
  for (Rank r = 1; r < world.size(); ++r)
    one_machine = one_machine && topology.place(r).machine == topology.place(0).machine;
  std::vector<Round> rounds;
  for (auto& round : pair_rounds(world.size())) {
    if (one_machine)
      for (const auto& pair : round) rounds.push_back({pair});
    else
      rounds.push_back(round);
  }
  Buffer data(kLargest * kWindow, false);
  const double until_us = now_us() + budget_s * 1e6;
  std::vector<PairResult> results;
  for (const Round& round : rounds) {
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

namespace {

// A rail that is slow at every host is like itself everywhere: only the others tell.
std::vector<Item> judge_rails(const std::vector<PairResult>& links, const PairLimits& limits) {
  std::vector<Item> items;
  for (const PairResult& link : links) {
    if (link.rails == 0) continue;
    const std::string by = link.link.substr(0, link.link.find(' '));
    const auto alike = [&](const PairResult& o) {
      return o.rails == link.rails && o.link.starts_with(by + " ");
    };
    const bool rates = std::ranges::all_of(
        links, [&](const PairResult& o) { return !alike(o) || o.rail_gbps > 0; });
    const auto of_rate = [&](const PairResult& o) {
      return rates ? o.bandwidth_GBps / o.rail_gbps : o.bandwidth_GBps;
    };
    const PairResult* best = &link;
    for (const PairResult& other : links)
      if (alike(other) && of_rate(other) > of_rate(*best)) best = &other;
    const double share = of_rate(link) / of_rate(*best);
    if (share >= limits.warn_bandwidth) continue;
    items.push_back(
        {"pairs", link.link, share < limits.fail_bandwidth ? Verdict::kFail : Verdict::kWarn,
         fmt::format("{} GB/s, {:.0f} % of {}'s {}{}", format_GBps(link.bandwidth_GBps),
                     share * 100, best->link, format_GBps(best->bandwidth_GBps),
                     rates ? ", each at its rate" : ""),
         "rail-slow",
         "look at the switch, cables and settings of this rail; one that is meant to be slower has "
         "a rate of its own (WEFT_RAILS=NAME:GBPS,...)"});
  }
  return items;
}

}  // namespace

std::vector<Item> judge_pairs(const std::vector<PairResult>& results, std::size_t expected,
                              const PairLimits& limits) {
  std::vector<Item> items, outliers;
  std::vector<PairResult> links;
  for (const auto& [link, pairs] : by_link(results)) {
    const PairResult& usual = links.emplace_back(typical(pairs));
    const auto [quickest, latest] = std::ranges::minmax_element(pairs, {}, &PairResult::latency_us);
    const auto [least, most] = std::ranges::minmax_element(pairs, {}, &PairResult::bandwidth_GBps);
    items.push_back({"pairs", link, Verdict::kPass,
                     fmt::format("{:>3} directions   {} us ({} to {})   {} GB/s ({} to {})",
                                 pairs.size(), format_us(usual.latency_us),
                                 format_us(quickest->latency_us), format_us(latest->latency_us),
                                 format_GBps(usual.bandwidth_GBps),
                                 format_GBps(least->bandwidth_GBps),
                                 format_GBps(most->bandwidth_GBps)),
                     "", ""});
    for (const PairResult& p : pairs) {
      const std::string subject = fmt::format("rank {} -> rank {}", p.from, p.to);
      const double share = p.bandwidth_GBps / usual.bandwidth_GBps;
      if (share < limits.warn_bandwidth)
        outliers.push_back(
            {"pairs", subject, share < limits.fail_bandwidth ? Verdict::kFail : Verdict::kWarn,
             fmt::format("{}: {} GB/s, {:.0f} % of the usual {}", link,
                         format_GBps(p.bandwidth_GBps), share * 100,
                         format_GBps(usual.bandwidth_GBps)),
             "pair-slow-bandwidth",
             "compare with the other pairs of these ranks: all slow points to a host or its NIC, "
             "one slow to the path between"});
      const double times = p.latency_us / usual.latency_us;
      if (times > limits.warn_latency)
        outliers.push_back(
            {"pairs", subject, times > limits.fail_latency ? Verdict::kFail : Verdict::kWarn,
             fmt::format("{}: {} us, {:.1f} times the usual {}", link, format_us(p.latency_us),
                         times, format_us(usual.latency_us)),
             "pair-slow-latency",
             "look for other load on these hosts, power saving, and a detour in the network"});
    }
  }
  items.insert(items.end(), outliers.begin(), outliers.end());
  for (Item& item : judge_rails(links, limits)) items.push_back(std::move(item));
  if (results.size() < expected)
    items.push_back({"pairs", "all pairs", Verdict::kUnknown,
                     fmt::format("{} of {} directions measured before the time was up",
                                 results.size(), expected),
                     "pair-not-measured", "rerun with a larger --budget-s"});
  return items;
}

}  // namespace weft
