// Healthy fleets of all kinds and sizes: no findings.
#include <gtest/gtest.h>

#include <random>

#include "perf/validate/checks/fleet.h"

namespace weft::fabric::checking {
namespace {

constexpr FleetKind kKinds[] = {FleetKind::kRoce, FleetKind::kInfiniband, FleetKind::kSoftRoce,
                                FleetKind::kPlain};

TEST(HealthyFleet, NothingIsFound) {
  for (const FleetKind kind : kKinds) {
    const Judgement judgement = healthy_fleet(kind).judged();
    EXPECT_EQ(in_short(judgement.findings), "");
    EXPECT_EQ(verdict_of(judgement.findings), Verdict::kOk);
  }
}

// Sizes, traffic, rates, latencies and counters vary as they do between healthy ports.
TEST(HealthyFleet, NothingIsFoundInRandomOnes) {
  for (unsigned seed = 1; seed <= 60; ++seed) {
    std::mt19937 random(seed);
    const auto pick = [&](int low, int high) {
      return std::uniform_int_distribution(low, high)(random);
    };
    const auto vary = [&](double share) {
      return std::uniform_real_distribution(1 - share, 1 + share)(random);
    };
    const FleetKind kind = kKinds[pick(0, 3)];
    Fleet fleet = healthy_fleet(kind, pick(2, 24), pick(1, 4));
    for (HostFacts& host : fleet.facts.hosts)
      for (PortFacts& port : host.ports) {
        const double traffic = vary(0.3);
        for (const char* name :
             {"ib.port_xmit_data", "ib.port_rcv_data", "eth.rx_prio3_bytes", "eth.tx_prio3_bytes",
              "net.rx_packets", "net.tx_packets", "hw.sent_pkts", "hw.rcvd_pkts",
              "ib.port_xmit_packets", "ib.port_rcv_packets"})
          if (const auto it = port.after.find(name); it != port.after.end())
            it->second.value =
                static_cast<std::uint64_t>(traffic * static_cast<double>(it->second.value));
        if (const auto it = port.after.find("eth.rx_corrected_bits_phy"); it != port.after.end())
          it->second.value = static_cast<std::uint64_t>(pick(0, 60'000));
        if (const auto it = port.after.find("hw.np_ecn_marked_roce_packets");
            it != port.after.end())
          it->second.value += static_cast<std::uint64_t>(pick(0, 9000));
        // Counters count since the host started, and wrap.
        for (auto& [name, reading] : port.before) {
          const auto offset = static_cast<std::uint64_t>(pick(0, 1 << 30));
          if (kind_of_counter(name).saturates) continue;
          reading.value += offset;
          port.after[name].value += offset;
        }
        if (port.before.contains("hw.packet_seq_err"))
          port.before["hw.packet_seq_err"] =
              port.after["hw.packet_seq_err"] = {ReadingState::kValue, (1ULL << 32) - 1};
      }
    for (FlowSample& sample : fleet.samples.flows) {
      const double factor = 1 - 0.02 * vary(1);
      for (double& rate : sample.window_gbps) rate *= factor;
      if (sample.latency) {
        sample.latency->p50_us *= vary(0.2);
        sample.latency->p99_us *= vary(0.2);
      }
      if (sample.retransmits && *sample.retransmits > 0)
        sample.retransmits = static_cast<std::uint64_t>(pick(0, 60));
    }
    const Judgement judgement = fleet.judged();
    EXPECT_EQ(in_short(that_weigh(judgement)), "") << "seed " << seed;
    if (HasFailure()) return;
  }
}

TEST(HealthyFleet, RatesSlightlyBelowTheLimitsAreSaid) {
  Fleet fleet = healthy_fleet(FleetKind::kRoce);
  fleet.each(Probe::kRate, [](FlowSample& s) { s.window_gbps.assign(6, 120); });
  const auto findings = that_weigh(fleet.judged());
  ASSERT_FALSE(findings.empty());
  EXPECT_EQ(findings.front().id, "fleet-rate");
  EXPECT_EQ(findings.front().severity, Severity::kFail);
  EXPECT_NEAR(findings.front().expected, 400, 1e-6);
}

// 1,024 hosts, and three faults.
TEST(HealthyFleet, LargeFleetsAreJudgedAsSmallOnes) {
  Fleet fleet = healthy_fleet(FleetKind::kRoce, 1024, 2);
  fleet.port(17, 1).mtu = 1500;
  fleet.move(800, 0, "net.carrier_down_count", 1);
  fleet.host(5).governor = "powersave";
  const auto findings = that_weigh(fleet.judged());
  EXPECT_EQ(in_short(findings), "mtu h17/r1>\nlink-flaps h800/r0>\nhost-setup h5/r-1>\n");
}

// Without facts (a simulated fabric), only samples are judged.
TEST(HealthyFleet, NoFactsAreNoFindings) {
  Fleet fleet = healthy_fleet(FleetKind::kPlain);
  fleet.facts = {};
  EXPECT_EQ(in_short(that_weigh(fleet.judged())), "");
}

}  // namespace
}  // namespace weft::fabric::checking
