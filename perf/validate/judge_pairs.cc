// Judges the measured pairs: finds slow pairs, ports and rails. Measures nothing.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "perf/cli/table.h"
#include "perf/validate/pairs.h"

namespace weft {
namespace {

// Of one link, both directions of its pairs. Usual is the slowest of the faster half, but of few
// ranks of the share without a given one: of n ranks one takes part in 2 / n of all directions, and
// were it bad, the median of three would be a bad one. Of three hosts likewise, however many ranks
// they have: it is a host's port that is bad.
PairResult typical(const std::vector<PairResult>& pairs) {
  std::vector<double> bandwidth, latency;
  std::set<Rank> ranks;
  std::set<std::string> hosts;
  for (const PairResult& p : pairs) {
    if (p.from_host != p.to_host) hosts.insert({p.from_host, p.to_host});
    bandwidth.push_back(p.bandwidth_GBps);
    latency.push_back(p.latency_us);
    ranks.insert({p.from, p.to});
  }
  const std::size_t n = hosts.size() == 3 ? 3 : ranks.size(), directions = pairs.size();
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

}  // namespace

std::vector<std::pair<Rank, Rank>> out_of_line(const std::vector<PairResult>& results,
                                               const PairLimits& limits) {
  std::map<std::string, PairResult> usual;
  for (const auto& [link, all] : by_link(results)) usual[link] = typical(all);
  std::vector<std::pair<Rank, Rank>> pairs;
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

namespace {

std::string at_host(const std::string& host) {
  return host.empty() ? host : fmt::format(" ({})", host);
}

// Hosts whose ports are slow with all the others, and what that was judged: what a pair has to say
// of it is no news, unless it is worse.
struct SlowHosts {
  std::map<std::pair<std::string, int>, Verdict> sending, receiving;  // host, rail
  std::map<std::string, Verdict> late;

  template <typename Key>
  static bool known(const std::map<Key, Verdict>& slow, const Key& key, Verdict verdict) {
    const auto it = slow.find(key);
    return it != slow.end() && it->second >= verdict;
  }
  bool explain_bandwidth(const PairResult& p, Verdict v) const {
    return std::ranges::any_of(p.on_rails, [&](int rail) {
      return known(sending, {p.from_host, rail}, v) || known(receiving, {p.to_host, rail}, v);
    });
  }
  bool explain_latency(const PairResult& p, Verdict v) const {
    return p.from_host != p.to_host && (known(late, p.from_host, v) || known(late, p.to_host, v));
  }
};

// Of one link between hosts.
void judge_hosts(const std::vector<PairResult>& pairs, const PairResult& usual,
                 const PairLimits& limits, SlowHosts& slow, std::vector<Item>& items) {
  std::map<std::string, std::vector<const PairResult*>> sent, received, all;
  for (const PairResult& p : pairs) {
    if (p.rails == 0 || p.from_host == p.to_host) continue;
    sent[p.from_host].push_back(&p);
    received[p.to_host].push_back(&p);
    all[p.from_host].push_back(&p);
    all[p.to_host].push_back(&p);
  }
  const auto others = [](const std::string& host, const std::vector<const PairResult*>& of) {
    std::set<std::string> names;
    for (const PairResult* p : of) names.insert(p->from_host == host ? p->to_host : p->from_host);
    return names.size();
  };
  const auto too_slow = [&](const PairResult* p) {
    return p->bandwidth_GBps < limits.warn_bandwidth * usual.bandwidth_GBps;
  };
  const auto look = [&](const auto& by_host, const char* does, auto& known) {
    for (const auto& [host, of] : by_host) {
      if (others(host, of) < 2 || !std::ranges::all_of(of, too_slow)) continue;
      const auto [least, most] = std::ranges::minmax(of, {}, &PairResult::bandwidth_GBps);
      const double share = most->bandwidth_GBps / usual.bandwidth_GBps;
      const bool fails = least->bandwidth_GBps < limits.fail_bandwidth * usual.bandwidth_GBps;
      const Verdict verdict = fails ? Verdict::kFail : Verdict::kWarn;
      for (const int rail : usual.on_rails) known[{host, rail}] = verdict;
      items.push_back(
          {"pairs", fmt::format("host {} {}", host, usual.link), verdict,
           fmt::format("{} {} to {} GB/s, at most {:.0f} % of the usual {}, in all {} directions",
                       does, format_GBps(least->bandwidth_GBps), format_GBps(most->bandwidth_GBps),
                       share * 100, format_GBps(usual.bandwidth_GBps), of.size()),
           "host-slow-bandwidth",
           "look at this host's port of the rail: the rate and width of its link (`ethtool`, "
           "`ibstatus`, `lspci -vv`), its counters, cable and switch port; and at other traffic"});
    }
  };
  look(sent, "sends", slow.sending);
  look(received, "receives", slow.receiving);
  for (const auto& [host, of] : all) {
    const auto [least, most] = std::ranges::minmax(of, {}, &PairResult::latency_us);
    const double times = least->latency_us / usual.latency_us;
    if (others(host, of) < 2 || times <= limits.warn_latency) continue;
    const bool fails = most->latency_us > limits.fail_latency * usual.latency_us;
    const Verdict verdict = fails ? Verdict::kFail : Verdict::kWarn;
    slow.late[host] = std::max(slow.late[host], verdict);
    items.push_back(
        {"pairs", fmt::format("host {} {}", host, usual.link), verdict,
         fmt::format("{} to {} us, at least {:.1f} times the usual {}, in all {} directions",
                     format_us(least->latency_us), format_us(most->latency_us), times,
                     format_us(usual.latency_us), of.size()),
         "host-slow-latency",
         "look for other load on this host, power saving, its driver's interrupt settings, and its "
         "port of the rail"});
  }
}

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
  SlowHosts slow;
  for (const auto& [link, pairs] : by_link(results)) {
    const PairResult& usual = links.emplace_back(typical(pairs));
    const auto [quickest, latest] = std::ranges::minmax_element(pairs, {}, &PairResult::latency_us);
    const auto [least, most] = std::ranges::minmax_element(pairs, {}, &PairResult::bandwidth_GBps);
    items.push_back(
        {"pairs", link, Verdict::kPass,
         fmt::format("{:>3} directions   {} us ({} to {})   {} GB/s ({} to {})", pairs.size(),
                     format_us(usual.latency_us), format_us(quickest->latency_us),
                     format_us(latest->latency_us), format_GBps(usual.bandwidth_GBps),
                     format_GBps(least->bandwidth_GBps), format_GBps(most->bandwidth_GBps)),
         "", ""});
    judge_hosts(pairs, usual, limits, slow, outliers);
  }
  for (const PairResult& p : results) {
    const PairResult& usual = *std::ranges::find(links, p.link, &PairResult::link);
    const std::string subject = fmt::format("rank {}{} -> rank {}{}", p.from, at_host(p.from_host),
                                            p.to, at_host(p.to_host));
    const double share = p.bandwidth_GBps / usual.bandwidth_GBps;
    const Verdict narrow = share < limits.fail_bandwidth ? Verdict::kFail : Verdict::kWarn;
    if (share < limits.warn_bandwidth && !slow.explain_bandwidth(p, narrow))
      outliers.push_back(
          {"pairs", subject, narrow,
           fmt::format("{}: {} GB/s, {:.0f} % of the usual {}", p.link,
                       format_GBps(p.bandwidth_GBps), share * 100,
                       format_GBps(usual.bandwidth_GBps)),
           "pair-slow-bandwidth",
           "compare with the other pairs of these ranks: all slow points to a host or its NIC, "
           "one slow to the path between"});
    const double times = p.latency_us / usual.latency_us;
    const Verdict late = times > limits.fail_latency ? Verdict::kFail : Verdict::kWarn;
    if (times > limits.warn_latency && !slow.explain_latency(p, late))
      outliers.push_back(
          {"pairs", subject, late,
           fmt::format("{}: {} us, {:.1f} times the usual {}", p.link, format_us(p.latency_us),
                       times, format_us(usual.latency_us)),
           "pair-slow-latency",
           "look for other load on these hosts, power saving, and a detour in the network"});
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
