// Faults become properties of links; rates are max-min fair; samples are drawn around them.
#include "perf/validate/sim/sim_fabric.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "perf/validate/probes/goodput.h"
#include "perf/validate/sim/fair_share.h"
#include "topo/base/random.h"

namespace weft::fabric {
namespace {

constexpr int kWindows = 10;       // windows per flow; the first window is left out
constexpr double kOutage_s = 0.2;  // length of a flap

bool transmits(const SimFault& fault) { return fault.way != FaultWay::kReceive; }
bool receives(const SimFault& fault) { return fault.way != FaultWay::kTransmit; }

}  // namespace

SimFabric::SimFabric(const SimOptions& options)
    : options_(options),
      leaf_hosts_(options.leaf_hosts > 0 ? options.leaf_hosts : std::max(1, options.hosts)),
      random_(splitmix64(options.seed)) {
  const auto ports =
      static_cast<std::size_t>(options.hosts) * static_cast<std::size_t>(options.rails);
  const auto leaves = static_cast<std::size_t>(options.hosts / leaf_hosts_ + 1) *
                      static_cast<std::size_t>(options.rails);
  transmit_.resize(ports);
  receive_.resize(ports);
  rail_.resize(static_cast<std::size_t>(options.rails));
  up_.resize(leaves);
  down_.resize(leaves);
  mtu_.assign(ports, options.mtu);
  flap_s_.assign(ports, 0);
  phase_s_.assign(ports, 0);
  cpu_.assign(static_cast<std::size_t>(options.hosts), 1);
  for (int h = 0; h < options.hosts; ++h) {
    FleetHost host{fmt::format("h{}", h), false, 16, {}};
    for (int r = 0; r < options.rails; ++r)
      host.ports.push_back({fmt::format("sim{}", r),
                            fmt::format("10.{}.{}.{}", r, h / 256, h % 256),
                            options.declared ? options.rate_gbps : 0, options.mtu});
    hosts_.push_back(std::move(host));
  }
  for (const SimFault& fault : options.faults) apply(fault);
}

// Applies a fault of a port, or of all ports of a host.
void SimFabric::apply_to_ports(const SimFault& fault) {
  for (int rail = 0; rail < options_.rails; ++rail) {
    if (fault.place == FaultPlace::kPort && rail != fault.port.rail) continue;
    const Port port{fault.port.host, rail};
    const auto p = static_cast<std::size_t>(index(port));
    PortInfo& info =
        hosts_[static_cast<std::size_t>(port.host)].ports[static_cast<std::size_t>(rail)];
    if (fault.kind == FaultKind::kMtu) info.mtu = mtu_[p] = static_cast<int>(fault.strength);
    if (fault.kind == FaultKind::kFlap) {
      flap_s_[p] = fault.strength;
      phase_s_[p] = std::uniform_real_distribution<>(0, fault.strength)(random_);
    }
    if (fault.kind == FaultKind::kDuplicate) {
      info.address = hosts_[static_cast<std::size_t>(fault.peer.host)]
                         .ports[static_cast<std::size_t>(fault.peer.rail)]
                         .address;
      arrives_at_[fault.port] = fault.peer;
    }
  }
}

void SimFabric::apply(const SimFault& fault) {
  const auto change = [&](Link& link) {
    if (fault.kind == FaultKind::kRate) link.rate = std::min(link.rate, fault.strength);
    if (fault.kind == FaultKind::kLoss) link.loss = 1 - (1 - link.loss) * (1 - fault.strength);
    if (fault.kind == FaultKind::kLatency) link.latency_us += fault.strength;
    if (fault.kind == FaultKind::kJitter) link.jitter_us += fault.strength;
    if (fault.kind == FaultKind::kDead || fault.kind == FaultKind::kBlackHole) link.dead = true;
  };
  if (fault.kind == FaultKind::kSlowCpu)
    cpu_[static_cast<std::size_t>(fault.port.host)] = fault.strength;
  if (fault.kind == FaultKind::kSwapped) {
    arrives_at_[fault.port] = fault.peer;
    arrives_at_[fault.peer] = fault.port;
  }
  const auto l = static_cast<std::size_t>(leaf(fault.port));
  switch (fault.place) {
    case FaultPlace::kRail:
      return change(rail_[static_cast<std::size_t>(fault.port.rail)]);
    case FaultPlace::kLeaf:
      if (transmits(fault)) change(up_[l]);
      if (receives(fault)) change(down_[l]);
      return;
    case FaultPlace::kPath:
      change(path_[{fault.port, fault.peer}]);
      if (fault.way == FaultWay::kBoth) change(path_[{fault.peer, fault.port}]);
      return;
    case FaultPlace::kPort:
    case FaultPlace::kHost:
      break;
  }
  apply_to_ports(fault);
  for (int rail = 0; rail < options_.rails; ++rail) {
    if (fault.place == FaultPlace::kPort && rail != fault.port.rail) continue;
    const auto p = static_cast<std::size_t>(index({fault.port.host, rail}));
    if (transmits(fault)) change(transmit_[p]);
    if (receives(fault)) change(receive_[p]);
  }
}

// Returns the combined effects of a route's links, except rates of port and leaf links, which are
// shared.
SimFabric::Link SimFabric::along(Port from, Port to) const {
  Link route;
  const auto pass = [&](const Link& link, bool shared = false) {
    if (!shared) route.rate = std::min(route.rate, link.rate);
    route.loss = 1 - (1 - route.loss) * (1 - link.loss);
    route.latency_us += link.latency_us;
    route.jitter_us += link.jitter_us;
    route.dead |= link.dead;
  };
  pass(transmit_[static_cast<std::size_t>(index(from))], true);
  pass(receive_[static_cast<std::size_t>(index(to))], true);
  pass(rail_[static_cast<std::size_t>(from.rail)]);
  if (to.rail != from.rail) pass(rail_[static_cast<std::size_t>(to.rail)]);
  if (leaf(from) != leaf(to)) {
    pass(up_[static_cast<std::size_t>(leaf(from))], true);
    pass(down_[static_cast<std::size_t>(leaf(to))], true);
    route.latency_us += options_.latency_us / 5;
  }
  if (const auto found = path_.find({from, to}); found != path_.end()) pass(found->second);
  return route;
}

// Returns the port at which packets arrive: with swapped cables, a port is on its neighbor's rail.
Port SimFabric::arrival(Port from, Port to) const {
  const auto cabled = [&](Port port) {
    const auto found = arrives_at_.find(port);
    return found == arrives_at_.end() ? port : found->second;
  };
  if (const Port other = cabled(to); other.host != to.host) return other;
  const int rail = cabled(from).host == from.host ? cabled(from).rail : from.rail;
  for (int r = 0; r < options_.rails; ++r)
    if (const Port port{to.host, r}; cabled(port).rail == rail && cabled(port).host == to.host)
      return port;
  return to;
}

double SimFabric::noise(double deviation) {
  return deviation > 0 ? std::exp(std::normal_distribution<>(0, deviation)(random_)) : 1;
}

// Returns the max-min fair Gb/s of the flows of a round.
std::vector<double> SimFabric::rates(const Round& round) {
  const std::size_t ports = transmit_.size(), leaves = up_.size();
  std::vector<double> capacity(2 * ports + 2 * leaves), most;
  for (std::size_t p = 0; p < ports; ++p) {
    capacity[p] = options_.rate_gbps * transmit_[p].rate;
    capacity[ports + p] = options_.rate_gbps * receive_[p].rate;
  }
  for (std::size_t l = 0; l < leaves; ++l) {
    capacity[2 * ports + l] = options_.rate_gbps * leaf_hosts_ * up_[l].rate;
    capacity[2 * ports + leaves + l] = options_.rate_gbps * leaf_hosts_ * down_[l].rate;
  }
  std::vector<std::vector<int>> links;
  for (const Flow& flow : round.flows) {
    links.push_back({index(flow.from), static_cast<int>(ports) + index(flow.to)});
    if (leaf(flow.from) != leaf(flow.to)) {
      links.back().push_back(static_cast<int>(2 * ports) + leaf(flow.from));
      links.back().push_back(static_cast<int>(2 * ports + leaves) + leaf(flow.to));
    }
    const Link route = along(flow.from, flow.to);
    const double rtt_us = 2 * (options_.latency_us + route.latency_us);
    const double window = options_.rate_gbps * rtt_us * 1e3 / 8 / options_.mtu;
    const double cpu = std::min(cpu_[static_cast<std::size_t>(flow.from.host)],
                                cpu_[static_cast<std::size_t>(flow.to.host)]);
    double rate = options_.rate_gbps * std::min({route.rate, flow.pace, cpu});
    if (options_.tcp)
      rate = std::min(rate, mathis_gbps(route.loss, options_.mtu, rtt_us));
    else
      rate *= go_back_n_goodput(route.loss, window * flow.pace);
    const bool dead = route.dead || along(flow.to, flow.from).dead;  // no acknowledgments
    most.push_back(dead || flow.victim ? 0 : rate);
  }
  return fair_rates(links, most, capacity);
}

// Zeroes the windows in which the port of an end is down.
void SimFabric::outages(FlowSample& sample) {
  for (const Port end : {sample.flow.from, sample.flow.to}) {
    const auto p = static_cast<std::size_t>(index(end));
    if (flap_s_[p] <= 0) continue;
    for (std::size_t w = 0; w < sample.window_gbps.size(); ++w) {
      const double at = now_s_ + sample.window_s * static_cast<double>(w + 1) + phase_s_[p];
      if (std::fmod(at, flap_s_[p]) < kOutage_s) sample.window_gbps[w] = 0;
    }
  }
}

void SimFabric::measure_rate(FlowSample& sample, double gbps, const Link& link) {
  sample.window_s = sample.seconds / kWindows;
  const double average = gbps * noise(options_.noise) * (1 - sample.sender_starved);
  for (int w = 1; w < kWindows; ++w) sample.window_gbps.push_back(average * noise(options_.noise));
  outages(sample);
  sample.bytes = static_cast<std::uint64_t>(sample.gbps() * sample.seconds * 1e9 / 8);
  sample.packets = sample.bytes / static_cast<std::uint64_t>(options_.mtu);
  const double loss = link.loss + (sample.flow.pace >= 1 ? options_.load_loss : 0);
  const double lost = static_cast<double>(*sample.packets) * loss;
  sample.retransmits = lost > 0 ? std::poisson_distribution<std::uint64_t>(lost)(random_) : 0;
  sample.min_rtt_us = 2 * (options_.latency_us + link.latency_us);
}

void SimFabric::measure_latency(FlowSample& sample, const Link& there, const Link& back) {
  const double jitter = (there.jitter_us + back.jitter_us) / 2;
  const double slow = 1 + 5 * sample.sender_starved;
  const double base = slow * (options_.latency_us + (there.latency_us + back.latency_us) / 2) *
                      noise(options_.noise);
  // Quantiles of base plus an exponential of mean `jitter`.
  const double p99 = base * 1.2 * noise(3 * options_.noise);
  sample.latency = LatencySample{1000,
                                 base * 0.95,
                                 base + jitter * std::log(2.0),
                                 p99 + jitter * std::log(100.0),
                                 p99 * 1.5 + jitter * std::log(1000.0),
                                 p99 * 2 + jitter * std::log(2000.0)};
}

std::vector<FlowSample> SimFabric::run(const Round& round) {
  const std::vector<double> gbps = rates(round);
  std::vector<FlowSample> samples(round.flows.size());
  for (std::size_t f = 0; f < samples.size(); ++f) {
    FlowSample& sample = samples[f];
    sample.flow = round.flows[f];
    sample.seconds = round.seconds;
    const Port from = sample.flow.from, to = sample.flow.to;
    const Link there = along(from, to), back = along(to, from);
    const double cpu_from = cpu_[static_cast<std::size_t>(from.host)];
    const double cpu_to = cpu_[static_cast<std::size_t>(to.host)];
    sample.sender_starved = 1 - cpu_from;
    sample.receiver_starved = 1 - cpu_to;
    if (options_.busy_share > 0 && std::bernoulli_distribution(options_.busy_share)(random_))
      sample.sender_starved = std::uniform_real_distribution<>(0.1, 0.6)(random_);
    const bool small = round.probe == Probe::kLatency || round.probe == Probe::kReach ||
                       round.probe == Probe::kPathMtu || sample.flow.victim;
    // Small packets are answered, so they fail if the path is dead in either direction.
    if (small && (there.dead || back.dead)) {
      sample.reached = false;
      sample.error = "timed out";
    } else if (round.probe == Probe::kReach) {
      sample.arrived_at = arrival(from, to);
    } else if (round.probe == Probe::kPathMtu) {
      const int mtu = mtu_[static_cast<std::size_t>(index(from))];
      sample.passed_mtu = std::min(mtu, mtu_[static_cast<std::size_t>(index(to))]);
      sample.failed_mtu = *sample.passed_mtu + 1;
    } else if (small) {
      measure_latency(sample, there, back);
    } else {
      measure_rate(sample, gbps[f], there);
      sample.reached = !there.dead && !back.dead;
    }
  }
  now_s_ += round.seconds + options_.round_cost_s;
  return samples;
}

}  // namespace weft::fabric
