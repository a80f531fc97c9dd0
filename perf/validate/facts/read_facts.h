// Reads the facts of this host from sysfs, procfs, ethtool, DCB netlink and debugfs.
#pragma once

#include <span>

#include "perf/validate/facts/facts.h"
#include "topo/topology.h"

namespace weft::fabric {

// Describes this host and the given rails, in their order, without counters. Never throws for a
// missing source: the field stays empty. The caller sets first_rank, ranks and emulated.
// If live, reads the interfaces of the calling thread's network namespace. Thread-safe.
HostFacts read_host(std::span<const Nic> rails, const Sources& sources);

// Reads all counters of a port from read_host(); empty for an excluded device.
Readings read_counters(const PortFacts& port, const Sources& sources);

// Returns the seconds for which the CPU quota of this process's cgroup, or of an ancestor, has
// stopped threads since the cgroup was created; 0 without a quota. Summed over cores.
double throttled_s(const Sources& sources);

}  // namespace weft::fabric
