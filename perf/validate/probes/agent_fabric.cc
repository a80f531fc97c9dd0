// Hands the orders of a round to the agents and gathers their samples, over the job's control
// plane.
#include "perf/validate/probes/agent_fabric.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "coll/runtime/internals.h"
#include "topo/base/clock.h"
#include "topo/base/thread.h"

namespace weft::fabric {
namespace {

using Json = nlohmann::ordered_json;

// Bytes of a packet that are no payload: TCP with time stamps over IPv4 and Ethernet with preamble
// and gap (a shaper of a virtual device counts the Ethernet header only); RoCE v2 and InfiniBand
// (IBTA 1.6, annex A17).
double payload_share(const PortFacts& port, const std::string& transport) {
  if (transport == "verbs") {
    const double mtu = port.active_mtu.value_or(1024);
    const bool ib = port.link_layer.value_or("") == "InfiniBand";
    return mtu / (mtu + (ib ? 26 : 82));
  }
  const double mtu = port.mtu.value_or(1500);
  const bool hardware = port.pci && !port.pci->empty();
  return (mtu - 52) / (mtu + (hardware ? 38 : 14));
}

// Loopback has no rate of its own, and at full speed its flows measure the machine's cores. So they
// are held to a rate that cores bridge, and are sent a little more.
constexpr double kLoopbackGbps = 0.5;
constexpr double kLoopbackPace = 1.1;

void in_threads(std::vector<std::unique_ptr<FlowEnd>>& ends,
                const std::function<void(std::size_t)>& body) {
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < ends.size(); ++i)
    threads.push_back(start_thread("the thread of a probe", [&, i] { body(i); }));
  for (std::thread& t : threads) t.join();
}

}  // namespace

std::vector<Rank> agents_of(const Topology& topology) {
  std::vector<Rank> agents;
  for (int h = 0; h < topology.nhosts(); ++h) agents.push_back(topology.ranks_of(h)[0]);
  return agents;
}

std::vector<std::string> gather_from_agents(World& world, const std::string& mine) {
  const std::vector<Rank> agents = agents_of(world.topology());
  std::vector<std::string> parts(static_cast<std::size_t>(world.size()));
  if (std::ranges::binary_search(agents, world.rank())) parts[0] = mine;
  const std::vector<std::string> all = job_of(world).all_to_all(parts);
  std::vector<std::string> theirs;
  if (world.rank() == 0)
    for (const Rank agent : agents) theirs.push_back(all[static_cast<std::size_t>(agent)]);
  return theirs;
}

double expected_gbps(const PortFacts& port, const Policy& policy, double declared_gbps,
                     const std::string& transport) {
  const auto of_rail = policy.rail_rate_gbps.find(port.rail);
  double rate = of_rail != policy.rail_rate_gbps.end() ? of_rail->second
                : policy.rate_gbps                     ? *policy.rate_gbps
                                                       : declared_gbps;
  const bool hardware = port.pci && !port.pci->empty();
  if (rate <= 0 && hardware)
    rate = std::max(port.rate_gbps.value_or(0), port.most_rate_gbps.value_or(0));
  return std::max(rate, 0.0) * payload_share(port, transport);
}

int flows_of_one_machine(int cores, double gbps) {
  constexpr double kGbpsOfCore = 3;
  return gbps > 0 ? std::max(1, static_cast<int>(cores * kGbpsOfCore / gbps)) : 1;
}

AgentFabric::AgentFabric(World& world, const FleetFacts& facts, const Policy& policy,
                         double declared_gbps, std::string transport)
    : world_(world),
      transport_(std::move(transport)),
      agents_(agents_of(world.topology())),
      rails_(world.topology().place(world.rank()).rails) {
  double most_gbps = 0;
  bool emulated = false, known = true;
  for (const HostFacts& host : facts.hosts) {
    FleetHost& h = hosts_.emplace_back();
    h.name = host.host;
    h.emulated = host.emulated;
    h.cores = std::max(host.cores, 1);
    emulated = emulated || host.emulated;
    for (const PortFacts& port : host.ports) {
      const auto& nic = world.topology()
                            .place(agents_[hosts_.size() - 1])
                            .rails.at(static_cast<std::size_t>(port.rail));
      double gbps = expected_gbps(port, policy, declared_gbps, transport_);
      if (gbps <= 0 && nic.name == "lo") {
        gbps = kLoopbackGbps;
        paced_ = true;
      }
      h.ports.push_back(
          {port.device, nic.address, gbps,
           transport_ == "verbs" ? port.active_mtu.value_or(0) : port.mtu.value_or(0)});
      most_gbps = std::max(most_gbps, h.ports.back().expected_gbps);
      known = known && h.ports.back().expected_gbps > 0;
    }
  }
  const int cores = static_cast<int>(std::max(std::thread::hardware_concurrency(), 1U));
  if (emulated) most_flows_ = known ? flows_of_one_machine(cores, most_gbps) : 1;
}

