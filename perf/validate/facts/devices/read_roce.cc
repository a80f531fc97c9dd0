// Congestion control and trust of RoCE ports, as the mlx5 drivers expose them: trust and DCQCN
// priorities in the interface's folder (MLNX_OFED), parameters in debugfs (cc_params).
#include "perf/validate/facts/sources.h"
#include "topo/sysfs.h"

namespace weft::fabric {
namespace {

// enable/P is 1 if priority P has congestion control.
std::optional<int> enabled_priorities(const std::string& folder) {
  std::optional<int> priorities;
  for (int p = 0; p < 8; ++p) {
    const auto enabled = whole_of(folder + "/enable/" + std::to_string(p));
    if (enabled) priorities = priorities.value_or(0) | (*enabled != 0 ? 1 << p : 0);
  }
  return priorities;
}

}  // namespace

void read_roce(PortFacts& port, const Sources& sources) {
  if (const std::string net = net_folder(port, sources); !net.empty()) {
    // "dscp"; some versions print a title before it.
    if (const auto trust = line_of(net + "/qos/trust"))
      port.qos_trust = trust->substr(trust->find_last_of(" :") + 1);
    port.ecn_np_priorities = enabled_priorities(net + "/ecn/roce_np");
    port.ecn_rp_priorities = enabled_priorities(net + "/ecn/roce_rp");
  }
  if (!port.pci) return;
  const std::string parameters = sources.debugfs + "/mlx5/" + *port.pci + "/cc_params";
  for (const std::string& name : sysfs::list(parameters))
    if (const auto value = line_of(parameters + "/" + name))
      port.cc_parameters.emplace_back(name, *value);
}

}  // namespace weft::fabric
