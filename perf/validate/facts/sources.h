// What the readers of this room share. Internal to the room.
#pragma once

#include <optional>
#include <string>

#include "perf/validate/facts/facts.h"
#include "topo/topology.h"

namespace weft::fabric {

// The first line without surrounding blanks; nothing where the file is missing, unreadable or
// blank.
std::optional<std::string> line_of(const std::string& path);

// The first line as a whole number, decimal or "0x1f"; nothing where the line is none.
std::optional<int> whole_of(const std::string& path);

// The first line as the reading of a counter.
Reading reading_of(const std::string& path);
Reading reading_from(const std::string& text);  // "12", "N/A (no PMA)"

// Reads every file of a folder as a counter `prefix` + name of file. A name that is there already
// keeps its reading.
void read_folder(const std::string& folder, const std::string& prefix, Readings& into);

// "5: LinkUp" as "LinkUp".
std::string after_colon(const std::string& text);

// True where the device, the interface or the PCI address is in `sources.excluded_devices`.
bool excluded(const PortFacts& port, const Sources& sources);

// Folders of a port; empty: none. The folder of the interface is empty as well where the tree's
// interface of that name belongs to another network namespace.
std::string ib_folder(const PortFacts& port, const Sources& sources);       // of the device
std::string ib_port_folder(const PortFacts& port, const Sources& sources);  // ports/N
std::string net_folder(const PortFacts& port, const Sources& sources);
std::string device_folder(const PortFacts& port, const Sources& sources);  // of the PCI function

// The PCI function above that of a device folder: the port of a switch or of the processor; empty:
// not known.
std::string folder_above(const std::string& device);

// A message of the kernel: its level (3: an error), and microseconds since the machine started.
struct KernelMessage {
  int level = 0;
  std::uint64_t us = 0;
  std::string text;
};
// All that the kernel's log has; nothing where this process may not read the log.
std::optional<std::vector<KernelMessage>> kernel_log(const Sources& sources);

// The recorded output of ethtool and dcb; empty: none.
std::string recording_of(const PortFacts& port, const Sources& sources);

// --- the readers; each fills the fields it can, and adds the counters it finds ---

// In this order: some look at what others found.
void read_net(PortFacts& port, const Sources& sources);
void read_pci(PortFacts& port, const Sources& sources);
void read_ib(PortFacts& port, const Sources& sources);
void read_ethtool(PortFacts& port, const Sources& sources);
void read_dcb(PortFacts& port, const Sources& sources);
void read_roce(PortFacts& port, const Sources& sources);
void read_card(PortFacts& port, const Sources& sources);
void read_health(PortFacts& port, const Sources& sources);  // gauge "devlink.ill"
void read_neighbours(std::vector<PortFacts>& ports, const Sources& sources);
void take_neighbours(const std::string& text, std::vector<PortFacts>& ports);  // JSON of lldpcli
// FEC and the module as `mlxlink -m -c` prints them, where ethtool says nothing of them, and its
// counters "mlxlink.effective_errors" and "mlxlink.raw_errors". "N/A" is not known.
void take_mlxlink(const std::string& text, PortFacts& port);
void take_mlxlink_counters(const std::string& text, Readings& into);
// NVLinks that are down, and their errors, as `nvidia-smi nvlink -s` and `-e` print them.
void take_nvlinks(const std::string& text, Readings& gpu_state);
void read_nvlinks(HostFacts& host, const Sources& sources);
void read_gpus(HostFacts& host, const Sources& sources);

void ib_counters(const PortFacts& port, const Sources& sources, Readings& into);
void net_counters(const PortFacts& port, const Sources& sources, Readings& into);
void ethtool_counters(const PortFacts& port, const Sources& sources, Readings& into);
void tcp_counters(const Sources& sources, Readings& into);
void pci_counters(const PortFacts& port, const Sources& sources, Readings& into);
// "log.errors" since this process first asked, and "devlink.errors".
void health_counters(const PortFacts& port, const Sources& sources, Readings& into);

}  // namespace weft::fabric
