// What the hosts of the job have, as items of a validation.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "coll/api/communicator.h"
#include "perf/validate/verdict.h"
#include "topo/discover.h"

namespace weft {

struct HostReport {
  std::vector<Item> items;
  nlohmann::ordered_json hosts;  // one object per machine
  bool oversubscribed = false;   // one of them has fewer cores than ranks
};

// The first rank of each machine describes it; every rank gets all.
HostReport validate_hosts(World& world);

// Hosts whose rails are not like those of most: how many there are, and at what rate; and an
// address that two hosts have.
std::vector<Item> compare_hosts(const Topology& topology);

// Hosts whose interface of a rail has another MTU than most.
struct RailMtu {
  std::string host, device;
  std::int64_t mtu = 0;
};
std::vector<Item> compare_mtus(int rail, const std::vector<RailMtu>& hosts);

// Whether ranks take turns on the cores of this host, so that times mean little.
bool oversubscribed(const nlohmann::ordered_json& host, int ranks);

// One host's part, from its description alone. `rails` are those of the job on that host.
nlohmann::ordered_json describe_host(const HostDescription& host);
std::vector<Item> judge_host(const nlohmann::ordered_json& host, const std::vector<Nic>& rails,
                             int ranks);

}  // namespace weft
