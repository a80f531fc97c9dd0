// Lines for a terminal with a given number of columns.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace weft::fabric {

// Returns the width of UTF-8 text: one column per code point. The texts of a report are
// printable().
std::size_t columns_of(std::string_view text);

// Breaks text at blanks into lines of at most `columns`; breaks longer words anywhere. The first
// line begins with `first`, the others with blanks of the same width.
std::vector<std::string> wrap(std::string_view text, std::size_t columns, std::string_view first);

// Returns the first `most` lines; ends with "..." if lines are left out.
std::vector<std::string> at_most(std::vector<std::string> lines, std::size_t most,
                                 std::size_t columns);

// Truncates text to at most `columns`, ending with "..".
std::string shortened(std::string_view text, std::size_t columns);

}  // namespace weft::fabric
