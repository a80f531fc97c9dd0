// RDMA devices and their ports from class/infiniband. This file is independent of how a port is
// used.
#include <algorithm>
#include <cstdio>

#include "perf/validate/facts/sources.h"
#include "topo/sysfs.h"
#ifdef WEFT_HAVE_VERBS
#include "perf/validate/facts/verbs_port.h"
#endif

namespace weft::fabric {
namespace {

// Returns the first active port of a device, or else its first port; 0 if it lists none.
int choose_ib_port(const std::string& device) {
  int chosen = 0;
  for (const std::string& name : sysfs::list(device + "/ports")) {
    const std::vector<int> number = sysfs::parse_cpulist(name);
    if (number.size() != 1) continue;
    const bool active = sysfs::read_line(device + "/ports/" + name + "/state").starts_with("4:");
    if (chosen == 0 || active) chosen = number.front();
    if (active) break;
  }
  return chosen;
}

// Parses rate and width from "400 Gb/sec (4X NDR)".
void take_rate(const std::string& text, PortFacts& port) {
  double gbps = 0;
  int lanes = 0;
  const int found = std::sscanf(text.c_str(), "%lf Gb/sec (%dX", &gbps, &lanes);
  if (found >= 1 && text.find(" Gb/sec") != std::string::npos && gbps > 0) port.rate_gbps = gbps;
  if (found == 2 && lanes > 0) port.width_lanes = lanes;
}

std::vector<PortFacts::Gid> gids_of(const std::string& folder) {
  std::vector<PortFacts::Gid> gids;
  for (const std::string& index : sysfs::list(folder + "/gids")) {
    const auto gid = line_of(folder + "/gids/" + index);
    if (!gid || gid->find_first_not_of("0:") == std::string::npos) continue;  // an unused entry
    const auto number = sysfs::parse_cpulist(index);
    if (number.size() != 1) continue;
    gids.push_back({number.front(), *gid, sysfs::read_line(folder + "/gid_attrs/types/" + index),
                    sysfs::read_line(folder + "/gid_attrs/ndevs/" + index)});
  }
  return gids;
}

}  // namespace

void read_ib(PortFacts& port, const Sources& sources) {
  const std::string device = ib_folder(port, sources);
  if (device.empty()) return;
  port.firmware = line_of(device + "/fw_ver");
  port.board = line_of(device + "/board_id");
  port.ib_port = choose_ib_port(device);
  const std::string folder = ib_port_folder(port, sources);
  if (folder.empty()) return;
  if (const auto state = line_of(folder + "/state")) port.state = after_colon(*state);
  if (const auto state = line_of(folder + "/phys_state")) port.phys_state = after_colon(*state);
  port.link_layer = line_of(folder + "/link_layer");
  if (const auto rate = line_of(folder + "/rate")) take_rate(*rate, port);
  port.sm_lid = whole_of(folder + "/sm_lid");
  port.lid = whole_of(folder + "/lid");
  for (const std::string& index : sysfs::list(folder + "/pkeys")) {
    const auto key = line_of(folder + "/pkeys/" + index);
    if (key && *key != "0x0000") port.pkeys.push_back(*key);
  }
  port.gids = gids_of(folder);
#ifdef WEFT_HAVE_VERBS
  if (sources.live) port.active_mtu = active_mtu_of(port.device, port.ib_port);
#endif
}

void ib_counters(const PortFacts& port, const Sources& sources, Readings& into) {
  if (const std::string folder = ib_port_folder(port, sources); !folder.empty()) {
    read_folder(folder + "/counters", "ib.", into);
    read_folder(folder + "/hw_counters", "hw.", into);
  }
  if (port.rdma) read_folder(ib_folder(port, sources) + "/hw_counters", "hw.", into);
  into.erase("hw.lifespan");  // the driver's caching time in ms, not a counter
}

}  // namespace weft::fabric
