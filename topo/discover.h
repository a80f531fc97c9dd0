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
  int domain = -1;  // GPUs of equal domain >= 0 share NVLink or xGMI; -1: PCIe only
};

struct NumaNode {
  int id = 0;
  std::string cpus;  // "0-3,8"
  std::uint64_t memory_bytes = 0;
};

struct HostDescription {
  std::string hostname;
  std::string cpu_model;
  int cores = 0;  // number of cores that this process may use
  std::vector<NumaNode> numa;
  std::vector<Nic> nics;  // RDMA devices and plain interfaces, in PCI order
  std::vector<Gpu> gpus;
  std::string sysfs = "/sys";  // the sysfs tree that was read
};

// Reads hwloc and the sysfs tree at `sysfs_root`. Never throws because of missing information:
// fields that cannot be read keep their "unknown" value. A root other than /sys is a recorded tree
// and the only source, so hostname, CPU model and addresses remain empty.
HostDescription discover_host(const std::string& sysfs_root = "/sys");

// The ports that the job uses, in PCI order, so that a slot is the same rail on every host; and the
// other devices, with the reason (Nic::aside).
struct PortChoice {
  std::vector<Nic> rails, others;
};

// Chooses the rails. All rails are ports of one kind (Nic::kind), whatever their state: the kind
// that is nearest to most of the host's GPUs. Candidates are RDMA devices if one of a kind has a
// cable, otherwise interfaces with an address, otherwise interfaces that are up, otherwise
// loopback. One cable is one rail: a bond, VLAN, macvlan, bridge over a NIC or virtual function
// represents its NIC if that interface has the address. Bridges and cables that lead to no other
// host, tunnels and VRFs are used only as a last resort. docs/rails.md contains the rule and
// examples. Ignores WEFT_RAILS.
PortChoice choose_ports(const HostDescription& host);

// Returns the rails of this host: the devices of WEFT_RAILS ("mlx5_0,mlx5_1" or "eth0,eth1") if
// set, in that order; otherwise the rails of choose_ports(). A name may have a rate in Gb/s,
// "rail0:0.4,rail1:0.4", for shaped or virtual links whose rate the kernel does not report. If
// WEFT_RAILS contains an unknown device or an invalid rate, throws Error with the value and the
// devices of the host.
std::vector<Nic> choose_rails(const HostDescription& host);

// Describes this process. Host identity: WEFT_HOST_ID if set, otherwise hostname and boot id. Leaf:
// WEFT_LEAF. GPU: from CUDA_VISIBLE_DEVICES if it contains exactly one GPU, otherwise unknown.
Place discover_place();

}  // namespace weft
