// Sends a request to the kernel and receives the answer with libnl. This file contains no attribute
// names.
#include "perf/validate/facts/netlink.h"

#include <netlink/msg.h>
#include <netlink/netlink.h>
#include <netlink/socket.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <memory>

namespace weft::fabric {
namespace {

struct Answer {
  std::size_t header = 0;  // bytes
  std::vector<std::byte> attributes;
};

int keep_answer(nl_msg* message, void* to) {
  auto& answer = *static_cast<Answer*>(to);
  const nlmsghdr* header = nlmsg_hdr(message);
  const auto* data = static_cast<const std::byte*>(nlmsg_data(header));
  const auto bytes = static_cast<std::size_t>(nlmsg_datalen(header));
  const std::size_t skip = NLMSG_ALIGN(answer.header);
  if (bytes > skip) answer.attributes.assign(data + skip, data + bytes);
  return NL_STOP;
}

}  // namespace

void for_each_attribute(Attributes attributes, const std::function<void(int, Attributes)>& take) {
  while (const auto header = value_in<nlattr>(attributes)) {
    const std::size_t bytes = header->nla_len;
    if (bytes < sizeof(nlattr) || bytes > attributes.size()) return;
    take(header->nla_type & NLA_TYPE_MASK,
         attributes.subspan(sizeof(nlattr), bytes - sizeof(nlattr)));
    attributes = attributes.subspan(std::min<std::size_t>(NLA_ALIGN(bytes), attributes.size()));
  }
}

void add_attribute(std::vector<std::byte>& attributes, int type, Attributes payload) {
  const nlattr header = {static_cast<std::uint16_t>(sizeof(nlattr) + payload.size()),
                         static_cast<std::uint16_t>(type)};
  const auto bytes = std::as_bytes(std::span(&header, 1));
  attributes.insert(attributes.end(), bytes.begin(), bytes.end());
  attributes.insert(attributes.end(), payload.begin(), payload.end());
  attributes.resize(NLA_ALIGN(attributes.size()));
}

std::vector<std::byte> ask_kernel(int type, std::span<const std::byte> header, int name_attribute,
                                  const std::string& name) {
  std::vector<std::byte> attributes;
  if (!name.empty())
    add_attribute(attributes, name_attribute,
                  std::as_bytes(std::span(name.c_str(), name.size() + 1)));
  return ask_kernel(NETLINK_ROUTE, type, header, attributes);
}

std::vector<std::byte> ask_kernel(int protocol, int type, std::span<const std::byte> header,
                                  Attributes attributes) {
  const std::unique_ptr<nl_sock, decltype(&nl_socket_free)> socket(nl_socket_alloc(),
                                                                   nl_socket_free);
  const std::unique_ptr<nl_msg, decltype(&nlmsg_free)> request(nlmsg_alloc_simple(type, 0),
                                                               nlmsg_free);
  if (!socket || !request || nl_connect(socket.get(), protocol) < 0) return {};
  constexpr timeval kDeadline = {.tv_sec = 1, .tv_usec = 0};
  setsockopt(nl_socket_get_fd(socket.get()), SOL_SOCKET, SO_RCVTIMEO, &kDeadline, sizeof kDeadline);
  nl_socket_disable_auto_ack(socket.get());
  nl_socket_enable_msg_peek(socket.get());
  Answer answer;
  answer.header = header.size();
  nl_socket_modify_cb(socket.get(), NL_CB_VALID, NL_CB_CUSTOM, keep_answer, &answer);
  for (const auto part : {header, attributes}) {
    void* const bytes = const_cast<std::byte*>(part.data());  // libnl copies the bytes
    if (!part.empty() && nlmsg_append(request.get(), bytes, part.size(), NLMSG_ALIGNTO) < 0)
      return {};
  }
  if (nl_send_auto(socket.get(), request.get()) < 0) return {};
  if (nl_recvmsgs_default(socket.get()) < 0) return {};
  return std::move(answer.attributes);
}

}  // namespace weft::fabric
