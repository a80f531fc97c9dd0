// Sockets of the tcp transport, and how its ends name each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "transport/control/socket.h"
#include "transport/tcp/wire.h"

namespace weft::tcp {

// Bound to the device and its address, any port; without a descriptor errno says why not.
Fd open_socket(const std::string& device, const std::string& address, bool datagrams = false);
// Starts to connect. 0: it is under way, or done; else errno.
int start(const Fd& fd, const std::string& address, std::uint16_t port);
// Short messages at once, and an end that is noticed.
void tune(const Fd& fd);
// Bytes that it was given and that the other end has not acknowledged.
std::size_t unacknowledged(const Fd& fd);

// "10.0.0.1 4711 00112233445566778899aabbccddeeff 4712": the last is the port for datagrams, and
// not there where there are none.
struct Contact {
  std::string address;
  std::uint16_t port = 0, datagrams = 0;
  Key key{};
};
bool parse_contact(std::string_view text, Contact& out);

}  // namespace weft::tcp
