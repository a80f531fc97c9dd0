// The sockets of the tcp transport and the contacts that ranks exchange. Does not depend on
// messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "transport/control/socket.h"
#include "transport/tcp/wire.h"

namespace weft::tcp {

using weft::open_socket;
// Starts to connect. Returns 0 if the connection is in progress or established, otherwise an errno.
int start(const Fd& fd, const std::string& address, std::uint16_t port);
// Sets TCP_NODELAY and keepalive.
void tune(const Fd& fd);
// Returns the bytes in the socket's send queue that the peer has not acknowledged.
std::size_t unacknowledged(const Fd& fd);

// The address at which peers connect to a rank. As text: "10.0.0.1 4711
// 00112233445566778899aabbccddeeff 4712". The third word is the nonce; the last is the UDP port,
// omitted if the rank does not receive datagrams. A contact contains no secret.
struct Contact {
  std::string address;
  std::uint16_t port = 0, datagrams = 0;
  Nonce nonce{};
};
bool parse_contact(std::string_view text, Contact& out);

}  // namespace weft::tcp
