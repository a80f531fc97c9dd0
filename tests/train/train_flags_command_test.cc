// `weft train`: flags that would be ignored or make no sense, ranks that were given different ones,
// and files that cannot be written.
// labels: multiproc
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "support/launchers.h"
#include "support/shell.h"
#include "support/temporary_folder.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kSmall =
    "--batch 4 --width 16 --heads 2 --layers 2 --positions 16 --sample 0 ";

std::string train_small(const std::string& flags) {
  return fmt::format("{} train {}{}", WEFT_BINARY, kSmall, flags);
}

// Every rank looks, not only those of a pipeline's ends: nobody waits.
TEST(TrainFlagsCommand, ATextThatIsTooShortIsFoundBeforeTheFirstStep) {
  const testing::TemporaryFolder folder;
  std::ofstream(folder / "one") << "x";
  const Output o = run(train_small("--layers 3 -n 3 --pp 3 --data " + folder / "one"));
  EXPECT_EQ(o.exit_code, 4) << o.text;
  EXPECT_THAT(o.text, HasSubstr("one has 1 bytes, fewer than --positions 16 and one more"));
  EXPECT_THAT(o.text, Not(HasSubstr("deadline")));
  EXPECT_THAT(o.text, Not(HasSubstr("M parameters")));
}

TEST(TrainFlagsCommand, ALogThatIsNotWrittenIsAnError) {
  const Output o = run(train_small("-n 1 --steps 2 --log /dev/full"));
  EXPECT_EQ(o.exit_code, 4) << o.text;
  EXPECT_THAT(o.text, HasSubstr("--log /dev/full: cannot be written: No space left on device"));
}

TEST(TrainFlagsCommand, AnEmptyPromptIsANewLine) {
  const auto sample = [](const std::string& prompt) {
    const Output o = run(train_small("-n 1 --steps 1 --sample 9 " + prompt));
    EXPECT_EQ(o.exit_code, 0) << o.text;
    const auto at = o.text.find("# sample:\n");
    EXPECT_NE(at, std::string::npos) << o.text;
    return o.text.substr(at == std::string::npos ? 0 : at);
  };
  EXPECT_EQ(sample("--prompt \"\""), sample(""));
}

}  // namespace
}  // namespace weft
