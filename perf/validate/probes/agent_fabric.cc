// Scatters the orders of a round to the agents and gathers their samples, over the job's control
// plane.
#include "perf/validate/probes/agent_fabric.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <thread>

#include "topo/base/clock.h"

namespace weft::fabric {
namespace {

constexpr int kHostsAtOnce = 64;  // texts that rank 0 holds at a time
// Sent to ranks that run no end of a flow; "" would make serve() return.
constexpr const char* kNoOrders = "[]";

// Returns the fraction of a packet that is payload: TCP with timestamps over IPv4 and Ethernet with
// preamble and gap (shapers of virtual devices count only the Ethernet header); RoCE v2 and
// InfiniBand (IBTA 1.6, annex A17).
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

// Flows at full speed over loopback measure the machine's cores. So expect a rate that the cores
// reach easily, and pace senders slightly above it.
constexpr double kLoopbackGbps = 0.5;
constexpr double kLoopbackPace = 1.1;

// Drivers that pass the flow label to rdma_get_udp_sport() derive the UDP source port of a RoCE
// queue pair from it (include/rdma/ib_verbs.h); others use the queue pair's number.
bool labels_choose_ports(const PortFacts& port) {
  static const std::set<std::string> drivers = {"mlx5_core", "hns3", "ice", "irdma"};
  return port.link_layer.value_or("") == "Ethernet" && drivers.contains(port.driver.value_or(""));
}

}  // namespace

std::vector<Rank> agents_of(const Topology& topology) {
  std::vector<Rank> agents;
  for (int h = 0; h < topology.nhosts(); ++h) agents.push_back(topology.ranks_of(h)[0]);
  return agents;
}

void gather_from_agents(Job& job, const Topology& topology, const std::string& mine,
                        const std::function<void(int, const std::string&)>& take) {
  const std::vector<Rank> agents = agents_of(topology);
  const int my_host = topology.host(job.rank());
  const bool agent = agents[static_cast<std::size_t>(my_host)] == job.rank();
  for (int first = 0; first < topology.nhosts(); first += kHostsAtOnce) {
    const int end = std::min(first + kHostsAtOnce, topology.nhosts());
    const bool now = agent && my_host >= first && my_host < end;
    const std::vector<std::string> parts = job.gather(now ? mine : std::string());
    if (job.rank() != 0) continue;
    for (int h = first; h < end; ++h)
      take(h, parts[static_cast<std::size_t>(agents[static_cast<std::size_t>(h)])]);
  }
}

std::string told_by_root(Job& job, const std::string& text) {
  if (job.rank() != 0) return job.scatter({});
  return job.scatter(std::vector<std::string>(static_cast<std::size_t>(job.size()), text));
}

double expected_gbps(const PortFacts& port, const Policy& policy, double declared_gbps,
                     const std::string& transport) {
  double rate = policy.declared_gbps(port.rail).value_or(declared_gbps);
  const bool hardware = port.pci && !port.pci->empty();
  if (rate <= 0 && hardware)
    rate = std::max(port.rate_gbps.value_or(0), port.most_rate_gbps.value_or(0));
  return std::max(rate, 0.0) * payload_share(port, transport);
}

int flows_of_one_machine(int cores, double gbps) {
  constexpr double kGbpsOfCore = 3;
  return gbps > 0 ? std::max(1, static_cast<int>(cores * kGbpsOfCore / gbps)) : 1;
}

AgentFabric::AgentFabric(Job& job, const Topology& topology, const FleetFacts& facts,
                         const Policy& policy, double declared_gbps, std::string transport)
    : job_(job),
      transport_(std::move(transport)),
      agents_(agents_of(topology)),
      rails_(topology.rails_by_slot(job.rank())) {
  double most_gbps = 0;
  bool emulated = false, known = true;
  for (const HostFacts& host : facts.hosts) {
    FleetHost& h = hosts_.emplace_back();
    h.name = host.host;
    h.emulated = host.emulated;
    h.cores = std::max(host.cores, 1);
    emulated = emulated || host.emulated;
    const std::vector<Nic> nics = topology.rails_by_slot(agents_[hosts_.size() - 1]);
    for (const PortFacts& port : host.ports) {
      const Nic& nic = nics.at(static_cast<std::size_t>(port.rail));
      double gbps = expected_gbps(port, policy, declared_gbps, transport_);
      if (gbps <= 0 && nic.name == "lo") {
        gbps = kLoopbackGbps;
        full_pace_ = kLoopbackPace;
      }
      h.ports.push_back(
          {port.device, nic.address, gbps,
           transport_ == "verbs" ? port.active_mtu.value_or(0) : port.mtu.value_or(0),
           nic.up && nic.aside.empty() && (transport_ == "verbs" || !nic.address.empty())});
      if (!h.ports.back().usable) continue;
      soft_ = soft_ || (transport_ == "verbs" && (!port.pci || port.pci->empty()));
      labels_ = labels_ && (transport_ != "verbs" || labels_choose_ports(port));
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
    case Probe::kIncast:  // software devices lack flow control and lose packets
    case Probe::kVictim:
    case Probe::kAllToAll:
      return !soft_;
    case Probe::kEntropy:
      return labels_;
    case Probe::kLoopback:  // the kernel never sends packets to the own host over an interface
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

// Gathers from the agents, by host; empty on ranks other than 0.
std::vector<std::string> AgentFabric::gather(const std::string& mine) {
  std::vector<std::string> by_host;
  const std::vector<std::string> by_rank = job_.gather(mine);
  if (!by_rank.empty())
    for (const Rank agent : agents_) by_host.push_back(by_rank[static_cast<std::size_t>(agent)]);
  return by_host;
}

// Scatters to the agents by host; other ranks get `others`.
std::string AgentFabric::scatter(const std::vector<std::string>& by_host,
                                 const std::string& others) {
  std::vector<std::string> by_rank(static_cast<std::size_t>(job_.size()), others);
  for (std::size_t h = 0; h < by_host.size(); ++h)
    by_rank[static_cast<std::size_t>(agents_[h])] = by_host[h];
  return job_.scatter(by_rank);
}

void AgentFabric::begin(const std::string& orders) {
  round_.reset();  // the previous round must be over on all hosts
  round_.emplace(orders, [this](const EndOrder& order) { return make_end(order); });
}

std::vector<FlowSample> AgentFabric::run(const Round& round) {
  begin(scatter(orders_of(round, hosts_, full_pace_, streams_), kNoOrders));
  const std::vector<std::string> offers = gather(round_->offers());
  round_->connect(scatter(route_offers(round, hosts_, offers, false_reports_), kNoOrders));
  gather("");  // barrier: all ends are connected or have an error
  scatter({}, "");
  return join_samples(round, hosts_, gather(round_->run()), false_reports_);
}

void AgentFabric::serve() {
  for (;;) {
    const std::string orders = job_.scatter({});
    if (orders.empty()) return;
    begin(orders);
    gather(round_->offers());
    round_->connect(job_.scatter({}));
    gather("");
    job_.scatter({});
    gather(round_->run());
  }
}

void AgentFabric::stop() { scatter({}, ""); }

}  // namespace weft::fabric
