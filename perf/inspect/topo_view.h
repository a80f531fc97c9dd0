// The data that `weft topo` prints as a tree or as JSON.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "topo/discover.h"
#include "transport/loaded/loaded.h"

namespace weft {

struct View {
  HostDescription host;
  std::optional<Place> place;  // no value for a recorded tree
  std::string tree;            // the path of the recorded tree, or empty
  std::vector<Nic> rails;
  std::vector<Nic> others;              // NICs that are not rails, with the reason
  std::vector<LibraryState> libraries;  // availability of optional libraries on this host
  int ppn = 1;
  // Per local rank: its rail, the NUMA node of its GPU or -1, the index of its GPU or -1.
  std::vector<int> rail_of, node_of, gpu_of;
};

// Returns indices of GPUs, one group per domain; GPUs without a domain are left out.
std::vector<std::vector<int>> gpu_domains(const std::vector<Gpu>& gpus);
std::string gpu_link(const Gpu& gpu);  // "NVLink"

std::string topo_json(const View& view);

}  // namespace weft
