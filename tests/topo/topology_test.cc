// How places become hosts, local ranks and rails.
#include "topo/topology.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Nic nic(const std::string& name, const std::string& pci = "", int numa_node = -1) {
  Nic nic;
  nic.name = nic.netdev = name;
  nic.pci = pci;
  nic.numa_node = numa_node;
  nic.up = true;
  return nic;
}

Place place(const std::string& host, std::vector<Nic> rails, int numa_node = -1) {
  Place place;
  place.host = host;
  place.machine = "m";
  place.rails = std::move(rails);
  place.numa_node = numa_node;
  return place;
}

std::vector<Nic> rails(int count) {
  std::vector<Nic> result;
  for (int i = 0; i < count; ++i) result.push_back(nic(fmt::format("rail{}", i)));
  return result;
}

std::vector<int> rail_of_each(const Topology& topology) {
  std::vector<int> result;
  for (Rank rank = 0; rank < topology.nranks(); ++rank) result.push_back(topology.rail(rank));
  return result;
}

std::vector<std::string> rail_names(const Topology& topology, Rank rank) {
  std::vector<std::string> result;
  for (const Nic& nic : topology.place(rank).rails) result.push_back(nic.name);
  return result;
}

// Hosts with the same leaf name share a leaf; one host without a name makes all leaves unknown.
TEST(Topology, LeavesAreThoseThatHostsName) {
  std::vector<Place> places{place("a", {}), place("b", {}), place("a", {}), place("c", {})};
  places[0].leaf = places[2].leaf = places[3].leaf = "leaf7";
  EXPECT_TRUE(Topology(places).leaves().empty());
  places[1].leaf = "leaf2";
  EXPECT_THAT(Topology(places).leaves(), ElementsAre(0, 1, 0));
}

TEST(Topology, OneRank) {
  const Topology topology({place("a", {})});
  EXPECT_EQ(topology.nranks(), 1);
  EXPECT_EQ(topology.nhosts(), 1);
  EXPECT_EQ(topology.nrails(), 1);
  EXPECT_EQ(topology.rail(0), 0);
  EXPECT_TRUE(topology.uniform());
}

// Even if hosts would choose differently, ranks of equal local index share a rail.
TEST(Topology, HostsWhoseRanksHaveOtherGpusChooseAlike) {
  const auto far = [](int first, int second) {
    std::vector<Nic> both = rails(2);
    both[0].from_gpu = first;
    both[1].from_gpu = second;
    return both;
  };
  EXPECT_THAT(rail_of_each(Topology({place("a", far(9, 2)), place("a", far(2, 9)),
                                     place("b", far(9, 2)), place("b", far(2, 9))})),
              ElementsAre(1, 0, 1, 0));
  EXPECT_THAT(rail_of_each(Topology({place("a", far(9, 2)), place("a", far(2, 9)),
                                     place("b", far(2, 9)), place("b", far(9, 2))})),
              ElementsAre(0, 1, 0, 1));
}

TEST(Topology, NoRanksIsAnError) { EXPECT_THROW(Topology({}), Error); }

TEST(Topology, InterleavedRanksOfUnevenHosts) {
  const Topology topology(
      {place("b", rails(1)), place("a", rails(1)), place("b", rails(1)), place("b", rails(1))});
  EXPECT_EQ(topology.nhosts(), 2);
  EXPECT_EQ(topology.host_name(0), "b");  // hosts in the order of their first rank
  EXPECT_EQ(topology.host_name(1), "a");
  EXPECT_THAT(topology.ranks_of(0), ElementsAre(0, 2, 3));
  EXPECT_THAT(topology.ranks_of(1), ElementsAre(1));
  EXPECT_EQ(topology.host(1), 1);
  EXPECT_EQ(topology.local(3), 2);
  EXPECT_TRUE(topology.same_host(0, 3));
  EXPECT_FALSE(topology.same_host(0, 1));
  EXPECT_FALSE(topology.uniform());
}

// Containers of one machine share its cores, but cannot map each other's memory.
TEST(Topology, ContainersRunOnOneKernel) {
  std::vector<Place> places(4);
  const char* machines[] = {"boot-1:100:0", "boot-1:200:0", "boot-10:100:0", "boot-1:100:0"};
  for (int r = 0; r < 4; ++r) places[r].machine = machines[r];
  const Topology topology(std::move(places));
  EXPECT_TRUE(topology.same_kernel(0, 1));
  EXPECT_FALSE(topology.same_kernel(0, 2));
  EXPECT_TRUE(topology.same_kernel(0, 3));
}

