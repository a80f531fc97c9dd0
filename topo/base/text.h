// Text for users: line wrapping, and suggestions for mistyped words.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace weft {

inline constexpr std::size_t kColumns = 100;  // maximum line length

// Wraps the text at blanks; a word longer than a line gets its own line. All lines but the first
// start with `indent`.
std::string wrapped(const std::string& text, std::size_t width, const std::string& indent = "");

// Returns "; did you mean ring?", or an empty string if no word is similar to `typed`.
std::string did_you_mean(std::string_view typed, std::span<const std::string> known);
// Returns the word most similar to `typed`; empty if none is similar.
std::string word_like(std::string_view typed, std::span<const std::string> known);

}  // namespace weft
