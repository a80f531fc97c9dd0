// Where calls part: those on device memory, or in the order of a stream, go to a lane.
#pragma once

#include <memory>

#include "coll/core.h"
#include "transport/device.h"

namespace weft {

// Starts the call on a lane if it is one for a device: then `taken`, and the operation, or null
// with its status. The arguments have been checked. blocking: nobody will ask for the operation of
// a call that is ordered by a stream. Not taken, but with a `detour`: the call goes on as one of host
// memory, in which its buffers lie now.
Operation* begin_on_device(Device& device, GroupState& g, Collective c, Call& call, Rank root,
                           bool& in_place, bool blocking, Status& status, bool& taken,
                           std::unique_ptr<Detour>& detour);

// ok unless the communicator of a send or recv is bound to a stream.
Status check_message_order(const char* verb, bool ordered);

// What is under way on the lanes of a core's communicators ends: well, or with the failure that the
// end of the World is to those who still wait. Not with the core's mutex held.
void stop_devices(Core& core) noexcept;

}  // namespace weft