TEST(Topology, RanksSpreadEvenlyOverTheRails) {
  for (int nlocal = 1; nlocal <= 9; ++nlocal) {
    for (int nrails = 1; nrails <= 9; ++nrails) {
      const Topology topology(std::vector<Place>(nlocal, place("a", rails(nrails))));
      for (int local = 0; local < nlocal; ++local) {
        EXPECT_EQ(topology.rail(local), local * nrails / nlocal) << nlocal << " x " << nrails;
      }
    }
  }
}

TEST(Topology, TheHostWithTheFewestRailsSetsTheirNumber) {
  const Topology topology(
      {place("a", rails(4)), place("a", rails(4)), place("b", rails(2)), place("b", rails(2))});
  EXPECT_EQ(topology.nrails(), 2);
  EXPECT_THAT(rail_of_each(topology), ElementsAre(0, 1, 0, 1));
}

TEST(Topology, AHostWithoutRailsStillHasRailZero) {
  const Topology topology({place("a", rails(2)), place("b", {})});
  EXPECT_EQ(topology.nrails(), 1);
  EXPECT_THAT(rail_of_each(topology), ElementsAre(0, 0));
}

TEST(Topology, TheClosestNicFirst) {
  const std::vector<Nic> two = {nic("r0", "0000:01:00.0", 0), nic("r1", "0000:81:00.0", 1)};
  const Topology crossed({place("a", two, 1), place("a", two, 0)});
  EXPECT_THAT(rail_of_each(crossed), ElementsAre(1, 0));
  const Topology interleaved(
      {place("a", two, 0), place("a", two, 1), place("a", two, 0), place("a", two, 1)});
  EXPECT_THAT(rail_of_each(interleaved), ElementsAre(0, 1, 0, 1));
  const Topology alone({place("a", two, 1)});
  EXPECT_THAT(rail_of_each(alone), ElementsAre(1));
}

TEST(Topology, EvenSharesGoBeforeDistance) {
  const std::vector<Nic> two = {nic("r0", "0000:01:00.0", 0), nic("r1", "0000:81:00.0", 1)};
  const Topology topology(std::vector<Place>(4, place("a", two, 1)));
  std::vector<int> load(2, 0);
  for (const int rail : rail_of_each(topology)) ++load[rail];
  EXPECT_THAT(load, ElementsAre(2, 2));
}

TEST(Topology, FiveBoundRanksLeaveNoRailIdle) {
  std::vector<Nic> four;
  for (int i = 0; i < 4; ++i) {
    four.push_back(nic(fmt::format("r{}", i), fmt::format("0000:0{}:00.0", i), i / 2));
  }
  std::vector<Place> places;
  for (const int node : {0, 0, 0, 0, 1}) places.push_back(place("a", four, node));
  std::vector<int> load(4, 0);
  for (const int rail : rail_of_each(Topology(places))) ++load[rail];
  EXPECT_THAT(load, ::testing::UnorderedElementsAre(1, 1, 1, 2));
}

TEST(Topology, EqualLocalRanksMeetOnOneRailThoughTheirHostsAreBoundDifferently) {
  const std::vector<Nic> two = {nic("r0", "0000:01:00.0", 0), nic("r1", "0000:81:00.0", 1)};
  const Topology agree(
      {place("a", two, 1), place("a", two, 0), place("b", two, 1), place("b", two, 0)});
  EXPECT_THAT(rail_of_each(agree), ElementsAre(1, 0, 1, 0));
  const Topology differ({place("a", two, 1), place("a", two, 0), place("b", two, 0),
                         place("b", two, 1), place("c", two, 1), place("c", two, 0)});
  EXPECT_THAT(rail_of_each(differ), ElementsAre(0, 1, 0, 1, 0, 1));
}

