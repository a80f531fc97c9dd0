// Reads environment variables as text and as numbers; errors contain the variable's name.
#include "topo/base/environment.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>

#include "topo/base/status.h"

namespace weft {

std::string environment(const char* variable) {
  const char* value = std::getenv(variable);
  return value == nullptr ? "" : value;
}

bool is_set(const char* variable) { return std::getenv(variable) != nullptr; }

std::int64_t parse_number(const char* variable, const std::string& value, std::int64_t least,
                          std::int64_t most) {
  std::int64_t number = 0;
  const char* const end = value.data() + value.size();
  const auto [at, error] = std::from_chars(value.data(), end, number);
  if (error != std::errc{} || at != end || number < least || number > most) {
    throw Error(fmt::format("{} is \"{}\": it must be a whole number from {} to {}", variable,
                            value, least, most));
  }
  return number;
}

std::int64_t required_number(const char* variable, std::int64_t least, std::int64_t most) {
  if (!is_set(variable)) {
    throw Error(
        fmt::format("{} is not set: the launcher must set it to a whole number from {} to {}",
                    variable, least, most));
  }
  return parse_number(variable, environment(variable), least, most);
}

}  // namespace weft
