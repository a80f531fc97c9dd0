// Makes bytes that a model generated safe for a terminal.
#pragma once

#include <string>
#include <string_view>

namespace weft {

// Replaces bytes that are not UTF-8 text, or that could move the cursor, by \xNN.
std::string printable(std::string_view bytes);

}  // namespace weft
