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

// One rank was given more than the other.
TEST(TrainFlagsCommand, RanksThatWereStartedDifferentlyAreNamed) {
  const testing::TemporaryFolder folder;
  const auto expect_named = [&](const std::string& more, const std::string& what) {
    const std::string shell =
        fmt::format("sh -c 'if [ $RANK = 1 ]; then more=\"{}\"; fi; exec {} $more'", more,
                    train_small("--dp 2 --steps 2"));
    const Output o = run(testing::in_torchrun_environment(2, shell));
    EXPECT_EQ(o.exit_code, 4) << o.text;
    EXPECT_THAT(o.text, HasSubstr(what));
    EXPECT_THAT(o.text, HasSubstr("give every rank the same options and data"));
    EXPECT_THAT(o.text, Not(HasSubstr("deadline")));
  };
  expect_named("--lr 1e-2", "rank 1 has lr 0.01, rank 0 has 0.003");
  expect_named("--warm-up 3", "rank 1 has warm-up 3, rank 0 has 10");
  expect_named("--loss-scale 1024", "rank 1 has loss-scale 1024, rank 0 has 0");
  expect_named("--save " + folder / "save",
               "rank 1 has --save " + folder / "save" + ", rank 0 has nowhere");
  expect_named("--sample 3", "rank 1 has --sample 3, rank 0 has 0");
  expect_named("--trace " + folder / "t.json", "rank 1 has --trace somewhere, rank 0 has nowhere");
  expect_named("--type double", "rank 1 has --type double, rank 0 has float");
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
