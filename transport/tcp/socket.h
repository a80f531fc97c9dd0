// The sockets of the tcp transport and the contacts that ranks exchange. Does not know messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "transport/control/socket.h"
#include "transport/tcp/wire.h"

namespace weft::tcp {

using weft::open_socket;
// Starts to connect. Returns 0 if the connection is under way or made, else an errno.
int start(const Fd& fd, const std::string& address, std::uint16_t port);
// Makes the socket send short messages at once and notice the end of the connection.
void tune(const Fd& fd);
// Returns the number of bytes that the socket took and the peer has not acknowledged.
std::size_t unacknowledged(const Fd& fd);

// How a peer reaches a rank. As text: "10.0.0.1 4711 00112233445566778899aabbccddeeff 4712". The
// third word is the nonce; the last one is the port for datagrams, and is missing if the rank takes
// none. Nothing in a contact is secret.
struct Contact {
  std::string address;
  std::uint16_t port = 0, datagrams = 0;
  Nonce nonce{};
};
bool parse_contact(std::string_view text, Contact& out);

}  // namespace weft::tcp
