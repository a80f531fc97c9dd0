// The answer to DCB_CMD_IEEE_GET. Internal to the room.
#pragma once

#include "perf/validate/facts/facts.h"
#include "perf/validate/facts/netlink.h"

namespace weft::fabric {

// Takes PFC, the DSCP map and the trust table from the attributes behind the dcbmsg; what is
// missing or malformed leaves its field as it is. Source: linux/dcbnl.h, net/dcb/dcbnl.c.
void take_dcb(Attributes attributes, PortFacts& port);

// The same from text: what `dcb pfc show dev I` and `dcb -N app show dev I` print.
void take_dcb_text(const std::string& path, PortFacts& port);

}  // namespace weft::fabric
