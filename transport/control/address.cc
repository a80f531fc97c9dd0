// Converts numeric addresses from text to sockaddr. Does not resolve names.
#include "transport/control/address.h"

#include <netdb.h>
#include <netinet/in.h>

#include <cstddef>
#include <cstring>

namespace weft {

bool parse_address(const std::string& text, std::uint16_t port, Address& out) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;  // otherwise one result per socket type
  addrinfo* found = nullptr;
  if (getaddrinfo(text.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return false;
  std::memcpy(&out.bytes, found->ai_addr, found->ai_addrlen);
  out.length = found->ai_addrlen;
  freeaddrinfo(found);
  return true;
}

bool same_host(const Address& a, const Address& b) noexcept {
  if (a.bytes.ss_family != b.bytes.ss_family) return false;
  if (a.bytes.ss_family == AF_INET6) {
    const auto& x = reinterpret_cast<const sockaddr_in6&>(a.bytes);
    const auto& y = reinterpret_cast<const sockaddr_in6&>(b.bytes);
    return x.sin6_scope_id == y.sin6_scope_id &&
           std::memcmp(&x.sin6_addr, &y.sin6_addr, sizeof x.sin6_addr) == 0;
  }
  return reinterpret_cast<const sockaddr_in&>(a.bytes).sin_addr.s_addr ==
         reinterpret_cast<const sockaddr_in&>(b.bytes).sin_addr.s_addr;
}

bool same_address(const Address& a, const Address& b) noexcept {
  static_assert(offsetof(sockaddr_in, sin_port) == offsetof(sockaddr_in6, sin6_port));
  return same_host(a, b) && reinterpret_cast<const sockaddr_in&>(a.bytes).sin_port ==
                                reinterpret_cast<const sockaddr_in&>(b.bytes).sin_port;
}

}  // namespace weft
