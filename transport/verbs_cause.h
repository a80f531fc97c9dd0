// What a failed completion most likely means.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <string>

namespace weft {

// "status 12 (transport retry counter exceeded): the peer stopped acknowledging: ...".
std::string verbs_cause(ibv_wc_status status, std::uint32_t vendor_error = 0);

}  // namespace weft
