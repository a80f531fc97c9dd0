// Makes bytes that a model generated safe for a terminal.
#pragma once

#include <string>
#include <string_view>

namespace weft {

// Returns the bytes with \xNN for bytes that are not UTF-8 text, or could move the cursor.
std::string printable(std::string_view bytes);

}  // namespace weft
