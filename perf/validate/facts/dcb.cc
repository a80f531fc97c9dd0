// PFC, DSCP map and trust of an interface, as `dcb pfc`, `dcb app` and `dcb apptrust` print them.
#include "perf/validate/facts/dcb.h"

#include <linux/dcbnl.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include <cstdio>
#include <fstream>
#include <sstream>

#include "perf/validate/facts/sources.h"

namespace weft::fabric {
namespace {

constexpr int kTrustTable = 11;  // DCB_ATTR_DCB_APP_TRUST_TABLE, missing in Linux 6.1

void take_app(Attributes payload, PortFacts& port) {
  const auto app = value_in<dcb_app>(payload);
  if (app && app->selector == IEEE_8021QAZ_APP_SEL_DSCP)
    port.dscp_map.push_back({app->protocol, app->priority});
}

void take_ieee(int type, Attributes payload, PortFacts& port) {
  if (type == DCB_ATTR_IEEE_PFC) {
    if (const auto pfc = value_in<ieee_pfc>(payload)) port.pfc_priorities = pfc->pfc_en;
  } else if (type == DCB_ATTR_IEEE_APP_TABLE) {
    for_each_attribute(payload, [&](int entry, Attributes app) {
      if (entry == DCB_ATTR_IEEE_APP) take_app(app, port);
    });
  } else if (type == kTrustTable) {
    // Selectors, most trusted first; DCB_APP_SEL_PCP is 255.
    bool first = true;
    for_each_attribute(payload, [&](int, Attributes trusted) {
      const auto selector = value_in<std::uint8_t>(trusted);
      if (!selector || !first) return;
      first = false;
      port.qos_trust = *selector == IEEE_8021QAZ_APP_SEL_DSCP ? "dscp" : "pcp";
    });
  }
}

// Queries the kernel about an interface of this network namespace.
void ask_dcb(PortFacts& port) {
  dcbmsg header{};
  header.dcb_family = AF_UNSPEC;
  header.cmd = DCB_CMD_IEEE_GET;
  take_dcb(
      ask_kernel(RTM_GETDCB, std::as_bytes(std::span(&header, 1)), DCB_ATTR_IFNAME, port.netdev),
      port);
}

}  // namespace

void take_dcb(Attributes attributes, PortFacts& port) {
  for_each_attribute(attributes, [&](int type, Attributes payload) {
    if (type != DCB_ATTR_IEEE) return;
    for_each_attribute(payload,
                       [&](int entry, Attributes value) { take_ieee(entry, value, port); });
  });
}

void take_dcb_text(const std::string& path, PortFacts& port) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string word;
    words >> word;
    const bool pfc = word == "prio-pfc", map = word == "dscp-prio";
    if (pfc) port.pfc_priorities = 0;
    // "0:off 3:on", or with `dcb -N` "0:0 26:3".
    while ((pfc || map) && words >> word) {
      int left = 0, right = 0;
      if (std::sscanf(word.c_str(), "%d:%d", &left, &right) == 2 && map)
        port.dscp_map.push_back({left, right});
      else if (pfc && word.ends_with(":on") && left >= 0 && left < 8)
        *port.pfc_priorities |= 1 << left;
    }
  }
}

void read_dcb(PortFacts& port, const Sources& sources) {
  if (sources.live && !port.netdev.empty()) ask_dcb(port);
  if (const std::string recording = recording_of(port, sources); !recording.empty())
    take_dcb_text(recording, port);
  // mlx5 has no trust table: it trusts DSCP while the map has entries (mlx5e_dcbnl_ieee_setapp).
  if (!port.qos_trust && port.pfc_priorities && port.driver && port.driver->starts_with("mlx5"))
    port.qos_trust = port.dscp_map.empty() ? "pcp" : "dscp";
}

}  // namespace weft::fabric
