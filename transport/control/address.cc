// Converts numeric addresses from text to the form that sockets take. Resolves no names.
#include "transport/control/address.h"

#include <netdb.h>

#include <cstring>

namespace weft {

bool parse_address(const std::string& text, std::uint16_t port, Address& out) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;  // else there is an answer for each kind
  addrinfo* found = nullptr;
  if (getaddrinfo(text.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return false;
  std::memcpy(&out.bytes, found->ai_addr, found->ai_addrlen);
  out.length = found->ai_addrlen;
  freeaddrinfo(found);
  return true;
}

}  // namespace weft
