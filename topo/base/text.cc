// Breaks text at blanks. This file counts bytes, and does not know what the text says.
#include "topo/base/text.h"

#include <sstream>

namespace weft {

std::string wrapped(const std::string& text, std::size_t width, const std::string& indent) {
  std::istringstream words(text);
  std::string all, line;
  for (std::string word; words >> word;) {
    if (!line.empty() && line.size() + 1 + word.size() > width) {
      all += line + "\n";
      line = indent + word;
    } else {
      line += (line.empty() ? "" : " ") + word;
    }
  }
  return all + line;
}

}  // namespace weft
