// A numeric IP address and a port, as sockets take them.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>

namespace weft {

struct Address {
  sockaddr_storage bytes{};
  socklen_t length = 0;
};

// A number, as topology knows it; without a look-up of names. False: it is none.
bool parse_address(const std::string& text, std::uint16_t port, Address& out);

}  // namespace weft
