// One question to the kernel by netlink, about an interface of this network namespace.
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

// Attributes as they lie in a message: header, payload, padding to 4 bytes.
using Attributes = std::span<const std::byte>;

// Calls `take` with the type (without flags) and the payload of each attribute, in order; stops at
// one that does not fit.
void for_each_attribute(Attributes attributes, const std::function<void(int, Attributes)>& take);

// The first bytes of a payload as a number or a struct; nothing where the payload is shorter.
template <typename T>
std::optional<T> value_in(Attributes payload) {
  if (payload.size() < sizeof(T)) return std::nullopt;
  T value;
  std::memcpy(&value, payload.data(), sizeof value);
  return value;
}

// Sends `header` (ifinfomsg, dcbmsg) and, where `name` is not empty, a string attribute of type
// `name_attribute`. Returns the attributes that come after a header of the same size in the answer;
// empty where the kernel refuses, or does not answer within a second.
std::vector<std::byte> ask_kernel(int type, std::span<const std::byte> header, int name_attribute,
                                  const std::string& name);
// The same by any protocol (NETLINK_GENERIC), with these attributes behind the header.
std::vector<std::byte> ask_kernel(int protocol, int type, std::span<const std::byte> header,
                                  Attributes attributes);
// Adds an attribute with its padding.
void add_attribute(std::vector<std::byte>& attributes, int type, Attributes payload);

}  // namespace weft::fabric
