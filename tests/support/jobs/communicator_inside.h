// Access to a Communicator's implementation, for tests.
#pragma once

#include "coll/runtime/core.h"

namespace weft {

struct CommunicatorInside {
  static GroupState& of(Communicator& comm) { return *comm.state_; }
};

}  // namespace weft
