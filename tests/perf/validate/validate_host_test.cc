// What validate says of hosts whose rails are not like those of most.
#include "perf/validate/validate_host.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "perf/validate/rail_counts.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

Topology hosts_with(const std::vector<std::vector<Nic>>& rails, const std::string& machine = "") {
  std::vector<Place> places;
  for (std::size_t h = 0; h < rails.size(); ++h) {
    places.emplace_back();
    places.back().host = fmt::format("h{}", h);
    places.back().machine = machine.empty() ? places.back().host : machine;
    places.back().rails = rails[h];
  }
  return Topology(std::move(places));
}

Nic nic(const std::string& name, const std::string& address, double gbps = 0) {
  Nic nic;
  nic.name = name;
  nic.address = address;
  nic.rate_gbps = gbps;
  return nic;
}

// Also where it is the first of all.
TEST(Hosts, WhoHasOtherRailsThanMostIsNamedAndNobodyElse) {
  for (std::size_t odd = 0; odd < 4; ++odd) {
    std::vector<std::vector<Nic>> rails(4, {nic("eth0", ""), nic("eth1", ""), nic("eth2", "")});
    EXPECT_THAT(compare_hosts(hosts_with(rails)), IsEmpty());
    rails[odd].erase(rails[odd].begin() + 1);
    const auto items = compare_hosts(hosts_with(rails));
    ASSERT_EQ(items.size(), 1u);
    EXPECT_EQ(items[0].subject, fmt::format("h{}", odd));
    EXPECT_EQ(items[0].fault, "rails-differ");
    EXPECT_THAT(items[0].detail,
                HasSubstr("2 rails (eth0, eth2), but 3 of 4 hosts have 3 (eth0, "));
  }
}

TEST(Hosts, AnAddressThatTwoHaveIsNamed) {
  auto rails = std::vector<std::vector<Nic>>{{nic("eth0", "10.0.0.1"), nic("eth1", "10.1.0.1")},
                                             {nic("eth0", "10.0.0.2"), nic("eth1", "10.1.0.2")},
                                             {nic("eth0", "10.0.0.3"), nic("eth1", "10.1.0.2")}};
  const auto items = compare_hosts(hosts_with(rails));
  ASSERT_EQ(items.size(), 1u);
  EXPECT_EQ(items[0].verdict, Verdict::kFail);
  EXPECT_EQ(items[0].subject, "h2 eth1");
  EXPECT_EQ(items[0].detail, "has the address 10.1.0.2, and so has eth1 on h1");
  EXPECT_THAT(compare_hosts(hosts_with(rails, "one")), IsEmpty()) << "emulated, by --host-ids";
  for (auto& host : rails)
    for (Nic& nic : host) nic.address = "127.0.0.1";
  EXPECT_THAT(compare_hosts(hosts_with(rails)), IsEmpty()) << "emulated hosts";
}

TEST(Hosts, ALinkThatRunsAtAnotherRateThanMostIsNamed) {
  std::vector<std::vector<Nic>> rails(4, {nic("mlx5_0", "", 400), nic("mlx5_1", "", 200)});
  EXPECT_THAT(compare_hosts(hosts_with(rails)), IsEmpty());
  rails[0][0].rate_gbps = 200;
  rails[3][1].rate_gbps = 0;  // not known
  const auto items = compare_hosts(hosts_with(rails));
  ASSERT_EQ(items.size(), 1u);
  EXPECT_EQ(items[0].subject, "h0 mlx5_0");
  EXPECT_EQ(items[0].fault, "rates-differ");
  EXPECT_THAT(items[0].detail, HasSubstr("rail 0 runs at 200 Gb/s, but 3 of 4 hosts have 400"));
}

TEST(Hosts, RailsOfOneSubnetThatAnswerForEachOtherAreNamed) {
  nlohmann::ordered_json host = {{"hostname", "b"},   {"cores", 4}, {"numa_nodes", 1},
                                 {"memory_bytes", 0}, {"gpus", 0},  {"nics", nullptr}};
  std::vector<Nic> rails;
  for (const std::string name : {"eth0", "eth1", "eth2"}) {
    rails.push_back(nic(name, ""));
    rails.back().netdev = name;
    host["nics"].push_back({{"name", name},
                            {"rdma", false},
                            {"up", true},
                            {"subnet", name == "eth2" ? "10.1.0.0/24" : "10.0.0.0/24"},
                            {"arp_for_all", true}});
  }
  const auto warnings = [&] {
    auto items = judge_host(host, rails, 1);
    std::erase_if(items, [](const Item& i) { return i.verdict != Verdict::kWarn; });
    return items;
  };
  const auto items = warnings();
  ASSERT_EQ(items.size(), 1u);
  EXPECT_EQ(items[0].subject, "b eth0, eth1");
  EXPECT_EQ(items[0].fault, "rails-one-subnet");
  EXPECT_THAT(items[0].detail, HasSubstr("one subnet, 10.0.0.0/24"));
  host["nics"][0]["arp_for_all"] = false;
  EXPECT_THAT(warnings(), IsEmpty());
}

TEST(Hosts, AnMtuThatOthersDoNotHaveIsNamed) {
  std::vector<RailMtu> hosts = {{"a", "eth1", 9000}, {"b", "eth1", 9000}, {"c", "eth2", 9000}};
  EXPECT_THAT(compare_mtus(1, hosts), IsEmpty());
  hosts[0].mtu = 1500;
  const auto items = compare_mtus(1, hosts);
  ASSERT_EQ(items.size(), 1u);
  EXPECT_EQ(items[0].subject, "a eth1");
  EXPECT_EQ(items[0].fault, "mtu-differs");
  EXPECT_EQ(items[0].detail, "has an MTU of 1500, but 2 of 3 hosts have 9000 on rail 1");
}

// By what it counted during the run, not before it.
TEST(Ports, OneThatDamagesBitsIsNamed) {
  const CounterSnapshot before = {
      {"symbol_error", 40}, {"net.rx_crc_errors", 7}, {"np_cnp_sent", 1}};
  CounterSnapshot after = before;
  after["np_cnp_sent"] = 900;  // congestion: told, not judged
  const auto judged = [&] { return judge_ports({{1, "b", difference(before, after)}}); };
  ASSERT_EQ(judged().size(), 1u);
  EXPECT_EQ(judged()[0].verdict, Verdict::kPass);
  EXPECT_EQ(judged()[0].detail, "np_cnp_sent +899");
  after["symbol_error"] = 43;
  ASSERT_EQ(judged().size(), 2u);
  EXPECT_EQ(judged()[1].verdict, Verdict::kWarn);
  EXPECT_EQ(judged()[1].subject, "rail 1 host b");
  EXPECT_EQ(judged()[1].fault, "port-errors");
  EXPECT_THAT(judged()[1].detail, HasSubstr("meanwhile: symbol_error +3"));
}

}  // namespace
}  // namespace weft
