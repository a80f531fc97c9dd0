// What `weft topo` shows, for both of its forms.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "topo/discover.h"
#include "transport/loaded/loaded.h"

namespace weft {

// Everything that is printed, in either form.
struct View {
  HostDescription host;
  std::optional<Place> place;  // none for a recorded tree
  std::string tree;            // the recorded tree, or empty
  std::vector<Nic> rails;
  std::vector<Nic> others;              // which are no rails, and why
  std::vector<LibraryState> libraries;  // of this host
  int ppn = 1;
  // Per local rank: its rail, the NUMA node of its GPU or -1, the index of its GPU or -1.
  std::vector<int> rail_of, node_of, gpu_of;
};

// GPUs by their index, one group per domain; those that nothing joins are in none.
std::vector<std::vector<int>> gpu_domains(const std::vector<Gpu>& gpus);
std::string gpu_link(const Gpu& gpu);  // "NVLink"

std::string topo_json(const View& view);

}  // namespace weft
