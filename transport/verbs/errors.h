// Explains failed completions and a device's asynchronous events: what they most likely mean.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <string>

namespace weft {

// Explains a completion: "status 12 (transport retry counter exceeded): the peer stopped
// acknowledging: ...".
std::string verbs_cause(ibv_wc_status status, std::uint32_t vendor_error = 0);

// Whom an asynchronous event concerns. kNobody: nothing has failed.
enum class VerbsScope : std::uint8_t { kNobody, kQueuePair, kPort, kDevice };
VerbsScope scope_of(ibv_event_type type) noexcept;
// Whether the port may have other addresses or partitions after the event.
bool changes_address(ibv_event_type type) noexcept;
// Explains an event: "IBV_EVENT_PORT_ERR (port error): the link went down, ...".
std::string verbs_cause(ibv_event_type type);

}  // namespace weft
