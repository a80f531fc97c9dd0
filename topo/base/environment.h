// Reads environment variables, independent of their names.
#pragma once

#include <cstdint>
#include <string>

namespace weft {

// Returns the value of the variable; empty if it is not set.
std::string environment(const char* variable);
bool is_set(const char* variable);

// Parses a whole number in [least, most]; otherwise throws Error with variable, value and range.
std::int64_t parse_number(const char* variable, const std::string& value, std::int64_t least,
                          std::int64_t most);
// Reads and parses a variable as parse_number() does; an unset variable is also an error.
std::int64_t required_number(const char* variable, std::int64_t least, std::int64_t most);

}  // namespace weft
