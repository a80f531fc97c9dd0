// Text for people: lines of a terminal, and words that were mistyped.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace weft {

inline constexpr std::size_t kColumns = 100;  // that no line of text exceeds

// Breaks the text at blanks; a word that is longer than a line has a line of its own. All lines but
// the first begin with `indent`.
std::string wrapped(const std::string& text, std::size_t width, const std::string& indent = "");

// Returns "; did you mean ring?", or nothing where no word is like what was typed.
std::string did_you_mean(std::string_view typed, std::span<const std::string> known);
// Returns the word that is most like what was typed; empty where none is like it.
std::string word_like(std::string_view typed, std::span<const std::string> known);

}  // namespace weft
