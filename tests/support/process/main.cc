// main() of the test programs: GoogleTest's main() plus `--file=NAME`, which runs the cases of one
// source file.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

namespace {

// A filter for the suites of `file`; empty if it has none.
std::string suites_of(const std::string& file) {
  const ::testing::UnitTest& all = *::testing::UnitTest::GetInstance();
  std::string filter;
  for (int i = 0; i < all.total_test_suite_count(); ++i) {
    const ::testing::TestSuite& suite = *all.GetTestSuite(i);
    const std::filesystem::path path = suite.GetTestInfo(0)->file();
    if (path.filename() == file) filter += fmt::format("{}.*:", suite.name());
  }
  return filter;
}

}  // namespace

int main(int argc, char** argv) {
  ::testing::InitGoogleMock(&argc, argv);
  constexpr std::string_view kOption = "--file=";
  if (argc == 2 && std::string_view(argv[1]).starts_with(kOption)) {
    const std::string file(std::string_view(argv[1]).substr(kOption.size()));
    const std::string filter = suites_of(file);
    if (filter.empty()) {
      fmt::print(stderr, "no test of {} is in this program\n", file);
      return 1;
    }
    // GTEST_FILTER=-CASES excludes cases.
    const std::string without = GTEST_FLAG_GET(filter);
    GTEST_FLAG_SET(filter, filter + (without.starts_with('-') ? without : ""));
  }
  return RUN_ALL_TESTS();
}
