// A healthy fleet, as facts and samples, for tests to modify.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <limits>
#include <string>
#include <vector>

#include "perf/validate/checks/registry.h"

namespace weft::fabric::checking {

enum class FleetKind { kRoce, kInfiniband, kSoftRoce, kPlain };

struct Fleet {
  FleetFacts facts;
  std::vector<FleetHost> hosts;
  Samples samples;
  std::vector<Cause> causes;
  Policy policy;
  std::vector<CollectiveResult> collectives;
  std::string failure;
  std::vector<Probe> left_out;
  std::vector<RailOutage> outages;
  std::vector<Drift> drift;

  Observed observed() const {
    return {facts, hosts, samples, causes, policy, collectives, failure, left_out, outages, &drift};
  }
  Judgement judged() const { return judge(observed()); }
  PortFacts& port(int host, int rail = 0) {
    return facts.hosts[static_cast<std::size_t>(host)].ports[static_cast<std::size_t>(rail)];
  }
  HostFacts& host(int host) { return facts.hosts[static_cast<std::size_t>(host)]; }
  // Adds events to a port's counter during the run.
  void move(int host, int rail, const std::string& counter, std::uint64_t events) {
    PortFacts& p = port(host, rail);
    p.before.try_emplace(counter, Reading{ReadingState::kValue, 0});
    p.after.try_emplace(counter, Reading{ReadingState::kValue, 0});
    p.after[counter].value += events;
  }
  // Calls `change` on all samples of a probe.
  void each(Probe probe, const std::function<void(FlowSample&)>& change) {
    for (FlowSample& sample : samples.flows)
      if (samples.rounds[static_cast<std::size_t>(sample.round)].probe == probe) change(sample);
  }
};

inline std::string host_named(int h) { return fmt::format("h{}", h); }

inline void set_counters(PortFacts& port, std::initializer_list<const char*> names,
                         std::uint64_t before, std::uint64_t after) {
  for (const char* name : names) {
    port.before[name] = {ReadingState::kValue, before};
    port.after[name] = {ReadingState::kValue, after};
  }
}

inline void add_mlx5_counters(PortFacts& port, bool roce) {
  set_counters(port,
               {"ib.symbol_error", "ib.link_error_recovery", "ib.link_downed", "ib.port_rcv_errors",
                "ib.port_xmit_discards", "ib.VL15_dropped", "ib.local_link_integrity_errors"},
               0, 0);
  set_counters(port, {"ib.port_xmit_wait"}, 0, 10'000'000);
  set_counters(
      port,
      {"hw.packet_seq_err", "hw.implied_nak_seq_err", "hw.roce_adp_retrans", "hw.roce_slow_restart",
       "hw.duplicate_request", "hw.out_of_sequence", "hw.local_ack_timeout_err",
       "hw.roce_adp_retrans_to", "hw.req_transport_retries_exceeded", "hw.rnr_nak_retry_err",
       "hw.out_of_buffer", "hw.req_rnr_retries_exceeded"},
      7, 7);
  set_counters(port, {"ib.port_xmit_packets", "ib.port_rcv_packets"}, 1000, 1000 + 10'000'000);
  set_counters(port, {"ib.port_xmit_data", "ib.port_rcv_data"}, 0, 10'000'000'000);
  if (!roce) return;
  set_counters(
      port,
      {"eth.rx_crc_errors_phy", "eth.rx_discards_phy", "eth.tx_discards_phy",
       "eth.rx_prio3_discards", "eth.tx_pause_storm_error_events",
       "eth.tx_pause_storm_warning_events", "eth.link_down_events_phy", "eth.rx_pcs_symbol_err_phy",
       "eth.rx_oversize_pkts_phy", "eth.outbound_pci_stalled_rd_events",
       "eth.outbound_pci_stalled_wr_events", "hw.rx_icrc_encapsulated", "hw.rp_cnp_ignored",
       "eth.rx_prio3_pause_duration", "eth.tx_prio3_pause_duration"},
      3, 3);
  set_counters(port, {"eth.rx_prio3_bytes", "eth.tx_prio3_bytes"}, 0, 42'000'000'000);
  set_counters(port, {"eth.rx_corrected_bits_phy"}, 0, 40'000);
  set_counters(port, {"hw.np_ecn_marked_roce_packets"}, 0, 5000);
  set_counters(port, {"hw.np_cnp_sent", "hw.rp_cnp_handled"}, 0, 1000);
}

inline void make_rdma_hardware(PortFacts& port, int h, int r, bool roce) {
  port.device = fmt::format("mlx5_{}", r);
  port.rdma = true;
  port.ib_port = 1;
  port.state = "4: ACTIVE";
  port.phys_state = "5: LinkUp";
  port.link_layer = roce ? "Ethernet" : "InfiniBand";
  port.rate_gbps = port.most_rate_gbps = 400;
  port.width_lanes = 4;
  port.active_mtu = 4096;
  port.firmware = "28.39.1002";
  port.board = "MT_0000000838";
  port.driver = "mlx5_core";
  port.pcie_speed = port.pcie_most_speed = "32.0 GT/s PCIe";
  port.pcie_width = port.pcie_most_width = 16;
  port.numa_node = 0;
  port.local_cpus = "0-31";
  port.pci = fmt::format("0000:{:02x}:00.0", 0x1b + r);
  port.gauges = {{"devlink.ill", {ReadingState::kValue, 0}},
                 {"nic.celsius", {ReadingState::kValue, 60}},
                 {"nic.celsius.most", {ReadingState::kValue, 105}},
                 {"module.celsius", {ReadingState::kValue, 50}},
                 {"module.celsius.most", {ReadingState::kValue, 75}},
                 {"module.received_tenth_uw", {ReadingState::kValue, 8000}},
                 {"module.received_tenth_uw.least", {ReadingState::kValue, 400}}};
  port.settings = {{"FEC", "RS"},
                   {"ACS redirect", "off"},
                   {"IOMMU", "passthrough"},
                   {"relaxed ordering", "on"},
                   {"read request", "4096"}};
  port.switch_name = fmt::format("leaf-{}", r);
  port.switch_port = fmt::format("Ethernet{}", h);
  set_counters(port, {"log.errors", "devlink.errors"}, 2, 2);
  if (roce) {
    port.qos_trust = "dscp";
    port.pfc_priorities = 1 << 3;
    port.pause_rx = port.pause_tx = false;
    port.ecn_np_priorities = port.ecn_rp_priorities = 1 << 3;
    port.cc_parameters = {{"rp_time_reset", "300"}, {"np_min_time_between_cnps", "4"}};
    port.gids = {{0, fmt::format("fe80:0000:0000:0000:0000:{:04x}:0000:{:04x}", r, h + 1),
                  "IB/RoCE v1", port.netdev},
                 {3, fmt::format("0000:0000:0000:0000:0000:ffff:0a{:02x}:{:04x}", r, h + 1),
                  "RoCE v2", port.netdev}};
  } else {
    port.sm_lid = 1;
    port.lid = 2 + h;
    port.pkeys = {"0xffff"};
  }
  set_counters(port, {"pci.TOTAL_ERR_COR", "pci.TOTAL_ERR_NONFATAL", "pci.TOTAL_ERR_FATAL"}, 0, 0);
  add_mlx5_counters(port, roce);
}

inline PortFacts healthy_port(FleetKind kind, int h, int r) {
  PortFacts port;
  port.rail = r;
  port.device = port.netdev = fmt::format("eth{}", r);
  port.operstate = "up";
  port.carrier = true;
  port.mtu = 9000;
  port.mac = fmt::format("02:00:00:{:02x}:{:02x}:{:02x}", r, h / 256, h % 256);
  port.address = fmt::format("10.{}.{}.{}", r, (h + 1) / 256, (h + 1) % 256);
  set_counters(port,
               {"net.carrier_changes", "net.carrier_down_count", "net.rx_dropped", "net.tx_dropped",
                "net.rx_crc_errors"},
               2, 2);
  set_counters(port, {"net.rx_packets", "net.tx_packets"}, 0, 10'000'000);
  set_counters(port, {"tcp.RetransSegs", "tcp.InCsumErrors"}, 5, 5);
  set_counters(port, {"tcp.OutSegs", "tcp.InSegs"}, 0, 1'000'000);
  if (kind == FleetKind::kRoce) make_rdma_hardware(port, h, r, true);
  if (kind == FleetKind::kInfiniband) make_rdma_hardware(port, h, r, false);
  if (kind == FleetKind::kSoftRoce) {
    port.device = fmt::format("rxe{}", r);
    port.rdma = true;
    port.state = "4: ACTIVE";
    port.phys_state = "5: LinkUp";
    port.link_layer = "Ethernet";
    port.active_mtu = 4096;
    set_counters(
        port,
        {"hw.duplicate_request", "hw.out_of_seq_request", "hw.rcvd_rnr_err", "hw.send_rnr_err",
         "hw.rcvd_seq_err", "hw.retry_exceeded_err", "hw.retry_rnr_exceeded_err",
         "hw.completer_retry_err", "hw.send_err", "hw.link_downed"},
        1, 1);
    set_counters(port, {"hw.sent_pkts", "hw.rcvd_pkts"}, 0, 1'000'000);
  }
  return port;
}

// Adds rounds of samples: the flows of each probe, with values of a healthy network.
class Sampler {
 public:
  Sampler(Fleet& fleet, FleetKind kind, double gbps) : fleet_(fleet), kind_(kind), gbps_(gbps) {}

  void add(Probe probe, const std::vector<Flow>& flows, double gbps) {
    const int round = static_cast<int>(fleet_.samples.rounds.size());
    fleet_.samples.rounds.push_back({probe, flows});
    for (const Flow& flow : flows) {
      FlowSample sample;
      sample.round = round;
      sample.flow = flow;
      sample.seconds = 0.3;
      sample.window_s = 0.05;
      sample.window_gbps.assign(6, gbps);
      sample.bytes = static_cast<std::uint64_t>(gbps * sample.seconds / 8 * 1e9);
      if (kind_ == FleetKind::kPlain) {
        sample.min_rtt_us = 20;
        sample.receiver_limited = 0;
        sample.packets = 1'000'000;
        sample.retransmits = probe == Probe::kLowLoad ? 0 : 20;  // to find the rate
      }
      if (probe == Probe::kReach) sample.arrived_at = flow.to;
      if (probe == Probe::kPathMtu) {
        sample.passed_mtu = 9000;
        sample.failed_mtu = 9001;
      }
      if (probe == Probe::kLatency) sample.latency = LatencySample{1000, 2, 3, 8, 20, 30};
      if (flow.victim) sample.latency = LatencySample{1000, 2, 4, 10, 30, 40};
      fleet_.samples.flows.push_back(sample);
    }
  }
  void add_all() {
    const int hosts = static_cast<int>(fleet_.hosts.size());
    const int rails = static_cast<int>(fleet_.hosts.front().ports.size());
    for (int step = 1; step < std::min(hosts, 32); step *= 2)
      for (int r = 0; r < rails; ++r) {
        std::vector<Flow> flows;
        for (int h = 0; h < hosts; ++h) flows.push_back({{h, r}, {(h + step) % hosts, r}});
        for (int again = 0; again < (hosts < 4 ? 4 : 2); ++again) add(Probe::kRate, flows, gbps_);
        add(Probe::kLowLoad, flows, gbps_ / 10);
        add(Probe::kReach, flows, 0);
        add(Probe::kPathMtu, flows, 0);
        add(Probe::kLatency, flows, 0);
      }
    add_loaded(hosts, rails);
  }

 private:
  void add_loaded(int hosts, int rails) {
    std::vector<Flow> incast, victim, halves, everyone;
    for (int h = 1; h < hosts; ++h) incast.push_back({{h, 0}, {0, 0}});
    add(Probe::kIncast, incast, 0.97 * gbps_ / std::max(1, hosts - 1));
    victim.push_back({{0, 0}, {1 % hosts, 0}, 1, 0, true});
    add(Probe::kVictim, victim, 0);
    for (int h = 0; h < hosts; ++h) halves.push_back({{h, 0}, {(h + hosts / 2) % hosts, 0}});
    add(Probe::kBisection, halves, 0.96 * gbps_);
    for (int h = 0; h < hosts; ++h)
      for (int to = 0; to < std::min(hosts, 9); ++to)
        if (to != h) everyone.push_back({{h, 0}, {to, 0}});
    add(Probe::kAllToAll, everyone, 0.96 * gbps_ / std::max(1, std::min(hosts, 9) - 1));
    if (rails > 1) {
      add(Probe::kCrossRail, {{{0, 0}, {1 % hosts, 1}}, {{1 % hosts, 0}, {0, 1}}}, gbps_);
      add(Probe::kLoopback, {{{0, 0}, {0, 1}}, {{1 % hosts, 0}, {1 % hosts, 1}}}, gbps_);
    }
    for (int label = 0; label < 8; ++label)
      add(Probe::kEntropy, {{{0, 0}, {1 % hosts, 0}, 1, label}}, gbps_);
  }

  Fleet& fleet_;
  FleetKind kind_;
  double gbps_;
};

// A healthy fleet of that many hosts and rails.
inline Fleet healthy_fleet(FleetKind kind, int hosts = 4, int rails = 2) {
  Fleet fleet;
  fleet.facts.seconds = 20;
  for (int h = 0; h < hosts; ++h) {
    HostFacts host;
    host.host = host.hostname = host_named(h);
    host.first_rank = h;
    host.cores = 32;
    host.allowed_cpus = "0-63";
    host.numa_node = 0;
    host.memlock_bytes = std::numeric_limits<std::uint64_t>::max();
    host.governor = "performance";
    host.stops = {20, 0.02, 0.02, 1};
    host.gpus = kind == FleetKind::kRoce || kind == FleetKind::kInfiniband ? 8 : 0;
    host.peer_memory = true;
    if (host.gpus > 0)
      for (const char* name : {"gpu0.ecc_uncorrected", "gpu0.nvlinks_down", "gpu7.slowdowns"})
        host.gpu_state[name] = {ReadingState::kValue, 0};
    FleetHost described;
    described.name = host.host;
    described.cores = 32;
    for (int r = 0; r < rails; ++r) {
      host.ports.push_back(healthy_port(kind, h, r));
      described.ports.push_back({host.ports.back().device, *host.ports.back().address, 400, 9000});
    }
    fleet.facts.hosts.push_back(host);
    fleet.hosts.push_back(described);
  }
  Sampler(fleet, kind, 392).add_all();
  fleet.collectives = {{"all_reduce", "ring", 20, 0, 0, "", 300, 320, "h0 rail 0 transmit"}};
  return fleet;
}

// Findings more severe than information.
inline std::vector<Finding> that_weigh(const Judgement& judgement) {
  std::vector<Finding> findings;
  for (const Finding& finding : judgement.findings)
    if (finding.severity > Severity::kInfo) findings.push_back(finding);
  return findings;
}

inline std::string in_short(const Finding& f) {
  return fmt::format("{}{}{} {}/r{}>{}", f.id, f.unknown ? "?" : "",
                     f.explained_by.empty() ? "" : " by " + f.explained_by, f.where.host,
                     f.where.rail, f.where.peer);
}
inline std::string in_short(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& f : findings) text += in_short(f) + "\n";
  return text;
}

}  // namespace weft::fabric::checking
