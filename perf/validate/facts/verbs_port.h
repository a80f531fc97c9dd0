// What only libibverbs says of a port.
#pragma once

#include <optional>
#include <string>

namespace weft::fabric {

// The active MTU of a port in bytes; nothing where the device cannot be opened.
std::optional<int> active_mtu_of(const std::string& device, int port);

}  // namespace weft::fabric
