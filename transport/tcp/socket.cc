// Connects and configures the sockets of the tcp transport; parses contacts. Does not depend on
// messages.
#include "transport/tcp/socket.h"

#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "transport/control/address.h"

namespace weft::tcp {
namespace {

template <typename Number>
bool number(std::string_view text, Number& out, int base) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out, base);
  return error == std::errc{} && end == text.data() + text.size();
}

}  // namespace

int start(const Fd& fd, const std::string& address, std::uint16_t port) {
  Address there;
  if (!parse_address(address, port, there)) return EADDRNOTAVAIL;
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&there.bytes), there.length) == 0)
    return 0;
  return errno == EINPROGRESS ? 0 : errno;
}

void tune(const Fd& fd) {
  const auto set = [&](int level, int option, int value) {
    setsockopt(fd.get(), level, option, &value, sizeof value);
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  // A dead host sends no FIN. Idle connections are probed after 3 s and fail after 3 s more.
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 3);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 1);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
}

std::size_t unacknowledged(const Fd& fd) {
  int bytes = 0;
  return fd && ioctl(fd.get(), SIOCOUTQ, &bytes) == 0 ? static_cast<std::size_t>(bytes) : 0;
}

bool parse_contact(std::string_view text, Contact& out) {
  const auto word = [&text] {
    const std::size_t n = std::min(text.find(' '), text.size());
    const std::string_view first = text.substr(0, n);
    text.remove_prefix(std::min(n + 1, text.size()));
    return first;
  };
  out = {.address = std::string(word())};
  const std::string_view port = word(), nonce = word();
  if (out.address.empty() || nonce.size() != 2 * out.nonce.size()) return false;
  if (!number(port, out.port, 10) || out.port == 0) return false;
  for (std::size_t i = 0; i < out.nonce.size(); ++i)
    if (!number(nonce.substr(2 * i, 2), out.nonce[i], 16)) return false;
  return text.empty() || number(text, out.datagrams, 10);
}

}  // namespace weft::tcp
