// Which GPU each rank of a host takes: the one nearest to its rail in the PCI tree. And the other
// way round: how near the rails are to the GPU that a rank has.
#pragma once

#include <string>
#include <vector>

#include "topo/discover.h"

namespace weft {

// Returns how far two PCI functions of this host are apart: the bridges between them where they are
// below one root complex, more across root complexes, and still more across NUMA nodes; the largest
// value where the tree below `sysfs_root` does not say.
int pci_distance(const std::string& a, const std::string& b,
                 const std::string& sysfs_root = "/sys");

// Says in `place` that its rank has the GPU at this address, and how far each rail is from the GPU.
void set_gpu(Place& place, const std::string& pci, const std::string& sysfs_root = "/sys");

// Returns for each of a host's ranks the index of its GPU in `gpus`, -1 where there is none. rails:
// the PCI address of each rank's rail, empty for a virtual one. No GPU has two ranks more than
// another; then the nearest pairs come first, and of equally near ones rank i with GPU i modulo
// their number. The same on all ranks that see the same GPUs.
std::vector<int> nearest_gpus(const std::vector<std::string>& rails,
                              const std::vector<std::string>& gpus,
                              const std::string& sysfs_root = "/sys");

// Returns those of the host's GPUs that CUDA shows to a process with this CUDA_VISIBLE_DEVICES
// (nullptr: not set), by number or UUID; none where the GPUs that it names are not known here
// (MIG).
std::vector<Gpu> visible_gpus(const std::vector<Gpu>& gpus, const char* visible,
                              const std::string& proc_root = "/proc");

}  // namespace weft
