// Reads environment variables. Does not know any variable's name.
#pragma once

#include <cstdint>
#include <string>

namespace weft {

// Returns the value of the variable; empty when it is not set.
std::string environment(const char* variable);
bool is_set(const char* variable);

// Parses a whole number in [least, most]; otherwise throws Error with variable, value and range.
std::int64_t parse_number(const char* variable, const std::string& value, std::int64_t least,
                          std::int64_t most);
// Reads and parses a variable in the same way; an unset variable is an error too.
std::int64_t required_number(const char* variable, std::int64_t least, std::int64_t most);

}  // namespace weft