bool AgentFabric::supports(Probe probe) const {
  const bool loopback_only =
      std::ranges::any_of(rails_, [](const Nic& rail) { return rail.name == "lo"; });
  switch (probe) {
    case Probe::kReach:
      return !loopback_only;
    case Probe::kPathMtu:
      return !loopback_only;
    case Probe::kLoopback:  // a host's own packets never reach a plain interface
      return transport_ == "verbs";
    default:
      return true;
  }
}

double AgentFabric::now_s() const { return weft::now_s(); }

std::unique_ptr<FlowEnd> AgentFabric::make_end(const EndOrder& order) const {
  const Nic& rail = rails_.at(static_cast<std::size_t>(order.rail));
  if (order.probe == Probe::kPathMtu || order.probe == Probe::kReach)
    return make_datagram_end(order, rails_);
  return transport_ == "verbs" ? make_verbs_end(order, rail) : make_tcp_end(order, rail);
}

std::vector<std::string> AgentFabric::exchange(const std::vector<std::string>& mine) {
  return job_of(world_).all_to_all(mine);
}

// One round at this rank: three exchanges, also where this rank has no end. Returns its samples.
std::string AgentFabric::take_part(const std::string& orders) {
  ends_.clear();
  std::vector<EndOrder> told;
  const auto n = static_cast<std::size_t>(world_.size());
  std::vector<Json> offers(n);
  if (!orders.empty())
    for (const Json& order : Json::parse(orders)) {
      told.push_back(end_order_from_json(order));
      ends_.push_back(make_end(told.back()));
      const Rank peer = agents_[static_cast<std::size_t>(told.back().peer)];
      offers[static_cast<std::size_t>(peer)].push_back(
          {told.back().flow, told.back().sends, ends_.back()->offer()});
    }
  std::vector<std::string> mine(n);
  for (std::size_t r = 0; r < n; ++r)
    if (!offers[r].is_null()) mine[r] = offers[r].dump();
  const std::vector<std::string> theirs = exchange(mine);
  in_threads(ends_, [&](std::size_t i) {
    const std::string& text =
        theirs[static_cast<std::size_t>(agents_[static_cast<std::size_t>(told[i].peer)])];
    std::string offer;
    if (!text.empty())
      for (const Json& o : Json::parse(text))
        if (o[0] == told[i].flow && o[1] != told[i].sends) offer = o[2];
    ends_[i]->connect(offer);
  });
  exchange(std::vector<std::string>(n));  // all ends are connected, or know why not
  Json samples = Json::array();
  std::vector<EndSample> seen(ends_.size());
  in_threads(ends_, [&](std::size_t i) { seen[i] = ends_[i]->run(); });
  for (const EndSample& sample : seen) samples.push_back(to_json(sample));
  return samples.dump();
}

std::vector<FlowSample> AgentFabric::run(const Round& round) {
  const auto n = static_cast<std::size_t>(world_.size());
  std::vector<Json> orders(n);
  for (std::size_t i = 0; i < round.flows.size(); ++i) {
    const Flow& flow = round.flows[i];
    const double expected = hosts_[static_cast<std::size_t>(flow.from.host)]
                                .ports[static_cast<std::size_t>(flow.from.rail)]
                                .expected_gbps;
    for (const bool sends : {true, false}) {
      const Port& own = sends ? flow.from : flow.to;
      const Port& peer = sends ? flow.to : flow.from;
      EndOrder order;
      order.flow = static_cast<int>(i);
      order.peer = peer.host;
      order.sends = sends;
      order.probe = round.probe;
      order.rail = own.rail;
      order.peer_rail = peer.rail;
      order.seconds = round.seconds;
      order.pace_gbps = flow.pace < 1 ? flow.pace * expected
                        : paced_      ? kLoopbackPace * expected
                                      : 0;
      order.label = flow.label;
      order.victim = flow.victim;
      orders[static_cast<std::size_t>(agents_[static_cast<std::size_t>(own.host)])].push_back(
          to_json(order));
    }
  }
  std::vector<std::string> mine(n, "[]");
  for (std::size_t r = 0; r < n; ++r)
    if (!orders[r].is_null()) mine[r] = orders[r].dump();
  std::vector<std::string> parts(n);
  parts[0] = take_part(exchange(mine)[0]);
  std::vector<EndSample> senders(round.flows.size()), receivers(round.flows.size());
  for (const std::string& part : exchange(parts)) {
    if (part.empty()) continue;
    for (const Json& json : Json::parse(part)) {
      EndSample sample = end_sample_from_json(json);
      auto& of = sample.sends ? senders : receivers;
      of.at(static_cast<std::size_t>(sample.flow)) = std::move(sample);
    }
  }
  std::vector<FlowSample> samples;
  for (std::size_t i = 0; i < round.flows.size(); ++i)
    samples.push_back(join(round.flows[i], senders[i], receivers[i]));
  return samples;
}

void AgentFabric::serve() {
  const auto n = static_cast<std::size_t>(world_.size());
  for (;;) {
    const std::string orders = exchange(std::vector<std::string>(n))[0];
    if (orders.empty()) return;
    std::vector<std::string> parts(n);
    parts[0] = take_part(orders);
    exchange(parts);
  }
}

void AgentFabric::stop() {
  exchange(std::vector<std::string>(static_cast<std::size_t>(world_.size())));
}

}  // namespace weft::fabric
