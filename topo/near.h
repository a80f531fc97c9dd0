// Assigns each rank of a host the GPU nearest to its rail in the PCI tree; and computes how near
// the rails are to a rank's GPU.
#pragma once

#include <string>
#include <vector>

#include "topo/discover.h"

namespace weft {

// Returns the distance of two PCI functions of this host: the number of bridges between them below
// one root complex, more across root complexes, and still more across NUMA nodes; the largest value
// if the tree at `sysfs_root` lacks one.
int pci_distance(const std::string& a, const std::string& b,
                 const std::string& sysfs_root = "/sys");

// Sets the GPU of `place` to the one at this address, and the rails' distances from it.
void set_gpu(Place& place, const std::string& pci, const std::string& sysfs_root = "/sys");

// Returns for each of a host's ranks the index of its GPU in `gpus`, -1 if there is none. rails:
// the PCI address of each rank's rail, empty for a virtual one. GPUs' rank counts differ by at most
// one; within that, the nearest pairs are matched first, and among equals rank i with GPU i modulo
// their number. The same on all ranks that see the same GPUs.
std::vector<int> nearest_gpus(const std::vector<std::string>& rails,
                              const std::vector<std::string>& gpus,
                              const std::string& sysfs_root = "/sys");

// Returns the host's GPUs that CUDA shows to a process with this CUDA_VISIBLE_DEVICES (nullptr: not
// set), by number or UUID; stops at unknown entries (MIG).
std::vector<Gpu> visible_gpus(const std::vector<Gpu>& gpus, const char* visible,
                              const std::string& proc_root = "/proc");

}  // namespace weft
