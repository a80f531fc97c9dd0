// Draws faults, runs conduct() on them, and scores the result.
#include "perf/validate/sim/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

#include "topo/base/random.h"
#include "topo/base/status.h"

namespace weft::fabric {
namespace {

constexpr int kAllPaths = 32;  // most hosts for which a plan sends packets along every path

// Faults that only facts (duplicate addresses) or waits for a core show, not probe results.
bool silent(const SimFault& fault) {
  return fault.kind == FaultKind::kSlowCpu || fault.kind == FaultKind::kDuplicate;
}

CauseKind kind_of(const SimFault& fault) {
  switch (fault.kind) {
    case FaultKind::kLoss:
      return CauseKind::kLoss;
    case FaultKind::kLatency:
    case FaultKind::kJitter:
      return CauseKind::kLatency;
    case FaultKind::kMtu:
      return CauseKind::kMtu;
    case FaultKind::kBlackHole:
    case FaultKind::kDead:
      return CauseKind::kUnreachable;
    case FaultKind::kSwapped:
      return CauseKind::kSwapped;
    case FaultKind::kFlap:
      return CauseKind::kUnstable;
    default:
      return CauseKind::kRate;
  }
}

// True if the fault shows in both directions: latency and reachability are measured by round trips,
// and an interface's MTU limits both directions.
bool round_trip(const SimFault& fault) {
  return fault.kind != FaultKind::kRate && fault.kind != FaultKind::kLoss;
}

bool same_pair(const Cause& cause, Port one, Port other) {
  return (cause.port == one && cause.peer == other) || (cause.port == other && cause.peer == one);
}

// With two hosts, localization can name only the path and its direction.
bool names_path_of_two(const Cause& cause, const SimFault& fault) {
  const bool rail = fault.place == FaultPlace::kHost || cause.port.rail == fault.port.rail;
  if (!rail) return false;
  if (cause.place == CausePlace::kPair || cause.place == CausePlace::kFleet)
    return round_trip(fault) || fault.way == FaultWay::kBoth;
  if (cause.place != CausePlace::kPath || fault.way == FaultWay::kBoth) return false;
  return (fault.way == FaultWay::kTransmit) == (cause.port.host == fault.port.host);
}

std::vector<Port> leaf_ports(const SimFault& fault, const SimOptions& fabric) {
  const int size = fabric.leaf_hosts > 0 ? fabric.leaf_hosts : fabric.hosts;
  const int first = fault.port.host / size * size;
  std::vector<Port> ports;
  for (int h = first; h < std::min(first + size, fabric.hosts); ++h)
    ports.push_back({h, fault.port.rail});
  return ports;
}

// True if the ports are the other half of a fleet of two leaves: flows cannot show which leaf is at
// fault.
bool other_half(const std::vector<Port>& ports, const std::vector<Port>& leaf,
                const SimOptions& fabric) {
  return static_cast<int>(ports.size() + leaf.size()) == fabric.hosts &&
         std::ranges::none_of(ports,
                              [&](Port p) { return std::ranges::find(leaf, p) != leaf.end(); });
}

}  // namespace

bool names(const Cause& cause, const SimFault& fault, const SimOptions& fabric) {
  if (silent(fault) || cause.kind != kind_of(fault)) return false;
  if (fault.kind == FaultKind::kSwapped) return same_pair(cause, fault.port, fault.peer);
  if (fabric.hosts == 2 && fault.place != FaultPlace::kPath) return names_path_of_two(cause, fault);
  const bool both = round_trip(fault) || fault.way == FaultWay::kBoth;
  const bool sends = !both && fault.way == FaultWay::kTransmit;
  switch (fault.place) {
    case FaultPlace::kPort:
      return cause.port == fault.port && cause.place == (both    ? CausePlace::kPort
                                                         : sends ? CausePlace::kTransmit
                                                                 : CausePlace::kReceive);
    case FaultPlace::kHost:
      if (fabric.rails == 1)
        return names(cause, {fault.kind, FaultPlace::kPort, fault.way, {fault.port.host, 0}, {}},
                     fabric);
      return cause.port.host == fault.port.host &&
             cause.place == (both    ? CausePlace::kHost
                             : sends ? CausePlace::kHostTransmit
                                     : CausePlace::kHostReceive);
    case FaultPlace::kRail:
      return (cause.place == CausePlace::kRail && cause.port.rail == fault.port.rail) ||
             (cause.place == CausePlace::kFleet && fabric.rails == 1);
    case FaultPlace::kLeaf: {
      const std::vector<Port> leaf = leaf_ports(fault, fabric);
      return cause.place == CausePlace::kGroup &&
             (cause.ports == leaf || other_half(cause.ports, leaf, fabric));
    }
    case FaultPlace::kPath:
      if (both) return cause.place == CausePlace::kPair && same_pair(cause, fault.port, fault.peer);
      return cause.place == CausePlace::kPath && cause.port == fault.port &&
             cause.peer == fault.peer;
  }
  return false;
}

std::vector<SimFault> random_faults(const SimOptions& fabric, int count, std::uint64_t seed) {
  std::mt19937_64 random(splitmix64(seed ^ 0xfa17));
  const auto below = [&](int n) { return std::uniform_int_distribution<>(0, n - 1)(random); };
  const auto between = [&](double low, double high) {
    return std::exp(std::uniform_real_distribution<>(std::log(low), std::log(high))(random));
  };
  constexpr FaultKind kKinds[] = {FaultKind::kRate,   FaultKind::kRate, FaultKind::kRate,
                                  FaultKind::kLoss,   FaultKind::kLoss, FaultKind::kLatency,
                                  FaultKind::kMtu,    FaultKind::kDead, FaultKind::kBlackHole,
                                  FaultKind::kSwapped};
  std::vector<SimFault> faults;
  std::set<int> hosts, rails;
  for (int tries = 0; static_cast<int>(faults.size()) < count && tries < 1000 * count; ++tries) {
    SimFault fault;
    fault.kind = kKinds[below(std::size(kKinds))];
    const bool wide = fault.kind == FaultKind::kRate || fault.kind == FaultKind::kLoss ||
                      fault.kind == FaultKind::kLatency;
    const bool leaves = fabric.leaf_hosts > 1 && fabric.leaf_hosts < fabric.hosts;
    const int place = below(20);  // mostly ports, as in practice
    if (wide && place == 0) fault.place = FaultPlace::kRail;
    if (wide && place == 1 && leaves) fault.place = FaultPlace::kLeaf;
    if (place >= 2 && place < 6 && fault.kind != FaultKind::kSwapped)
      fault.place = FaultPlace::kHost;
    fault.way = static_cast<FaultWay>(below(3));
    fault.port = {below(fabric.hosts), below(fabric.rails)};
    fault.strength = fault.kind == FaultKind::kRate      ? between(0.25, 0.85)
                     : fault.kind == FaultKind::kLoss    ? between(1e-4, 1e-2)
                     : fault.kind == FaultKind::kLatency ? fabric.latency_us * between(5, 50)
                     : fault.kind == FaultKind::kMtu     ? fabric.mtu / 2
                                                         : 0;
    if (fault.kind == FaultKind::kBlackHole) {
      fault.place = FaultPlace::kPath;
      fault.peer = {below(fabric.hosts), fault.port.rail};
    }
    if (fault.kind == FaultKind::kSwapped)
      fault.peer = {fault.port.host, (fault.port.rail + 1) % fabric.rails};
    const bool broad = fault.place == FaultPlace::kRail || fault.place == FaultPlace::kLeaf;
    if (fault.peer.host == fault.port.host && fault.place == FaultPlace::kPath) continue;
    if (fault.kind == FaultKind::kSwapped && fabric.rails < 2) continue;
    if (fault.kind == FaultKind::kBlackHole && fabric.hosts > kAllPaths) continue;
    // A fault of a rail or leaf excludes more faults on its rail; any fault, more on its hosts.
    if (rails.contains(fault.port.rail) || hosts.contains(fault.port.host)) continue;
    const bool crowded = broad && !faults.empty();
    if (crowded && (fabric.rails == 1 || std::ranges::any_of(faults, [&](const SimFault& other) {
                      return other.place == FaultPlace::kHost ||
                             other.kind == FaultKind::kSwapped ||
                             other.port.rail == fault.port.rail;
                    })))
      continue;
    if (!rails.empty() && (fault.place == FaultPlace::kHost || fault.kind == FaultKind::kSwapped))
      continue;
    if (broad) rails.insert(fault.port.rail);
    hosts.insert(fault.port.host);
    if (fault.place == FaultPlace::kPath && !hosts.insert(fault.peer.host).second) {
      hosts.erase(fault.port.host);
      continue;
    }
    faults.push_back(fault);
  }
  return faults;
}

bool Simulated::right() const {
  return wrong_causes == 0 && std::ranges::all_of(named, [](bool found) { return found; });
}

FleetFacts facts_of(const std::vector<FleetHost>& hosts, double rate_gbps, double seconds) {
  FleetFacts fleet;
  for (const FleetHost& host : hosts) {
    HostFacts facts;
    facts.host = facts.hostname = host.name;
    facts.first_rank = static_cast<int>(fleet.hosts.size());
    facts.cores = host.cores;
    facts.names_rails = true;
    for (std::size_t rail = 0; rail < host.ports.size(); ++rail) {
      const PortInfo& info = host.ports[rail];
      PortFacts port;
      port.rail = static_cast<int>(rail);
      port.device = info.device;
      port.rate_gbps = port.most_rate_gbps =
          info.expected_gbps > 0 ? info.expected_gbps : rate_gbps;
      port.active_mtu = info.mtu;
      port.mtu = 9000 * info.mtu / 4096;  // MTU of the interface, as usual with RDMA
      port.address = info.address;
      facts.ports.push_back(std::move(port));
    }
    fleet.hosts.push_back(std::move(facts));
  }
  fleet.seconds = seconds;
  return fleet;
}

Simulated simulate_fleet(const SimulateOptions& options) {
  SimOptions fabric = options.fabric;
  for (const SimFault& fault : random_faults(fabric, options.random_faults, fabric.seed))
    fabric.faults.push_back(fault);
  for (const SimFault& fault : fabric.faults)
    for (const Port port : {fault.port, fault.peer})
      if (port.host < 0 || port.host >= fabric.hosts || port.rail < 0 || port.rail >= fabric.rails)
        throw Error(
            fmt::format("a fault at host {} rail {}: the fleet has {} hosts and {} rails; "
                        "count from 0",
                        port.host, port.rail, fabric.hosts, fabric.rails));
  SimFabric sim(fabric);
  Simulated result;
  PlanOptions plan = options.plan;
  plan.seed = fabric.seed;
  result.conducted = conduct(sim, plan, options.thresholds, options.each_minute);
  result.virtual_s = sim.now_s();
  result.hosts = sim.hosts();
  result.faults = fabric.faults;
  result.facts = facts_of(result.hosts, fabric.rate_gbps, result.virtual_s);
  for (const SimFault& fault : fabric.faults)
    result.named.push_back(silent(fault) ||
                           std::ranges::any_of(result.conducted.causes, [&](const Cause& cause) {
                             return names(cause, fault, fabric);
                           }));
  for (const Cause& cause : result.conducted.causes)
    result.wrong_causes += std::ranges::none_of(
        fabric.faults, [&](const SimFault& fault) { return names(cause, fault, fabric); });
  return result;
}

}  // namespace weft::fabric
