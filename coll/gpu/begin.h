// Where calls part: those on device memory, or in the order of a stream, go to a lane.
#pragma once

#include <optional>
#include <span>

#include "coll/runtime/core.h"
#include "transport/gpu/device.h"

namespace weft {

// Starts the call on a lane if it is one for a device: then `taken`, and the operation, or null
// with its status. The arguments have been checked. blocking: nobody will ask for the operation of
// a call that is ordered by a stream.
Task* begin_on_device(Device& device, GroupState& g, Collective c, const Call& call, Rank root,
                      bool in_place, bool blocking, Status& status, bool& taken);

// Whether a message there must be begun by begin_messages().
bool on_device(const void* data) noexcept;
// Starts the messages of one `call`, in the order of a stream or of none. The arguments have been
// checked, but for those of a rank to itself. Returns what the handle waits for; null when nobody
// will ask (blocking, on a stream), or with the status when it could not.
Task* begin_messages(Device& device, GroupState& g, const char* call,
                     std::span<const Message> messages, std::optional<Device::Stream> stream,
                     bool blocking, Status& status);

// What is under way on the lanes of a core's communicators ends: well, or with the failure that the
// end of the World is to those who still wait. Not with the core's mutex held.
void stop_devices(Core& core) noexcept;

}  // namespace weft
