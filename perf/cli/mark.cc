// Checks the words before the mark. Does not depend on the commands.
#include "perf/cli/mark.h"

#include <algorithm>
#include <string_view>

namespace weft {

void keep_mark(std::vector<char*>& arguments) {
  const auto is = [](const char* text) {
    return [text](const char* a) { return a == std::string_view(text); };
  };
  const auto mark = std::ranges::find_if(arguments, is("--"));
  if (mark == arguments.end() || mark - arguments.begin() < 2) return;
  const bool value = mark[-1][0] != '-' || is("-")(mark[-1]);
  if (is("--json")(mark[-1]) || (value && is("--json")(mark[-2]))) arguments.insert(mark, *mark);
}

}  // namespace weft
