// Keeps the "--" between weft's options and the command line of the program that weft starts.
#pragma once

#include <vector>

namespace weft {

// CLI11 consumes a "--" that follows an option with an optional value, as the end of the option's
// values. This function doubles the "--" in "--json -- PROGRAM", so that one "--" remains.
void keep_mark(std::vector<char*>& arguments);

}  // namespace weft
