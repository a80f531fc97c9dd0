// Discovery of this host: NUMA nodes, NICs, RDMA devices, GPUs (hwloc and sysfs).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "topo/topology.h"

namespace weft {

struct Gpu {
  std::string name, pci;
  int numa_node = -1;
  int domain = -1;  // GPUs of equal domain >= 0 are joined by NVLink or xGMI; -1: by PCIe only
};

struct NumaNode {
  int id = 0;
  std::string cpus;  // "0-3,8"
  std::uint64_t memory_bytes = 0;
};

struct HostDescription {
  std::string hostname;
  std::string cpu_model;
  int cores = 0;  // the cores this process may use
  std::vector<NumaNode> numa;
  std::vector<Nic> nics;  // RDMA devices and plain interfaces, in PCI order
  std::vector<Gpu> gpus;
  std::string sysfs = "/sys";  // the tree that was read
};

// Reads hwloc and the sysfs tree below `sysfs_root`. Never throws for a missing part: a field that
// cannot be read keeps its "unknown" value. A root other than /sys is a recorded tree: the function
// then reads only that tree, so hostname, CPU model and addresses stay empty.
HostDescription discover_host(const std::string& sysfs_root = "/sys");

// The ports that belong to the job, in PCI order, so that a slot is the same rail on every host;
// and the other devices, with the reason (Nic::aside).
struct PortChoice {
  std::vector<Nic> rails, others;
};

// The rails are the like ports of one kind (Nic::kind) that the host has most of beside its GPUs,
// whatever their present state is: RDMA devices if one of a kind has a cable, else interfaces with
// an address, else interfaces that are up, else loopback. One cable is one rail: a bond, a VLAN, a
// macvlan, a bridge over a NIC, or a virtual function stands for its NIC where it has the address.
// Bridges and cables that lead to no other host, tunnels and VRFs serve only when nothing else is
// left. docs/rails.md has the rule and examples. WEFT_RAILS has no say here.
PortChoice choose_ports(const HostDescription& host);

// Returns the rails of this host: the devices of WEFT_RAILS ("mlx5_0,mlx5_1" or "eth0,eth1") where
// set, in that order; otherwise those of choose_ports().
// A name in WEFT_RAILS may carry a rate in Gb/s, "rail0:0.4,rail1:0.4", for shaped or virtual links
// whose rate the kernel does not know. Throws Error, naming the value and listing the devices
// present, when WEFT_RAILS names a device that does not exist or gives a bad rate.
std::vector<Nic> choose_rails(const HostDescription& host);

// Describes this process. Its host identity is WEFT_HOST_ID where set, else hostname and boot id;
// its leaf is WEFT_LEAF.
// Its GPU is that of CUDA_VISIBLE_DEVICES where this names one, else not known.
Place discover_place();

}  // namespace weft
