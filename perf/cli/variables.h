// Names of weft's environment variables, and misspelt names. Reads no values.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace weft {

// Returns every variable that weft, its library and its scripts read.
std::span<const std::string> weft_variables();

// Returns a warning for each variable in `environment` ("NAME=value", ended by a null pointer) that
// weft does not read but that resembles one of weft_variables().
std::vector<std::string> misspelt_variables(const char* const* environment);

}  // namespace weft
