// Where calls part: those on device memory, or in the order of a stream, go to a lane.
#pragma once

#include "coll/core.h"
#include "transport/device.h"

namespace weft {

// Starts the call on a lane if it is one for a device: then `taken`, and the operation, or null
// with its status. The arguments have been checked. blocking: nobody will ask for the operation of
// a call that is ordered by a stream.
Operation* begin_on_device(Device& device, GroupState& g, Collective c, const Call& call, Rank root,
                           bool in_place, bool blocking, Status& status, bool& taken);

// ok unless `data` of a send or recv is device memory, or its communicator is bound to a stream:
// collectives only, so far.
Status check_message_memory(const char* verb, const void* data, std::size_t count, bool ordered);

// What is under way on the lanes of a core's communicators ends: well, or with the failure that the
// end of the World is to those who still wait. Not with the core's mutex held.
void stop_devices(Core& core) noexcept;

}  // namespace weft
