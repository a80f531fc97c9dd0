// Judges the hosts of the job: hardware, settings and rails, as items of a validation.
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
  bool oversubscribed = false;   // a machine has fewer cores than ranks
};

// The first rank of each machine describes the machine; every rank gets the whole report.
HostReport validate_hosts(World& world);

// Finds hosts whose number of rails or rates differ from those of most hosts, and addresses that
// two hosts share.
std::vector<Item> compare_hosts(const Topology& topology);

struct RailMtu {
  std::string host, device;
  std::int64_t mtu = 0;
};
// Finds hosts whose interface of a rail has another MTU than most hosts.
std::vector<Item> compare_mtus(int rail, const std::vector<RailMtu>& hosts);

// Whether the host has fewer cores than ranks, so that times mean little.
bool oversubscribed(const nlohmann::ordered_json& host, int ranks);

nlohmann::ordered_json describe_host(const HostDescription& host);
// Judges one host by its description alone. `rails` are the job's rails on that host.
std::vector<Item> judge_host(const nlohmann::ordered_json& host, const std::vector<Nic>& rails,
                             int ranks);

}  // namespace weft