TEST(Topology, TheSameSlotIsTheSameRail) {
  const Topology topology({place("a", {nic("x0", "0000:81:00.0"), nic("x1", "0000:01:00.0")}),
                           place("b", {nic("y0", "0000:01:00.0"), nic("y1", "0000:81:00.0")}),
                           place("b", {nic("y0", "0000:01:00.0"), nic("y1", "0000:81:00.0")})});
  EXPECT_THAT(rail_names(topology, 0), ElementsAre("x0", "x1"));
  EXPECT_THAT(rail_names(topology, 1), ElementsAre("y1", "y0"));
  EXPECT_THAT(rail_names(topology, 2), ElementsAre("y1", "y0"));
}

TEST(Topology, ADeadNicDoesNotShiftTheRailsBehindIt) {
  const Topology topology({place("a", {nic("x0", "0000:01:00.0"), nic("x1", "0000:02:00.0"),
                                       nic("x2", "0000:03:00.0")}),
                           place("b", {nic("y0", "0000:01:00.0"), nic("y2", "0000:03:00.0")})});
  EXPECT_EQ(topology.nrails(), 2);
  EXPECT_THAT(rail_names(topology, 0), ElementsAre("x0", "x2", "x1"));
  EXPECT_THAT(rail_names(topology, 1), ElementsAre("y0", "y2", "x1"));
  EXPECT_EQ(topology.place(1).rails[2].aside, "this host has no such port");
  std::vector<std::string> by_slot;
  for (const Nic& rail : topology.rails_by_slot(1)) by_slot.push_back(rail.name);
  EXPECT_THAT(by_slot, ElementsAre("y0", "x1", "y2"));
  EXPECT_EQ(topology.slot(1), 2);
}

TEST(Topology, WithoutSlotsTheListedOrderStays) {
  const Topology virtual_ones(
      {place("a", {nic("rail0"), nic("rail1")}), place("b", {nic("rail1"), nic("rail0")})});
  EXPECT_THAT(rail_names(virtual_ones, 1), ElementsAre("rail1", "rail0"));
  const Topology two_ports_of_one_slot(
      {place("a", {nic("p0", "0000:01:00.0"), nic("p1", "0000:01:00.0")}),
       place("b", {nic("p1", "0000:01:00.0"), nic("p0", "0000:01:00.0")})});
  EXPECT_THAT(rail_names(two_ports_of_one_slot, 1), ElementsAre("p1", "p0"));
  const Topology other_slots({place("a", {nic("x0", "0000:01:00.0"), nic("x1", "0000:02:00.0")}),
                              place("b", {nic("y1", "0000:05:00.0"), nic("y0", "0000:04:00.0")})});
  EXPECT_THAT(rail_names(other_slots, 1), ElementsAre("y1", "y0"));
}

TEST(Topology, WithoutSlotsAMissingRailDoesNotShiftThoseBehindIt) {
  const std::vector<Nic> all = {nic("r0"), nic("r1"), nic("r2")}, fewer = {nic("r0"), nic("r2")};
  for (const auto& [first, second] : {std::pair(all, fewer), std::pair(fewer, all)}) {
    const Topology topology({place("a", first), place("b", second)});
    ASSERT_EQ(topology.nrails(), 2);
    for (Rank r : {0, 1}) {
      EXPECT_EQ(topology.place(r).rails[0].name, "r0");
      EXPECT_EQ(topology.place(r).rails[1].name, "r2");
    }
  }
  // If hosts name their NICs differently, only the order identifies rails.
  const Topology topology({place("a", all), place("b", {nic("eth1"), nic("eth0")})});
  EXPECT_THAT(rail_names(topology, 1), ElementsAre("eth1", "eth0", "r2"));
  // Each host lacks a different NIC.
  const Topology two({place("a", {nic("r0"), nic("r1"), nic("r2")}),
                      place("b", {nic("r0"), nic("r2"), nic("r3")})});
  ASSERT_EQ(two.nrails(), 2);
  EXPECT_THAT(rail_names(two, 0), ElementsAre("r0", "r2", "r1", "r3"));
  EXPECT_EQ(rail_names(two, 1), rail_names(two, 0));
}

