// Bytes that a model wrote, for a terminal.
#pragma once

#include <string>
#include <string_view>

namespace weft {

// The bytes with what is not text of UTF-8, or could move the cursor, as \xNN.
std::string printable(std::string_view bytes);

}  // namespace weft
