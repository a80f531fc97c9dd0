// Readers for sysfs and procfs, and the parts of discovery that use them: internal to topo but for
// wires that read the state of a device.
//
// No function here throws: for a file that is missing, malformed or unreadable (many sysfs files
// fail with EINVAL while a link is down) a function returns the "unknown" value that it names.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "topo/discover.h"

namespace weft::sysfs {

// Returns the first line without surrounding blanks; empty where the file cannot be read.
std::string read_line(const std::string& path);

// Returns the rest of the first line that starts with `key`, trimmed; empty without such a line.
std::string read_field(const std::string& path, const std::string& key);

// Returns the first line as an integer, decimal or "0x10de"; `unknown` where it is no integer.
std::int64_t read_integer(const std::string& path, std::int64_t unknown);

// Returns the names in a directory in natural order (rail2 before rail10); maybe none.
std::vector<std::string> list(const std::string& directory);

// Parses "0-3,8" as 0 1 2 3 8; leaves out the parts that do not parse.
std::vector<int> parse_cpulist(const std::string& text);

// True for text such as "0000:3b:00.0".
bool is_pci_address(const std::string& text);

// Returns the PCI function that a device directory or link belongs to, also through virtio; empty
// for a virtual device.
std::string pci_address(const std::string& device);

// Returns the NUMA node of a PCI function below `root`, -1 where unknown.
int pci_numa_node(const std::string& root, const std::string& pci);

// Returns the CPUs beside a PCI function: those of its local_cpulist, else of its NUMA node; none
// where neither is known.
std::vector<int> cpus_beside(const std::string& root, const std::string& pci);

// Orders rails: by PCI address, virtual devices last, then by name.
bool before(const Nic& a, const Nic& b);

// What the kernel says of an interface. Indices count from 1; 0: none.
struct Link {
  int index = 0;
  int lower = 0;     // what it rides on, or the other end of a virtual cable
  bool far = false;  // `lower` is an interface of another namespace
  int master = 0;    // the bond, bridge or VRF that it is a port of
  unsigned flags = 0;
  std::string kind;  // "vlan", "bond", "veth"; empty: hardware, or loopback
  std::string port;  // phys_port_name: "p0", "pf0vf3"
  std::string mac;
};
std::map<std::string, Link> links_of(const std::string& root, bool live);

// --- parts of discover_host() ---

// Says of each NIC which cable it uses (Nic::cable), and why it can be no rail beside others
// (Nic::aside).
void find_cables(const std::string& root, bool live, std::vector<Nic>& nics);

// With `live`, interfaces, state and addresses come from this process's network namespace (the
// mount of the tree may belong to another namespace); otherwise they come from the tree.
std::vector<Nic> discover_nics(const std::string& root, bool live);

// Returns why this process cannot open a verbs device; empty where it can. `dev` is /dev, or a
// recorded copy.
std::string why_not_opened(const std::string& root, const std::string& dev,
                           const std::string& device);

// The NVIDIA driver lists the GPUs that this process may see below `proc_root`; empty: no list.
std::vector<Gpu> discover_gpus(const std::string& root, const std::string& proc_root);

std::vector<NumaNode> discover_numa(const std::string& root);

// Returns the NUMA node that holds all CPUs of `cpus` ("0-3"), -1 where they span several nodes.
int numa_node_of(const std::vector<NumaNode>& nodes, const std::string& cpus);

}  // namespace weft::sysfs
