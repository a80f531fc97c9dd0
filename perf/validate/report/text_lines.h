// Lines for a terminal of so many columns.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace weft::fabric {

// Columns that UTF-8 text takes: one for each code point. The texts of a report are printable().
std::size_t columns_of(std::string_view text);

// Breaks text at blanks into lines of at most `columns`, and words that are longer than a line
// anywhere. The first line begins with `first`, all others with as many blanks.
std::vector<std::string> wrap(std::string_view text, std::size_t columns, std::string_view first);

// The first `most` lines; the last one ends in "..." where lines are left out.
std::vector<std::string> at_most(std::vector<std::string> lines, std::size_t most,
                                 std::size_t columns);

// Text of at most `columns`: the end is cut off and replaced by "..".
std::string shortened(std::string_view text, std::size_t columns);

}  // namespace weft::fabric
