// Selects the algorithm of a call and makes the call's description (Prepared). These functions do
// not run anything; the caller holds the core's mutex.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "coll/runtime/core.h"

namespace weft {

// The description of a call that runs no plan: of a message, of a compressed collective, or of one
// on a GPU lane.
const PreparedRef& described(GroupState& g, Collective c, const Call& call,
                             const Prepared::Arguments& given) WEFT_REQUIRES(core_held);
// Describes the call with these arguments, selects its algorithm and finds its plan. Returns false,
// with the reason in `status`, if the rail contract refuses the algorithm; the next such call is
// described anew. Before, the caller checks whether `p` already describes the call.
bool prepare(GroupState& g, Collective c, const Call& call, const Prepared::Arguments& given,
             PreparedRef& p, Status& status) WEFT_REQUIRES(core_held);

// Proves that each collective of a new group has an algorithm that keeps the rail contract. If a
// collective has none, logs the path that breaks the contract, or throws Error (cross_rail
// "never").
void prove_rails(GroupState& g) WEFT_REQUIRES(core_held);
// ok when the rail contract lets the algorithm run; the same on all ranks. by_name: the user named
// the algorithm.
Status check_rails(GroupState& g, const Algorithm& a, Rank root, bool by_name)
    WEFT_REQUIRES(core_held);

PortNames port_names(const Topology& topology);
// Makes all communicators use these port rates for the choice and the plans of later calls
// (coll/api/slow_ports.cc). Throws Error with `what` and the text.
void set_slow_ports(Core& core, const char* what, const std::string& text) WEFT_REQUIRES(core_held);
// The options for a World of the surviving ranks, in which hosts may have other numbers.
WorldOptions options_for(Core& core, const std::vector<Rank>& left) WEFT_EXCLUDES(core_held);
// Sets the ports, and the rail weights derived from them, in the communicator's shape.
void shape_ports(GroupState& g) WEFT_REQUIRES(core_held);

}  // namespace weft
