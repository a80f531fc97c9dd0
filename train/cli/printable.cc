// Distinguishes UTF-8 text from other bytes.
#include "train/cli/printable.h"

#include <fmt/format.h>

namespace weft {

std::string printable(std::string_view bytes) {
  std::string out;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const auto at = [&](std::size_t k) {
      return i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0u;
    };
    const unsigned first = at(0);
    const std::size_t more = first >= 0xc2 && first < 0xe0   ? 1
                             : first >= 0xe0 && first < 0xf0 ? 2
                             : first >= 0xf0 && first < 0xf5 ? 3
                                                             : 0;
    bool text = more > 0 || first == '\n' || first == '\t' || (first >= ' ' && first < 0x7f);
    for (std::size_t k = 1; k <= more; ++k) text = text && (at(k) & 0xc0u) == 0x80u;
    // Not text: overlong forms, surrogates, numbers beyond Unicode, control characters above 0x7f.
    text = text && !(first == 0xc2 && at(1) < 0xa0) && !(first == 0xe0 && at(1) < 0xa0) &&
           !(first == 0xed && at(1) >= 0xa0) && !(first == 0xf0 && at(1) < 0x90) &&
           !(first == 0xf4 && at(1) >= 0x90);
    if (!text) {
      out += fmt::format("\\x{:02x}", first);
      continue;
    }
    out += bytes.substr(i, more + 1);
    i += more;
  }
  return out;
}

}  // namespace weft
