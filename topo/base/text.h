// Breaks text for people into lines of a terminal.
#pragma once

#include <cstddef>
#include <string>

namespace weft {

inline constexpr std::size_t kColumns = 100;  // that no line of text exceeds

// Breaks the text at blanks; a word that is longer than a line has a line of its own. All lines but
// the first begin with `indent`.
std::string wrapped(const std::string& text, std::size_t width, const std::string& indent = "");

}  // namespace weft
