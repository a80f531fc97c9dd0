// Tests excluded from sanitizers are marked by "sanitize:" and "unsanitized:" comments, and
// decision 30 names for each the test that covers it instead.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include "support/process/read_file.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const fs::path kTests = fs::path(WEFT_SOURCE_DIR) / "tests";

// The files and test patterns that comments in a source exclude from the sanitizers.
std::set<std::string> unsanitized(const std::string& stem, const std::string& source) {
  std::set<std::string> names;
  std::istringstream lines(source);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string slashes, key, word;
    words >> slashes >> key;
    if (slashes != "//") continue;
    while (words >> word) {
      if (key == "sanitize:" && word == "no") names.insert(stem);
      if (key == "unsanitized:") names.insert(word);
    }
  }
  return names;
}

// The first column of the page's table "What no sanitizer runs".
std::set<std::string> listed() {
  const std::string page =
      read_file(fs::path(WEFT_SOURCE_DIR) / "docs/decisions/0030-what-a-change-has-to-pass.md");
  std::istringstream lines(page.substr(std::min(page.size(), page.find("What no sanitizer runs"))));
  std::set<std::string> names;
  static const std::regex name("`([^`]+)`");
  bool table = false;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with('|')) {
      if (table) break;
      continue;
    }
    table = true;
    const std::string cell = line.substr(0, line.find('|', 1));
    for (std::sregex_iterator i(cell.begin(), cell.end(), name), end; i != end; ++i)
      names.insert((*i)[1]);
  }
  return names;
}

TEST(Sanitized, CommentsAreRead) {
  EXPECT_THAT(unsanitized("a_test", "// labels: sim\n// sanitize: address threads\n"), IsEmpty());
  EXPECT_THAT(unsanitized("a_test", "// sanitize: no\n// unsanitized: A.* B.C\n"), SizeIs(3));
}

TEST(Sanitized, ThePageNamesWhatTheFilesSay) {
  std::set<std::string> said;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(kTests)) {
    const std::string name = entry.path().filename();
    if (name.ends_with("_test.cc") && entry.path().stem() != "sanitized_test")
      said.merge(unsanitized(entry.path().stem(), read_file(entry.path())));
  }
  EXPECT_EQ(listed(), said);
}

}  // namespace
}  // namespace weft
