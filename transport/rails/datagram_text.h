// Values in the text of a datagram. Both ends run the same build, so their bytes are the format.
#pragma once

#include <cstring>
#include <string>
#include <string_view>

namespace weft {

template <class T>
void put(std::string& out, const T& value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}
// False at the end of the text, and `value` is unchanged.
template <class T>
bool get(std::string_view& in, T& value) {
  if (in.size() < sizeof value) return false;
  std::memcpy(&value, in.data(), sizeof value);
  in.remove_prefix(sizeof value);
  return true;
}

}  // namespace weft
