// Parses the answer to DCB_CMD_IEEE_GET. Internal to this folder.
#pragma once

#include "perf/validate/facts/facts.h"
#include "perf/validate/facts/netlink.h"

namespace weft::fabric {

// Parses PFC, the DSCP map and the trust table from the attributes after the dcbmsg. A missing or
// malformed attribute leaves its field unchanged. Source: linux/dcbnl.h, net/dcb/dcbnl.c.
void take_dcb(Attributes attributes, PortFacts& port);

// Parses the output of `dcb pfc show dev I` and `dcb -N app show dev I`.
void take_dcb_text(const std::string& path, PortFacts& port);

}  // namespace weft::fabric
