// The reading orders of the trainer and of four ways into the code: their files exist, have the
// lines that the pages say, and are short enough to be read at once.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <regex>
#include <string>

#include "support/process/read_file.h"

namespace weft {
namespace {

constexpr int kMostLines = 3500;

TEST(Reading, TheFilesOfATrainingStepAreAnEvening) {
  const std::filesystem::path source = WEFT_SOURCE_DIR;
  const std::string page = read_file(source / "docs/training/reading.md");
  const std::regex row(
      R"(\| \[`[^`]+`\]\(\.\./\.\./(train/[^)]+)\) \| ([0-9]+) \| [A-Z`][^|]*\. \|)");
  int files = 0, all = 0, written = 0;
  for (std::sregex_iterator i(page.begin(), page.end(), row), end; i != end; ++i, ++files) {
    const std::string name = (*i)[1];
    ASSERT_TRUE(std::filesystem::is_regular_file(source / name)) << name;
    const std::string text = read_file(source / name);
    const int lines = static_cast<int>(std::count(text.begin(), text.end(), '\n'));
    const int said = std::atoi((*i)[2].str().c_str());
    EXPECT_NEAR(said, lines, 0.1 * lines) << name << " has other lines than the page says";
    all += lines;
    written += said;
  }
  int rows = -2;  // without the table's head
  for (std::size_t at = 0; (at = page.find("\n|", at)) != page.npos; ++at) ++rows;
  EXPECT_EQ(files, rows) << "rows are | [`file`](../../train/file) | lines | One sentence. |";
  EXPECT_GE(files, 15);
  EXPECT_LE(all, kMostLines) << "leave a file out, or make one thinner";
  std::string sum = std::to_string(written);
  sum.insert(sum.size() - 3, ",");
  EXPECT_NE(page.find(sum + " lines"), std::string::npos) << "the rows add up to " << sum;
}

TEST(Reading, EachWayIntoTheCodeIsTenFiles) {
  const std::filesystem::path source = WEFT_SOURCE_DIR;
  const std::string page = read_file(source / "docs/reading.md");
  const std::regex row(R"(\| \[`[^`]+`\]\(\.\./([^)]+)\) \| ([0-9]+) \| [A-Z`][^|]*\. \|)");
  int ways = 0;
  for (std::size_t at = page.find("\n## "); at != page.npos; ++ways) {
    const std::size_t next = page.find("\n## ", at + 1);
    const std::string way = page.substr(at, next == page.npos ? next : next - at);
    at = next;
    int files = 0, all = 0;
    for (std::sregex_iterator i(way.begin(), way.end(), row), end; i != end; ++i, ++files) {
      const std::string name = (*i)[1];
      ASSERT_TRUE(std::filesystem::is_regular_file(source / name)) << name;
      const std::string text = read_file(source / name);
      const int lines = static_cast<int>(std::count(text.begin(), text.end(), '\n'));
      EXPECT_NEAR(std::atoi((*i)[2].str().c_str()), lines, 0.1 * lines + 2)
          << name << " has other lines than the page says";
      all += lines;
    }
    int rows = -2;  // without the table's head
    for (std::size_t line = 0; (line = way.find("\n|", line)) != way.npos; ++line) ++rows;
    EXPECT_EQ(files, rows) << way.substr(0, 30);
    EXPECT_GE(files, 8) << way.substr(0, 30);
    EXPECT_LE(files, 10) << way.substr(0, 30);
    EXPECT_LE(all, 1600) << way.substr(0, 30);
  }
  EXPECT_EQ(ways, 4);
}

}  // namespace
}  // namespace weft
