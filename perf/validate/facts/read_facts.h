// Reads the facts of this host from sysfs, procfs, ethtool, DCB netlink and debugfs.
#pragma once

#include <span>

#include "perf/validate/facts/facts.h"
#include "topo/topology.h"

namespace weft::fabric {

// Describes this host and the given rails, in their order, without counters. Never throws for a
// missing source: the field stays empty. first_rank, ranks and emulated are left to the caller.
// Live, interfaces are those of the calling thread's network namespace. Any thread.
HostFacts read_host(std::span<const Nic> rails, const Sources& sources);

// Reads all counters of a port that read_host() described; none of an excluded device.
Readings read_counters(const PortFacts& port, const Sources& sources);

// Seconds, since it was made, in which the CPU quota of this process's control group, or of a group
// around it, had stopped its threads; 0 without a quota. Summed over the cores.
double throttled_s(const Sources& sources);

}  // namespace weft::fabric
