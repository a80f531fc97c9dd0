// Readers for sysfs and procfs, and the discovery based on them. Internal to topo, except for
// transports that read a device's state.
//
// No function throws. For files that are missing, malformed or unreadable (many sysfs files fail
// with EINVAL while a link is down) the functions return the "unknown" value documented below.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "topo/discover.h"

namespace weft::sysfs {

// Returns the first line, trimmed; empty if the file cannot be read.
std::string read_line(const std::string& path);

// Returns the rest of the first line that starts with `key`, trimmed; empty if no line does.
std::string read_field(const std::string& path, const std::string& key);

// Returns the first line as an integer, decimal or "0x10de"; `unknown` if it is not an integer.
std::int64_t read_integer(const std::string& path, std::int64_t unknown);

// Returns the names in a directory in natural order (rail2 before rail10).
std::vector<std::string> list(const std::string& directory);

// Parses "0-3,8" as 0 1 2 3 8; skips malformed parts.
std::vector<int> parse_cpulist(const std::string& text);

// Returns whether the text has the form "0000:3b:00.0".
bool is_pci_address(const std::string& text);

// Returns the PCI function of a device directory or link, also through virtio; empty for a virtual
// device.
std::string pci_address(const std::string& device);

// Returns the NUMA node of a PCI function below `root`, -1 if unknown.
int pci_numa_node(const std::string& root, const std::string& pci);

// Returns the CPUs near a PCI function: its local_cpulist if present, otherwise the CPUs of its
// NUMA node; empty if unknown.
std::vector<int> cpus_beside(const std::string& root, const std::string& pci);

// Orders rails: by PCI address, virtual devices last, then by name.
bool before(const Nic& a, const Nic& b);

// The kernel's data of an interface. Indices count from 1; 0: none.
struct Link {
  int index = 0;
  int lower = 0;     // index of the lower device, or of the other end of a virtual cable
  bool far = false;  // `lower` is an interface of another namespace
  int master = 0;    // index of the interface's bond, bridge or VRF
  unsigned flags = 0;
  std::string kind;  // "vlan", "bond", "veth"; empty: hardware, or loopback
  std::string port;  // phys_port_name: "p0", "pf0vf3"
  std::string mac;
};
std::map<std::string, Link> links_of(const std::string& root, bool live);

// --- parts of discover_host() ---

// Sets each NIC's cable (Nic::cable) and, if the NIC is not a rail, the reason (Nic::aside).
void find_cables(const std::string& root, bool live, std::vector<Nic>& nics);

// Returns the host's NICs. With `live`, interfaces, state and addresses are from this process's
// network namespace (the mounted tree may be of another namespace); otherwise from the tree.
std::vector<Nic> discover_nics(const std::string& root, bool live);

// Returns the reason if this process cannot open a verbs device; empty if it can. `dev` is /dev, or
// a recorded copy.
std::string why_not_opened(const std::string& root, const std::string& dev,
                           const std::string& device);

// Returns the host's GPUs. The NVIDIA driver lists the GPUs that are visible to this process below
// `proc_root`; empty: no such list.
std::vector<Gpu> discover_gpus(const std::string& root, const std::string& proc_root);

std::vector<NumaNode> discover_numa(const std::string& root);

// Returns the NUMA node that contains all CPUs of `cpus` ("0-3"), -1 if they span several.
int numa_node_of(const std::vector<NumaNode>& nodes, const std::string& cpus);

}  // namespace weft::sysfs
