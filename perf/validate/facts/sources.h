// Helpers of all readers. Internal to this folder.
#pragma once

#include <optional>
#include <string>

#include "perf/validate/facts/facts.h"
#include "topo/topology.h"

namespace weft::fabric {

// Returns the first line, trimmed; nullopt if the file is missing, unreadable or blank.
std::optional<std::string> line_of(const std::string& path);

// Returns the first line as an integer, decimal or "0x1f"; nullopt: not an integer.
std::optional<int> whole_of(const std::string& path);

// Returns the first line as a counter reading.
Reading reading_of(const std::string& path);
Reading reading_from(const std::string& text);  // "12", "N/A (no PMA)"

// Reads every file of a folder as the counter `prefix` + file name. Existing readings are kept.
void read_folder(const std::string& folder, const std::string& prefix, Readings& into);

// Converts "5: LinkUp" to "LinkUp".
std::string after_colon(const std::string& text);

// Returns whether the device, interface or PCI address is in `sources.excluded_devices`.
bool excluded(const PortFacts& port, const Sources& sources);

// Folders of a port; empty if absent. net_folder() is also empty if the tree's interface of that
// name belongs to another network namespace.
// The folder of the RDMA device.
std::string ib_folder(const PortFacts& port, const Sources& sources);
std::string ib_port_folder(const PortFacts& port, const Sources& sources);  // ports/N
std::string net_folder(const PortFacts& port, const Sources& sources);
// The folder of the PCI device.
std::string device_folder(const PortFacts& port, const Sources& sources);

// Returns the PCI function upstream of a device folder: a port of a switch or root complex; empty:
// unknown.
std::string folder_above(const std::string& device);

// A kernel log message: its level (3: error) and microseconds since boot.
struct KernelMessage {
  int level = 0;
  std::uint64_t us = 0;
  std::string text;
};
// Returns the whole kernel log; nullopt if this process may not read it.
std::optional<std::vector<KernelMessage>> kernel_log(const Sources& sources);

// Returns the path of the recorded output of ethtool and dcb; empty: none.
std::string recording_of(const PortFacts& port, const Sources& sources);

// --- Readers: each fills in its fields and adds its counters ---
// Call them in this order: some use fields that earlier readers filled in.
void read_net(PortFacts& port, const Sources& sources);
void read_pci(PortFacts& port, const Sources& sources);
void read_ib(PortFacts& port, const Sources& sources);
void read_ethtool(PortFacts& port, const Sources& sources);
void read_dcb(PortFacts& port, const Sources& sources);
void read_roce(PortFacts& port, const Sources& sources);
void read_card(PortFacts& port, const Sources& sources);
void read_health(PortFacts& port, const Sources& sources);  // sets the gauge "devlink.ill"
void read_neighbours(std::vector<PortFacts>& ports, const Sources& sources);
void take_neighbours(const std::string& text, std::vector<PortFacts>& ports);  // JSON of lldpcli
// FEC and module from the output of `mlxlink -m -c`, if ethtool reports none, and the counters
// "mlxlink.effective_errors" and "mlxlink.raw_errors". "N/A" means unknown.
void take_mlxlink(const std::string& text, PortFacts& port);
void take_mlxlink_counters(const std::string& text, Readings& into);
// NVLinks that are down, and NVLink errors, from the output of `nvidia-smi nvlink -s` and `-e`.
void take_nvlinks(const std::string& text, Readings& gpu_state);
void read_nvlinks(HostFacts& host, const Sources& sources);
void read_gpus(HostFacts& host, const Sources& sources);

void ib_counters(const PortFacts& port, const Sources& sources, Readings& into);
void net_counters(const PortFacts& port, const Sources& sources, Readings& into);
void ethtool_counters(const PortFacts& port, const Sources& sources, Readings& into);
void tcp_counters(const Sources& sources, Readings& into);
void pci_counters(const PortFacts& port, const Sources& sources, Readings& into);
// Adds "log.errors" (since this process's first call) and "devlink.errors".
void health_counters(const PortFacts& port, const Sources& sources, Readings& into);

}  // namespace weft::fabric
