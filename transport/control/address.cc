// Converts numeric addresses from text to the form that sockets take. Resolves no names.
#include "transport/control/address.h"

#include <netdb.h>
#include <netinet/in.h>

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

bool same_address(const Address& a, const Address& b) noexcept {
  if (a.bytes.ss_family != b.bytes.ss_family) return false;
  if (a.bytes.ss_family == AF_INET6) {
    const auto& x = reinterpret_cast<const sockaddr_in6&>(a.bytes);
    const auto& y = reinterpret_cast<const sockaddr_in6&>(b.bytes);
    return x.sin6_port == y.sin6_port && x.sin6_scope_id == y.sin6_scope_id &&
           std::memcmp(&x.sin6_addr, &y.sin6_addr, sizeof x.sin6_addr) == 0;
  }
  const auto& x = reinterpret_cast<const sockaddr_in&>(a.bytes);
  const auto& y = reinterpret_cast<const sockaddr_in&>(b.bytes);
  return x.sin_port == y.sin_port && x.sin_addr.s_addr == y.sin_addr.s_addr;
}

}  // namespace weft
