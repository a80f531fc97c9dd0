// Wraps text and compares words. Counts bytes, not characters.
#include "topo/base/text.h"

#include <algorithm>
#include <sstream>
#include <vector>

namespace weft {
namespace {

// Damerau-Levenshtein distance: insertions, deletions, changes, and swaps of adjacent letters.
std::size_t typing_distance(std::string_view a, std::string_view b) {
  // to[i][j]: from the first i letters of a to the first j of b.
  std::vector<std::vector<std::size_t>> to(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i)
    for (std::size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        to[i][j] = i + j;
        continue;
      }
      const std::size_t change = to[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      to[i][j] = std::min({change, to[i - 1][j] + 1, to[i][j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        to[i][j] = std::min(to[i][j], to[i - 2][j - 2] + 1);
    }
  return to[a.size()][b.size()];
}

}  // namespace

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

std::string word_like(std::string_view typed, std::span<const std::string> known) {
  std::string best;
  std::size_t least = std::max<std::size_t>(1, typed.size() / 3) + 1;
  for (const std::string& word : known) {
    const std::size_t distance =
        word.starts_with(typed) && typed.size() > 2 ? 1 : typing_distance(typed, word);
    if (distance < least) best = word, least = distance;
  }
  return best;
}

std::string did_you_mean(std::string_view typed, std::span<const std::string> known) {
  const std::string like = word_like(typed, known);
  return like.empty() ? like : "; did you mean " + like + "?";
}

}  // namespace weft