// The ranks keep their rails, whichever port is down.
TEST(Topology, AHoleMovesNoOtherRank) {
  const auto host = [](const std::string& name, int hole) {
    std::vector<Nic> four;
    for (int i = 0; i < 4; ++i)
      four.push_back(nic(fmt::format("r{}", i), fmt::format("0000:0{}:00.0", i)));
    if (hole >= 0) four[static_cast<std::size_t>(hole)].up = false;
    return std::vector<Place>(4, place(name, four));
  };
  std::vector<Place> places = host("a", -1);
  for (Place& other : host("b", 1)) places.push_back(std::move(other));
  const Topology topology(std::move(places));
  ASSERT_EQ(topology.nrails(), 3);
  std::vector<std::string> of_each;
  for (Rank r = 0; r < 4; ++r)
    of_each.push_back(topology.place(r).rails[static_cast<std::size_t>(topology.rail(r))].name);
  EXPECT_THAT(of_each, ElementsAre("r0", "r0", "r2", "r3"));
  EXPECT_THAT(rail_names(topology, 4), ElementsAre("r0", "r2", "r3", "r1"));
  std::vector<int> slots;
  for (Rank r = 0; r < 4; ++r) slots.push_back(topology.slot(topology.rail(r)));
  EXPECT_THAT(slots, ElementsAre(0, 0, 2, 3));
}

// A device without an address still counts as a device of its host.
TEST(Topology, WithoutAnAddressARailIsAHole) {
  const auto with = [](const std::string& name, const std::string& address) {
    Nic one = nic(name);
    one.address = address;
    return one;
  };
  Place second = place("b", {with("r0", "10.0.0.2")});
  second.others = {with("r1", "")};
  second.others[0].aside = "no address";
  const Topology topology({place("a", {with("r0", "10.0.0.1"), with("r1", "10.0.1.1")}), second,
                           place("c", {with("r0", "10.0.0.3"), with("r1", "10.0.1.3")})});
  EXPECT_EQ(topology.nrails(), 1);
  EXPECT_EQ(topology.place(1).rails[1].name, "r1");
  EXPECT_TRUE(topology.place(1).rails[1].up);
  EXPECT_EQ(topology.place(1).rails[1].aside, "");
}

// Per rail, and only if every host has it.
TEST(Topology, HostsUseTheAddressFamilyThatAllOfThemHave) {
  const auto with = [](const std::string& address, const std::string& ipv6 = "") {
    Nic one = nic("rail0");
    one.address = address;
    one.ipv6 = ipv6;
    return one;
  };
  const auto addresses = [](std::vector<Place> places) {
    const Topology topology(std::move(places));
    std::vector<std::string> result;
    for (Rank r = 0; r < topology.nranks(); ++r)
      for (const Nic& rail : topology.place(r).rails) result.push_back(rail.address);
    return result;
  };
  EXPECT_THAT(addresses({place("a", {with("10.0.0.1", "fd00::1")}), place("b", {with("fd00::2")})}),
              ElementsAre("fd00::1", "fd00::2"));
  EXPECT_THAT(addresses({place("a", {with("10.0.0.1", "fd00::1")}),
                         place("b", {with("10.0.0.2", "fd00::2")})}),
              ElementsAre("10.0.0.1", "10.0.0.2"));
  EXPECT_THAT(addresses({place("a", {with("10.0.0.1", "fd00::1")}), place("b", {with("10.0.0.2")}),
                         place("c", {with("fd00::3")})}),
              ElementsAre("10.0.0.1", "10.0.0.2", "fd00::3"));
}

TEST(Topology, RanksOfAHostAgreeOnTheirRails) {
  const Topology reordered(
      {place("a", {nic("r0"), nic("r1")}), place("a", {nic("r1"), nic("r0")})});
  EXPECT_THAT(rail_names(reordered, 1), ElementsAre("r0", "r1"));
  try {
    const Topology pinned(
        {place("a", {nic("r0")}), place("b", {nic("r0")}), place("a", {nic("r1")})});
    ADD_FAILURE() << "ranks with different rails were accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::AllOf(HasSubstr("ranks 0 and 2"), HasSubstr("'a'"),
                                               HasSubstr("'r1'"), HasSubstr("WEFT_RAILS")));
  }
}

TEST(Topology, AThousandRanks) {
  std::vector<Place> places;
  for (int rank = 0; rank < 1024; ++rank) {
    places.push_back(place(fmt::format("h{}", rank / 8), rails(8)));
  }
  const Topology topology(std::move(places));
  EXPECT_EQ(topology.nhosts(), 128);
  EXPECT_TRUE(topology.uniform());
  for (Rank rank = 0; rank < 1024; ++rank) EXPECT_EQ(topology.rail(rank), rank % 8);
}

}  // namespace
}  // namespace weft
