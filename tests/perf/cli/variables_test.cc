// Misspelled variables are reported, and the list of known variables matches the sources.
#include "perf/cli/variables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <regex>
#include <set>
#include <string>

#include "support/process/read_file.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> warnings(std::vector<const char*> environment) {
  environment.push_back(nullptr);
  return misspelt_variables(environment.data());
}

TEST(Variables, MisspeltOnesAreNamed) {
  EXPECT_THAT(warnings({"PATH=/bin", "WEFT_RAIL=a", "WEFT_TRANSPRT=tcp", "WEFT_VERBS_GIDINDEX=3"}),
              ElementsAre("WEFT_RAIL is set, and nothing reads it; did you mean WEFT_RAILS?",
                          "WEFT_VERBS_GIDINDEX is set, and nothing reads it; did you mean "
                          "WEFT_VERBS_GID_INDEX?"));
}

TEST(Variables, ThoseThatAreReadAndThoseOfOthersAreNot) {
  EXPECT_THAT(warnings({"WEFT_RAILS=a", "WEFT_LOG=warn", "WEFT_OUR_CLUSTER_NAME=x", "WEFTRAIL=1"}),
              IsEmpty());
}

TEST(Variables, TheListHasAllThatTheSourcesRead) {
  std::set<std::string> known;
  for (const std::string& name : weft_variables()) known.insert("WEFT_" + name);
  const std::regex quoted("\"(WEFT_[A-Z0-9_]+)\"");
  int found = 0;
  for (const char* folder : {"topo", "transport", "coll", "train", "perf"})
    for (const auto& entry : std::filesystem::recursive_directory_iterator(
             std::filesystem::path(WEFT_SOURCE_DIR) / folder)) {
      if (entry.path().extension() != ".cc" && entry.path().extension() != ".h") continue;
      const std::string text = read_file(entry.path());
      for (std::sregex_iterator m(text.begin(), text.end(), quoted), end; m != end; ++m, ++found)
        EXPECT_TRUE(known.contains((*m)[1])) << (*m)[1] << " of " << entry.path();
    }
  EXPECT_GT(found, 50);
}

}  // namespace
}  // namespace weft
