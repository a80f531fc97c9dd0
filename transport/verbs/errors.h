// What a failed completion, or a device's report of its own accord, most likely means.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <string>

namespace weft {

// "status 12 (transport retry counter exceeded): the peer stopped acknowledging: ...".
std::string verbs_cause(ibv_wc_status status, std::uint32_t vendor_error = 0);

// Whom a report concerns. kNobody: nothing has failed.
enum class VerbsScope : std::uint8_t { kNobody, kQueuePair, kPort, kDevice };
VerbsScope scope_of(ibv_event_type type) noexcept;
// "IBV_EVENT_PORT_ERR (port error): the link went down, ...".
std::string verbs_cause(ibv_event_type type);

}  // namespace weft
