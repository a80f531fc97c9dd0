// Locates data corruption after a collective has delivered a wrong value.
#pragma once

#include "coll/api/communicator.h"
#include "perf/validate/probes/samples.h"

namespace weft::fabric {

// A host whose sends or receives corrupt data, found by messages between agents; host -1: none.
struct WrongHost {
  int host = -1;
  bool sends = false;
  int wrong = 0, messages = 0;  // messages of the host in this direction
};

// Sends known bytes from each agent to others and compares them. Collective over the world; only
// rank 0 gets the result. Throws JobFailed.
WrongHost find_wrong_host(World& world);

// Returns the host and direction with nearly all wrong messages between hosts; host -1 if there is
// none. `wrong` and `messages` are indexed by sender, then receiver.
WrongHost most_wrong(const std::vector<std::vector<int>>& wrong,
                     const std::vector<std::vector<int>>& messages);

}  // namespace weft::fabric
