// The mark "--", behind which everything is another program's.
#pragma once

#include <vector>

namespace weft {

// CLI11 takes the first "--" after an option that may have a value for the end of its values: where
// "--json [FILE]" is followed by "-- PROGRAM", the mark is said twice.
void keep_mark(std::vector<char*>& arguments);

}  // namespace weft
