// A numeric IP address and a port, as a sockaddr.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>

namespace weft {

struct Address {
  sockaddr_storage bytes{};
  socklen_t length = 0;
};

// Parses a numeric address, without name lookup. Returns false if `text` is not a numeric address.
bool parse_address(const std::string& text, std::uint16_t port, Address& out);

// same_host(): whether two addresses have the same family and host. same_address(): also the same
// port.
bool same_host(const Address& a, const Address& b) noexcept;
bool same_address(const Address& a, const Address& b) noexcept;

}  // namespace weft
