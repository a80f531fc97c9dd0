// Keeps the "--" that separates weft's options from the command line of the program it starts.
#pragma once

#include <vector>

namespace weft {

// CLI11 consumes a "--" that follows an option with an optional value, as the end of its values.
// This function doubles the "--" in "--json -- PROGRAM", so that one remains.
void keep_mark(std::vector<char*>& arguments);

}  // namespace weft
