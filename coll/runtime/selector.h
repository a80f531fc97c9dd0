// Selects the algorithm of a call and makes what follows from the call's arguments. These functions
// do not run anything; the caller holds the core's mutex.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "coll/runtime/core.h"

namespace weft {

// Describes the call with these arguments, selects its algorithm and finds its plan. Returns false
// where the rail contract refuses the algorithm: then `status` says why, and the next such call is
// described anew. The caller checks first whether `p` describes the call already.
bool prepare(GroupState& g, Collective c, const Call& call, const Prepared::Arguments& given,
             PreparedRef& p, Status& status) WEFT_REQUIRES(core_held);

// Proves that each collective of a new group has an algorithm that keeps the rail contract. Where a
// collective has none, logs the path that breaks it, or throws Error (cross_rail "never").
void prove_rails(GroupState& g) WEFT_REQUIRES(core_held);
// ok when the rail contract lets the algorithm run; the same on all ranks. by_name: the user named
// the algorithm.
Status check_rails(GroupState& g, const Algorithm& a, Rank root, bool by_name)
    WEFT_REQUIRES(core_held);

PortNames port_names(const Topology& topology);
// Makes all communicators choose by these ports, and the plans of calls from now on
// (coll/api/slow_ports.cc). Throws Error that names `what` and the text.
void set_slow_ports(Core& core, const char* what, const std::string& text) WEFT_REQUIRES(core_held);
// The options of a World of those ranks that are left: hosts may have other numbers there.
WorldOptions options_for(Core& core, const std::vector<Rank>& left) WEFT_EXCLUDES(core_held);
// Gives the communicator's shape the ports and the weights of rails that follow from them.
void shape_ports(GroupState& g) WEFT_REQUIRES(core_held);

}  // namespace weft
