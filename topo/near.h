// Assigns to each rank of a host the GPU nearest to its rail in the PCI tree, and computes the
// distances of the rails from a rank's GPU.
#pragma once

#include <string>
#include <vector>

#include "topo/discover.h"

namespace weft {

// Returns the distance between two PCI functions of this host: within one root complex, the number
// of bridges between them; larger across root complexes, and still larger across NUMA nodes. The
// largest value if a function is not in the tree at `sysfs_root`.
int pci_distance(const std::string& a, const std::string& b,
                 const std::string& sysfs_root = "/sys");

// Sets the GPU of `place` to the GPU at this address, and the rails' distances from the GPU.
void set_gpu(Place& place, const std::string& pci, const std::string& sysfs_root = "/sys");

// Returns for each of a host's ranks the index of its GPU in `gpus`, or -1 if `gpus` is empty.
// rails: the PCI address of each rank's rail, empty for a virtual rail. The GPUs' numbers of ranks
// differ by at most one; within this limit, the nearest pairs are matched first, and among equal
// distances rank i with GPU i modulo the number of GPUs. The result is the same on all ranks that
// see the same GPUs.
std::vector<int> nearest_gpus(const std::vector<std::string>& rails,
                              const std::vector<std::string>& gpus,
                              const std::string& sysfs_root = "/sys");

// Returns the host's GPUs that CUDA makes visible to a process with this CUDA_VISIBLE_DEVICES
// (nullptr: not set), by number or UUID; stops at the first unknown entry (MIG).
std::vector<Gpu> visible_gpus(const std::vector<Gpu>& gpus, const char* visible,
                              const std::string& proc_root = "/proc");

}  // namespace weft
