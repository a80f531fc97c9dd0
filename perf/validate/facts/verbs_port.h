// Port data that only libibverbs provides.
#pragma once

#include <optional>
#include <string>

namespace weft::fabric {

// Returns the active MTU of a port in bytes; nullopt if the device cannot be opened.
std::optional<int> active_mtu_of(const std::string& device, int port);

}  // namespace weft::fabric
