// Assigns the GPUs of a machine to its ranks. This file is independent of CUDA.
#include "transport/gpu/rank_gpu.h"

#include <algorithm>
#include <string>
#include <vector>

#include "topo/near.h"

namespace weft {

int gpu_of_rank(const Topology& topology, Rank me, const Device& device) {
  std::vector<std::string> rails, gpus;
  std::size_t mine = 0;
  for (int gpu = 0; gpu < device.count(); ++gpu) gpus.push_back(device.pci(gpu));
  const auto own = std::ranges::find(gpus, topology.place(me).gpu);
  if (own != gpus.end() && !own->empty()) return static_cast<int>(own - gpus.begin());
  for (Rank r = 0; r < topology.nranks(); ++r) {
    const Place& place = topology.place(r);
    if (place.machine != topology.place(me).machine) continue;
    if (r == me) mine = rails.size();
    const auto rail = static_cast<std::size_t>(topology.rail(r));
    rails.push_back(rail < place.rails.size() ? place.rails[rail].pci : "");
  }
  return nearest_gpus(rails, gpus).at(mine);
}

}  // namespace weft
