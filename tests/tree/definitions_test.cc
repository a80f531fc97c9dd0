// No two files define a type of the same name in the same namespace: the linker would silently use
// either constructor for both. The test reads lines and relies on the tree's style: a type outside
// of others begins its line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace weft {
namespace {

namespace fs = std::filesystem;

// Qualified type names -> the files that define them.
using Definitions = std::map<std::string, std::set<std::string>>;

void read_definitions(std::istream& in, const std::string& file, Definitions& all) {
  static const std::regex open(R"((?:inline )?namespace ?([\w:]*) ?\{)");
  static const std::regex close(R"(\} *// namespace.*)");
  static const std::regex type(
      R"((?:template <.*> )?(?:struct|class|union|enum class|enum) (?:WEFT_\w+(?:\(.*?\))? )?(\w+)(?: final)?(?: : .*)? \{.*)");
  std::vector<std::string> spaces;
  std::smatch match;
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || std::string_view("nicsuet}").find(line[0]) == std::string_view::npos)
      continue;
    if (std::regex_match(line, match, open)) {
      spaces.push_back(match[1]);
    } else if (std::regex_match(line, close)) {
      if (!spaces.empty()) spaces.pop_back();
    } else if (std::regex_match(line, match, type)) {
      std::string name;
      bool anonymous = false;
      for (const std::string& space : spaces) {
        anonymous |= space.empty();
        name += space + "::";
      }
      if (!anonymous) all[name + match[1].str()].insert(file);
    }
  }
}

std::vector<std::string> defined_twice(const Definitions& all) {
  std::vector<std::string> twice;
  for (const auto& [name, files] : all) {
    if (files.size() < 2) continue;
    twice.push_back(name + ":");
    for (const std::string& file : files) twice.back() += " " + file;
  }
  return twice;
}

TEST(Definitions, NoTypeIsDefinedTwice) {
  Definitions all;
  for (const char* const folder : {"topo", "transport", "coll", "train", "perf", "tests"})
    for (const auto& entry : fs::recursive_directory_iterator(fs::path(WEFT_SOURCE_DIR) / folder)) {
      const std::string suffix = entry.path().extension();
      if (suffix != ".h" && suffix != ".cc" && suffix != ".cu") continue;
      std::ifstream file(entry.path());
      read_definitions(file, fs::relative(entry.path(), WEFT_SOURCE_DIR), all);
    }
  EXPECT_GT(all.size(), 400U) << "the lines of definitions are no longer understood";
  EXPECT_THAT(defined_twice(all), ::testing::IsEmpty());
}

TEST(Definitions, TwoOfOneNameAreSeen) {
  Definitions all;
  const auto read = [&](const char* file, const std::string& text) {
    std::istringstream in(text);
    read_definitions(in, file, all);
  };
  read("a.h", "namespace weft {\nstruct Fault {\n};\nclass Seen;\n}  // namespace weft\n");
  read("b.h",
       "namespace weft {\nnamespace {\nstruct Fault {\n};\n}  // namespace\n"
       "class Seen {\n};\n}  // namespace weft\n");
  read("c.h", "namespace weft::lab {\nstruct Fault {\n};\n}  // namespace weft::lab\n");
  EXPECT_THAT(defined_twice(all), ::testing::IsEmpty());
  read("d.h", "namespace weft {\nclass WEFT_CAPABILITY(\"mutex\") Fault final : public A {\n};\n");
  EXPECT_THAT(defined_twice(all), ::testing::ElementsAre("weft::Fault: a.h d.h"));
}

}  // namespace
}  // namespace weft
