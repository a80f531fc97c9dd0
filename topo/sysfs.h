// Readers for sysfs and procfs, and the parts of discovery that use them. Internal to topo.
//
// Nothing here throws: a file that is missing, unreadable (many sysfs files fail with EINVAL while
// a link is down) or odd gives the "unknown" value its function names.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "topo/discover.h"

namespace weft::sysfs {

// The first line without surrounding blanks; empty where it cannot be read.
std::string read_line(const std::string& path);

// The rest of the first line that starts with `key`, without blanks; empty where there is none.
std::string read_field(const std::string& path, const std::string& key);

// The integer that read_line() holds, "0x10de" included; `unknown` where it is none.
std::int64_t read_integer(const std::string& path, std::int64_t unknown);

// Names in a directory, in natural order (rail2 before rail10), without . and ..; may be empty.
std::vector<std::string> list(const std::string& directory);

// "0-3,8" as 0 1 2 3 8; what does not parse is left out.
std::vector<int> parse_cpulist(const std::string& text);

// "0000:3b:00.0"
bool is_pci_address(const std::string& text);

// The PCI function that a device directory or link belongs to, through virtio and the like;
// empty for a virtual device.
std::string pci_address(const std::string& device);

// NUMA node of a PCI function below `root`, -1 where unknown.
int pci_numa_node(const std::string& root, const std::string& pci);

// True for the order of rails: by PCI address, virtual ones last, then by name.
bool before(const Nic& a, const Nic& b);

// --- parts of discover_host() ---

// With `live`, interfaces, state and addresses are those of this process's network namespace
// (the tree may be mounted from another one); otherwise those of the tree.
std::vector<Nic> discover_nics(const std::string& root, bool live);

// `proc_root` is where the NVIDIA driver says which GPUs this process may see; empty: nowhere.
std::vector<Gpu> discover_gpus(const std::string& root, const std::string& proc_root);

std::vector<NumaNode> discover_numa(const std::string& root);

// The NUMA node that holds every CPU of `cpus` ("0-3"), -1 where they span several.
int numa_node_of(const std::vector<NumaNode>& nodes, const std::string& cpus);

}  // namespace weft::sysfs
