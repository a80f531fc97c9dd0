// Reads environment variables. Knows none of them by name.
#pragma once

#include <cstdint>
#include <string>

namespace weft {

// Empty when the variable is not set.
std::string environment(const char* variable);
bool is_set(const char* variable);

// A whole number in [least, most]; throws Error naming the variable, its value and the range.
std::int64_t parse_number(const char* variable, const std::string& value, std::int64_t least,
                          std::int64_t most);
std::int64_t required_number(const char* variable, std::int64_t least, std::int64_t most);

}  // namespace weft
