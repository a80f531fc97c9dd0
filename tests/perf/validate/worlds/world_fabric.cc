// Steps of at most 10 ms: update effects, share the links fairly, and apply noise.
#include "perf/validate/worlds/world_fabric.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "perf/validate/probes/goodput.h"
#include "perf/validate/sim/fair_share.h"
#include "topo/base/random.h"
#include "topo/base/status.h"

namespace weft::fabric {
namespace {

constexpr std::size_t kWorldWindows = 10;  // per flow; the first is left out
constexpr double kStep_s = 0.01;
constexpr double kSkew_s = 0.005;          // maximum difference of start times of a round's flows
constexpr double kRoundCost_s = 0.05;      // overhead of a round
constexpr double kPayload = 0.975;         // fraction of a rate: headers of packets of 4096 bytes
constexpr double kSwitch_us = 5;           // one way, through one switch
constexpr double kThreeSwitches_us = 1.5;  // added by two more switches
constexpr double kPings = 1000;
constexpr double kCongestionLoss = 2e-5;  // TCP probes the rate of a link by losses
constexpr int kPacket = 4096;             // bytes

// A sender that lost its last packet waits for a timer: TCP's minimum, or 67 ms.
double timeout_s(Recovery recovery) { return recovery == Recovery::kTcp ? 0.2 : 0.067; }

bool sends(const Effect& effect) { return effect.way != FaultWay::kReceive; }
bool takes(const Effect& effect) { return effect.way != FaultWay::kTransmit; }

}  // namespace

WorldFabric::WorldFabric(SimWorld world)
    : world_(std::move(world)),
      streams_(world_.streams),
      random_(splitmix64(world_.seed ^ 0xfab)),
      fleet_(world_.noise.fleet, world_.noise.correlation_s, world_.noise.fleet_dips_per_s,
             world_.noise.pareto, world_.seed ^ 0xf1ee7) {
  for (int h = 0; h < world_.hosts; ++h) {
    FleetHost host{fmt::format("h{}", h), false, 16, {}};
    for (int r = 0; r < world_.rails && world_.has({h, r}); ++r)
      host.ports.push_back({fmt::format("sim{}", r),
                            fmt::format("10.{}.{}.{}", r, h / 256, h % 256), world_.gbps({h, r}),
                            kPacket});
    hosts_.push_back(std::move(host));
    host_.emplace_back(world_.noise.host, world_.noise.correlation_s, world_.noise.host_dips_per_s,
                       world_.noise.pareto, splitmix64(world_.seed) + static_cast<unsigned>(h));
  }
  host_factor_.resize(hosts_.size(), 1);
  out_of_order_.resize(hosts_.size() * static_cast<std::size_t>(world_.rails));
  std::vector<double> rail_gbps(static_cast<std::size_t>(world_.rails));
  for (int h = 0; h < world_.hosts; ++h)
    for (int r = 0; r < world_.rails; ++r) {
      const Port port{h, r};
      const double gbps = world_.has(port) ? world_.gbps(port) : 0;
      links_.insert(links_.end(), static_cast<std::size_t>(2 * world_.members),
                    {gbps / world_.members});
      auto& most = rail_gbps[static_cast<std::size_t>(r)];
      most = std::max(most, gbps);
    }
  const int leaves = world_.uplinks > 0 ? world_.leaf({world_.hosts - 1, world_.rails - 1}) + 1 : 0;
  // Packets that use all uplinks see one link with their total rate.
  const int links = world_.spray ? 1 : world_.uplinks;
  for (int leaf = 0; leaf < leaves; ++leaf)
    links_.insert(
        links_.end(), static_cast<std::size_t>(2 * links),
        {rail_gbps[static_cast<std::size_t>(leaf % world_.rails)] * world_.uplinks / links});
  for (std::size_t e = 0; e < world_.effects.size(); ++e)
    clocks_.emplace_back(world_.effects[e].spells, splitmix64(world_.seed + 0x5be11) + e);
  active_.resize(clocks_.size());
}

int WorldFabric::port_link(Port port, bool transmits, int member) const {
  return ((port.host * world_.rails + port.rail) * 2 + (transmits ? 0 : 1)) * world_.members +
         member;
}

int WorldFabric::uplink(int leaf, bool up, int number) const {
  const int links = world_.spray ? 1 : world_.uplinks;
  return world_.hosts * world_.rails * 2 * world_.members + (leaf * 2 + (up ? 0 : 1)) * links +
         (world_.spray ? 0 : number);
}

// The links that the hashes of bonds and leaf select.
std::vector<int> WorldFabric::way(const Flow& flow, int stream) {
  for (const Port port : {flow.from, flow.to})
    if (port.host < 0 || port.host >= world_.hosts || port.rail < 0 || !world_.has(port))
      throw Error(
          fmt::format("a flow at host {} rail {}: there is no such port", port.host, port.rail));
  const auto end = [](Port port) {
    return static_cast<std::uint64_t>(port.host) << 8 | static_cast<std::uint64_t>(port.rail);
  };
  const std::uint64_t source = flow.label > 0
                                   ? static_cast<std::uint64_t>(flow.label * streams_ + stream)
                                   : ++connections_ << 32;
  std::uint64_t hash =
      splitmix64(splitmix64(world_.seed ^ source) ^ end(flow.from) << 24 ^ end(flow.to));
  const auto choose = [&](int count) {
    hash = splitmix64(hash);
    return static_cast<int>(hash % static_cast<unsigned>(count));
  };
  std::vector<int> links{port_link(flow.from, true, choose(world_.members)),
                         port_link(flow.to, false, choose(world_.members))};
  const int spine = choose(std::max(1, world_.uplinks));
  if (const int from = world_.leaf(flow.from), to = world_.leaf(flow.to);
      world_.uplinks > 0 && from != to) {
    links.push_back(uplink(from, true, spine));
    links.push_back(uplink(to, false, spine));
  }
  return links;
}

void WorldFabric::apply(const Effect& effect, std::vector<Link>& links) const {
  const auto change = [&](int which, double part = 1) {
    Link& link = links[static_cast<std::size_t>(which)];
    if (effect.kind == Effect::Kind::kLoss)
      link.loss = 1 - (1 - link.loss) * (1 - part * effect.strength);
    else if (effect.kind == Effect::Kind::kCut)
      link.cut = true;
    else
      link.rate = std::min(link.rate, 1 - part * (1 - effect.strength));
  };
  if (effect.place == Effect::Place::kPath) return;
  if (effect.place == Effect::Place::kUplink) {
    const double part = world_.spray ? 1.0 / world_.uplinks : 1;
    if (sends(effect)) change(uplink(world_.leaf(effect.port), true, effect.member), part);
    if (takes(effect)) change(uplink(world_.leaf(effect.port), false, effect.member), part);
    return;
  }
  const bool rail = effect.place == Effect::Place::kRail;
  const bool node = effect.place == Effect::Place::kNode;
  for (int h = 0; h < world_.hosts; ++h)
    for (int r = 0; r < world_.rails; ++r)
      for (int m = 0; m < world_.members; ++m) {
        if (!rail && h != effect.port.host) continue;
        if (node ? r % 2 != effect.port.rail % 2 : r != effect.port.rail) continue;
        if (effect.place == Effect::Place::kMember && m != effect.member) continue;
        if (sends(effect)) change(port_link({h, r}, true, m));
        if (takes(effect)) change(port_link({h, r}, false, m));
      }
}

// Advances to `time_s`; returns whether any effect has started or ended.
bool WorldFabric::advance(double time_s) {
  bool changed = now_.empty();
  for (std::size_t e = 0; e < clocks_.size(); ++e) {
    const bool is = clocks_[e].at(time_s);
    changed |= is != active_[e];
    active_[e] = is;
  }
  if (changed) {
    now_ = links_;
    for (std::size_t e = 0; e < clocks_.size(); ++e)
      if (active_[e]) apply(world_.effects[e], now_);
  }
  fleet_factor_ = fleet_.at(time_s);
  for (std::size_t h = 0; h < host_.size(); ++h) host_factor_[h] = host_[h].at(time_s);
  return changed;
}

// Max-min fair Gb/s of the flows with the links' present state.
std::vector<double> WorldFabric::share(const Round& round, std::vector<Running>& flows) const {
  std::vector<std::vector<int>> ways;
  std::vector<double> most, capacity;
  for (const Link& link : now_) capacity.push_back(link.cut ? 0 : link.nominal * link.rate);
  // Find the leaves that send to a pausing receiver: their uplinks are paused part of the time.
  std::vector<double> left(out_of_order_.size(), 1);  // by leaf
  for (std::size_t e = 0; e < active_.size(); ++e)
    if (active_[e] && world_.effects[e].kind == Effect::Kind::kPauses)
      for (const Flow& flow : round.flows)
        if (flow.to == world_.effects[e].port && !flow.victim)
          left[static_cast<std::size_t>(world_.leaf(flow.from))] =
              (1 + world_.effects[e].strength) / 2;
  for (std::size_t f = 0; f < flows.size(); ++f) {
    Running& running = flows[f];
    const Flow& flow = round.flows[running.flow];
    // The pace of a flow is divided evenly among its connections.
    const double pace = flow.pace < 1 ? flow.pace / running.streams : 1;
    double rate = std::min(world_.gbps(flow.from) * pace,
                           world_.flow_gbps > 0 ? world_.flow_gbps / kPayload
                                                : std::numeric_limits<double>::infinity());
    double passes = 1;
    for (const int link : running.links) passes *= 1 - now_[static_cast<std::size_t>(link)].loss;
    for (std::size_t e = 0; e < active_.size(); ++e) {
      const Effect& effect = world_.effects[e];
      if (effect.place == Effect::Place::kPath && active_[e] && effect.port == flow.from &&
          effect.peer == flow.to)
        rate = std::min(rate, world_.gbps(flow.from) * effect.strength / running.streams);
    }
    if (running.links.size() > 2) rate *= left[static_cast<std::size_t>(world_.leaf(flow.from))];
    running.loss = 1 - passes;
    const double rtt_us = 2 * (kSwitch_us + (running.links.size() > 2 ? kThreeSwitches_us : 0));
    const double window = rate * rtt_us * 1e3 / 8 / kPacket;
    if (world_.recovery == Recovery::kTcp)
      rate = std::min(rate, mathis_gbps(running.loss, kPacket, rtt_us));
    else
      rate *= go_back_n_goodput(running.loss, world_.recovery == Recovery::kSelective ? 1 : window);
    most.push_back(flow.victim ? 0 : rate);
    ways.push_back(running.links);
  }
  std::vector<double> rates = fair_rates(ways, most, capacity);
  for (std::size_t f = 0; f < flows.size(); ++f) flows[f].queued = rates[f] < 0.99 * most[f];
  return rates;
}

void WorldFabric::step(const Round& round, std::vector<Running>& flows, double time_s, bool first) {
  if (advance(time_s) || first) {
    share_ = share(round, flows);
    asked_.assign(now_.size(), 0);
    for (std::size_t f = 0; f < flows.size(); ++f)
      for (const int link : flows[f].links) asked_[static_cast<std::size_t>(link)] += share_[f];
  }
  // Host noise limits the rate of the host's ports, so it does not affect flows that another link
  // limits.
  const auto hold = [&](Port port, int link) {
    const double factor = host_factor_[static_cast<std::size_t>(port.host)];
    const auto l = static_cast<std::size_t>(link);
    return std::min(factor * links_[l].nominal / std::max(asked_[l], 1e-9), std::max(1.0, factor));
  };
  std::vector<double> carried(now_.size());
  for (std::size_t f = 0; f < flows.size(); ++f) {
    Running& flow = flows[f];
    const Flow& ends = round.flows[flow.flow];
    const auto is_cut = [&](int link) { return now_[static_cast<std::size_t>(link)].cut; };
    const bool cut = std::ranges::any_of(flow.links, is_cut);
    const bool tcp = world_.recovery == Recovery::kTcp;
    // The reverse path of TCP's acknowledgments: without it nothing is sent, but nothing is lost.
    const bool unresponsive =
        tcp && (is_cut(port_link(ends.to, true, 0)) || is_cut(port_link(ends.from, false, 0)));
    // Packets in flight are lost, and the flow stalls until a timer expires, which TCP starts at
    // the loss.
    if (cut || unresponsive) {
      const bool begins = time_s >= flow.silent_until_s;
      if (cut && begins)
        flow.lost += world_.gbps(ends.from) / flow.streams * 2 * kSwitch_us * 1e3 / 8 / kPacket;
      if (!tcp)
        flow.silent_until_s =
            time_s + timeout_s(world_.recovery) * std::uniform_real_distribution<>(0, 1)(random_);
      else if (begins)
        flow.silent_until_s = time_s + timeout_s(world_.recovery);
    }
    const double factor = kPayload * fleet_factor_ * flow.own * noise(world_.noise.instant) *
                          hold(ends.from, flow.links[0]) * hold(ends.to, flow.links[1]);
    const double gbps = time_s < flow.silent_until_s ? 0 : share_[f] * std::min(1.0, factor);
    flow.gbps.push_back(gbps);
    for (const int link : flow.links) carried[static_cast<std::size_t>(link)] += gbps;
  }
  for (std::size_t l = 0; l < carried.size(); ++l)
    if (carried[l] > 0) fullest_ = std::max(fullest_, carried[l] / links_[l].nominal);
}

double WorldFabric::noise(double deviation) {
  return std::exp(std::normal_distribution<>(0, 1)(random_) * deviation);
}

void WorldFabric::measure_rate(FlowSample& sample, Running& flow, double step_s,
                               std::size_t steps_a_window) {
  sample.window_s = step_s * static_cast<double>(steps_a_window);
  // The flow began after the round, by a fraction of a step.
  const double late = kSkew_s / kStep_s * std::uniform_real_distribution<>(0, 1)(random_);
  double gbits = 0;
  for (std::size_t w = 0; w < kWorldWindows; ++w) {
    double sum = 0;
    for (std::size_t s = w * steps_a_window; s < (w + 1) * steps_a_window; ++s)
      sum += (1 - late) * flow.gbps[s] + late * flow.gbps[s + 1];
    if (w > 0) sample.window_gbps.push_back(sum / static_cast<double>(steps_a_window));
    gbits += sum * step_s;
  }
  sample.bytes = static_cast<std::uint64_t>(gbits * 1e9 / 8);
  sample.packets = sample.bytes / kPacket;
  sample.reached = sample.bytes > 0;
  if (!sample.reached) sample.error = "timed out";
  sample.retransmits =
      flow.lost > 0 ? std::poisson_distribution<std::uint64_t>(flow.lost)(random_) : 0;
  sample.min_rtt_us = 2 * (kSwitch_us + (flow.links.size() > 2 ? kThreeSwitches_us : 0));
  if (world_.spray && flow.links.size() > 2)
    out_of_order_[static_cast<std::size_t>(sample.flow.to.host * world_.rails +
                                           sample.flow.to.rail)] +=
        static_cast<double>(*sample.packets) *
        std::uniform_real_distribution<>(0.001, 0.05)(random_);
}

// For pings, a lost packet costs a timeout.
void WorldFabric::measure_latency(FlowSample& sample, const Running& flow, double factor) {
  const double base = noise(world_.noise.flow) / std::min(1.0, factor) *
                      (kSwitch_us + (flow.links.size() > 2 ? kThreeSwitches_us : 0));
  const double tail = std::pow(std::uniform_real_distribution<>(0.05, 1)(random_), -0.5);
  LatencySample latency{static_cast<int>(kPings),  base * 0.95,         base * (1 + 0.02 * tail),
                        base * (1.2 + 0.1 * tail), base * (1.5 + tail), base * (2 + 4 * tail)};
  const double lost = 2 * kPings * flow.loss;
  const int timeouts = (lost > 0 ? std::poisson_distribution<>(lost)(random_) : 0) +
                       (flow.silent_until_s > 0 ? 1 : 0);
  const double timeout_us = 1e6 * timeout_s(world_.recovery) / 2;
  if (timeouts > 0) latency.max_us = timeout_us;
  if (timeouts > kPings / 1000) latency.p999_us = timeout_us;
  if (timeouts > kPings / 100) latency.p99_us = timeout_us;
  if (timeouts > kPings / 2) latency.p50_us = timeout_us;
  sample.latency = latency;
}

std::vector<FlowSample> WorldFabric::run(const Round& round) {
  const double window_s = round.seconds / static_cast<double>(kWorldWindows);
  const auto steps_a_window =
      static_cast<std::size_t>(std::max(1.0, std::ceil(window_s / kStep_s - 1e-9)));
  const double step_s = window_s / static_cast<double>(steps_a_window);
  const std::vector<int> streams = streams_of(round, streams_);
  std::vector<Running> flows;  // in the order of the flows
  for (std::size_t f = 0; f < round.flows.size(); ++f)
    for (int stream = 0; stream < streams[f]; ++stream) {
      Running& connection = flows.emplace_back();
      connection.flow = f;
      connection.streams = streams[f];
      connection.links = way(round.flows[f], stream);
      connection.own = noise(world_.noise.flow);
    }
  std::vector<double> losses(flows.size());  // mean over steps, for pings
  const std::size_t steps = kWorldWindows * steps_a_window + 1;
  for (std::size_t s = 0; s < steps; ++s) {
    step(round, flows, now_s_ + step_s * static_cast<double>(s), s == 0);
    for (std::size_t f = 0; f < flows.size(); ++f) {
      Running& flow = flows[f];
      const bool congested = flow.queued && world_.recovery == Recovery::kTcp;
      losses[f] += flow.loss / static_cast<double>(steps);
      flow.lost += flow.gbps.back() * step_s * 1e9 / 8 / kPacket *
                   (flow.loss + (congested ? kCongestionLoss : 0));
    }
  }
  std::vector<FlowSample> samples(round.flows.size());
  std::size_t end = 0;  // of the flow's connections
  for (std::size_t f = 0; f < samples.size(); ++f) {
    FlowSample& sample = samples[f];
    sample.flow = round.flows[f];
    sample.seconds = round.seconds;
    const std::size_t begin = end;
    end += static_cast<std::size_t>(streams[f]);
    Running& whole = flows[begin];  // pings use only the first connection
    whole.loss = losses[begin];
    if (round.probe == Probe::kReach) {
      sample.arrived_at = sample.flow.to;
    } else if (round.probe == Probe::kPathMtu) {
      sample.passed_mtu = kPacket;
      sample.failed_mtu = kPacket + 1;
    } else if (round.probe == Probe::kLatency || sample.flow.victim) {
      measure_latency(sample, whole,
                      fleet_factor_ *
                          host_factor_[static_cast<std::size_t>(sample.flow.from.host)] *
                          host_factor_[static_cast<std::size_t>(sample.flow.to.host)]);
    } else {
      for (std::size_t other = begin + 1; other < end; ++other) {
        whole.lost += flows[other].lost;
        for (std::size_t s = 0; s < steps; ++s) whole.gbps[s] += flows[other].gbps[s];
      }
      measure_rate(sample, whole, step_s, steps_a_window);
    }
  }
  now_s_ += round.seconds + kRoundCost_s;
  return samples;
}

Readings WorldFabric::counters(Port port) const {
  const double packets =
      out_of_order_[static_cast<std::size_t>(port.host * world_.rails + port.rail)];
  if (!world_.spray) return {};
  return {{"hw.out_of_sequence", {ReadingState::kValue, static_cast<std::uint64_t>(packets)}}};
}

}  // namespace weft::fabric
