// Where data changes on its way, once a collective has delivered a wrong value.
#pragma once

#include "coll/api/communicator.h"
#include "perf/validate/probes/samples.h"

namespace weft::fabric {

// A host's sends or receives that changed data, as messages between the agents show; nobody: host -1.
struct WrongHost {
  int host = -1;
  bool sends = false;
  int wrong = 0, messages = 0;  // that passed the host in this direction
};

// Sends known bytes from each agent to others, and compares them. Collective over the world; the
// result is rank 0's. Throws JobFailed.
WrongHost find_wrong_host(World& world);

// Of the wrong messages between hosts, the host and direction that most of these have in common;
// nobody where no place has nearly all of them. `wrong` and `messages` by sender, then receiver.
WrongHost most_wrong(const std::vector<std::vector<int>>& wrong,
                     const std::vector<std::vector<int>>& messages);

}  // namespace weft::fabric
