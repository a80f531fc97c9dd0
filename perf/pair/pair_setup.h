// Set-up of a pair test: who the ends are, which devices they use, and whether their flags agree.
#pragma once

#include <cstddef>
#include <string>

#include "perf/pair/pair_options.h"
#include "topo/topology.h"
#include "transport/job/bootstrap.h"

namespace weft {

// Describes the job of a server or a client. A client first waits for the server to listen, so that
// it reports a wrong name in time. Throws Error where no server listens.
JobSpec client_or_server(const PairOptions& options);

Nic device_named(const std::string& name);  // throws Error
// Returns the rail as the operation uses it. Throws Error where the operation cannot use the rail.
Nic rail_for(const PairOptions& options, Nic rail);

// Returns the flags that must be the same at both ends.
std::string agreement(const PairOptions& options);
// Returns the flags in which two agreements differ: "-s 64 and 128".
std::string differing(const std::string& a, const std::string& b);

// Returns from how many bytes on WEFT_FAULT=flip damages this rank's messages; SIZE_MAX: none.
// Throws UsageError where WEFT_FAULT asks for a fault that pairs do not have.
std::size_t damage_from(Rank me);

}  // namespace weft
