// Reads the facts of this host from sysfs, procfs, ethtool, DCB netlink and debugfs.
#pragma once

#include <span>

#include "perf/validate/facts/facts.h"
#include "topo/topology.h"

namespace weft::fabric {

// Describes this host and the given rails, in their order, without counters. Never throws for a
// missing source: the field stays empty.
HostFacts read_host(std::span<const Nic> rails, const Sources& sources);

// Reads all counters of a port.
Readings read_counters(const PortFacts& port, const Sources& sources);

}  // namespace weft::fabric
