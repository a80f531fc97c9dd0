// Breaks and truncates lines by code points.
#include "perf/validate/report/text_lines.h"

#include <algorithm>

namespace weft::fabric {
namespace {

bool continues(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

// Returns the bytes of the first `columns` code points.
std::size_t bytes_of(std::string_view text, std::size_t columns) {
  std::size_t i = 0;
  for (; i < text.size(); ++i) {
    if (continues(text[i])) continue;
    if (columns == 0) break;
    --columns;
  }
  return i;
}

}  // namespace

std::size_t columns_of(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return !continues(c); }));
}

std::vector<std::string> wrap(std::string_view text, std::size_t columns, std::string_view first) {
  const std::string indent(columns_of(first), ' ');
  std::vector<std::string> lines;
  std::string line(first);
  std::size_t used = columns_of(first);  // columns of `line`
  bool empty = true;                     // `line` has no word yet
  const auto end_line = [&] {
    lines.push_back(line);
    line = indent;
    used = indent.size();
    empty = true;
  };
  while (!text.empty()) {
    const std::size_t start = text.find_first_not_of(' ');
    if (start == text.npos) break;
    text.remove_prefix(start);
    std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(word.size());
    const bool fits = used + 1 + columns_of(word) <= columns;
    const bool fits_alone = indent.size() + columns_of(word) <= columns;
    if (!empty && !fits && (fits_alone || used + 2 > columns)) end_line();
    if (!empty) line += ' ', ++used;
    while (used + columns_of(word) > columns) {
      const std::size_t cut =
          bytes_of(word, used < columns ? columns - used : std::size_t{1});
      line += word.substr(0, cut);
      word.remove_prefix(cut);
      end_line();
    }
    used += columns_of(word);
    line += word;
    empty = false;
  }
  if (!empty || lines.empty()) lines.push_back(line);
  return lines;
}

std::vector<std::string> at_most(std::vector<std::string> lines, std::size_t most,
                                 std::size_t columns) {
  if (lines.size() <= most) return lines;
  lines.resize(most);
  if (lines.empty()) return lines;
  std::string& last = lines.back();
  if (columns_of(last) + 4 > columns) last.resize(bytes_of(last, columns - 4));
  last += " ...";
  return lines;
}

std::string shortened(std::string_view text, std::size_t columns) {
  if (columns_of(text) <= columns) return std::string(text);
  return std::string(text.substr(0, bytes_of(text, columns - 2))) + "..";
}

}  // namespace weft::fabric
