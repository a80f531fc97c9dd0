// The version is defined only by project() in CMakeLists.txt. Files that cannot read it (a C
// header, the linker script, pages) must agree with it.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include "support/process/read_file.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const fs::path kTree = WEFT_SOURCE_DIR;
constexpr std::string_view kVersion = WEFT_VERSION;

std::string minor_version() { return std::string(kVersion.substr(0, kVersion.rfind('.'))); }

// The versions of weft in a text, except this one and its minor version.
std::vector<std::string> other_versions(const std::string& text) {
  static const std::regex named(
      R"((?:\bweft[-_ ](?=\d+\.\d+\.\d+)|libweft\.so\.|find_package\(weft |WEFT_(?:CXX_)?))"
      R"((\d+\.\d+(?:\.\d+)?))");
  std::vector<std::string> other;
  for (std::sregex_iterator i(text.begin(), text.end(), named), end; i != end; ++i) {
    const std::string version = (*i)[1];
    if (version != kVersion && version != minor_version()) other.push_back(i->str());
  }
  return other;
}

TEST(Version, IsRecognisedInText) {
  EXPECT_THAT(other_versions("weft_99.1.2_amd64.deb weft 99.1.2 libweft.so.99.1 WEFT_CXX_99.1"),
              ::testing::SizeIs(4));
  EXPECT_THAT(other_versions(fmt::format("weft {} libweft.so.{}", kVersion, minor_version())),
              IsEmpty());
}

TEST(Version, PagesAndScriptsNameThisOne) {
  std::vector<fs::path> files{kTree / "README.md", kTree / "coll/bindings/c/libweft.map",
                              kTree / "coll/bindings/torch/setup.py",
                              kTree / "tests/install/consumer/CMakeLists.txt"};
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(kTree / "docs"))
    if (entry.path().extension() == ".md") files.push_back(entry.path());
  for (const fs::path& file : files) {
    SCOPED_TRACE(file);
    EXPECT_THAT(other_versions(read_file(file)), IsEmpty());
  }
  EXPECT_THAT(read_file(kTree / "coll/bindings/c/libweft.map"),
              HasSubstr("WEFT_" + minor_version() + " {"));
}

TEST(Version, HeaderOfTheCInterface) {
  const std::string header = read_file(kTree / "coll/bindings/c/weft.h");
  static const std::regex parts(
      R"(_MAJOR (\d+)\n#define WEFT_VERSION_MINOR (\d+)\n#define WEFT_VERSION_PATCH (\d+)\n)");
  std::smatch match;
  ASSERT_TRUE(std::regex_search(header, match, parts));
  EXPECT_EQ(fmt::format("{}.{}.{}", match[1].str(), match[2].str(), match[3].str()), kVersion);
}

TEST(Version, ChangelogBeginsWithIt) {
  const std::string log = read_file(kTree / "CHANGELOG.md");
  EXPECT_THAT(log.substr(log.find("\n## ")),
              ::testing::StartsWith(fmt::format("\n## [{}]", kVersion)));
}

}  // namespace
}  // namespace weft
