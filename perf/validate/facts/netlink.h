// A netlink request to the kernel about an interface of this network namespace.
#pragma once

#include <linux/netlink.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace weft::fabric {

// Attributes as laid out in a message: header, payload, padding to 4 bytes.
using Attributes = std::span<const std::byte>;

// Calls `take` with the type (without flags) and payload of each attribute, in order; stops at an
// attribute that is truncated.
void for_each_attribute(Attributes attributes, const std::function<void(int, Attributes)>& take);

// Returns the first bytes of a payload as a number or struct; nullopt if the payload is shorter.
template <typename T>
std::optional<T> value_in(Attributes payload) {
  if (payload.size() < sizeof(T)) return std::nullopt;
  T value;
  std::memcpy(&value, payload.data(), sizeof value);
  return value;
}

// Sends `header` (ifinfomsg, dcbmsg) and, if `name` is not empty, a string attribute of type
// `name_attribute`. Returns the attributes after the answer's header, which has the same size;
// empty if the kernel refuses or does not answer within a second.
std::vector<std::byte> ask_kernel(int type, std::span<const std::byte> header, int name_attribute,
                                  const std::string& name);
// As above, for another netlink protocol, such as NETLINK_GENERIC; `attributes` follow the header.
std::vector<std::byte> ask_kernel(int protocol, int type, std::span<const std::byte> header,
                                  Attributes attributes);
// Adds an attribute with its padding.
void add_attribute(std::vector<std::byte>& attributes, int type, Attributes payload);

}  // namespace weft::fabric
