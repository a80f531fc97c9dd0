// Sends calls on device memory, or ordered by a stream, to a lane.
#pragma once

#include <optional>
#include <span>

#include "coll/runtime/core.h"
#include "transport/gpu/device.h"

namespace weft {

// Starts the call on a lane if it belongs there: sets `taken` and returns the task, or null with
// `status`. The arguments have been checked. blocking: no caller will wait for the task of a call
// that a stream orders.
Task* begin_on_device(Device& device, GroupState& g, Collective c, const Call& call, Rank root,
                      bool in_place, bool blocking, Status& status, bool& taken);

// Whether a message at `data` must be started by begin_messages().
bool on_device(const void* data) noexcept;
// Starts the messages of one `call`, ordered by `stream` if there is one. The arguments have been
// checked, except those of messages to this rank itself. Returns the task that the request waits
// for; null if it is blocking and on a stream (no caller will wait), or on an error (in `status`).
Task* begin_messages(Device& device, GroupState& g, const char* call,
                     std::span<const Message> messages, std::optional<Device::Stream> stream,
                     bool blocking, Status& status);

// Ends the tasks on the lanes of a core's communicators: normally or, for callers that still wait,
// with the failure that the World has ended. The core's mutex must not be held.
void stop_devices(Core& core) noexcept;

}  // namespace weft
