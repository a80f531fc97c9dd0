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

TEST(TrainFlagsCommand, ALogThatIsNotWrittenIsAnError) {
  const Output o = run(train_small("-n 1 --steps 2 --log /dev/full"));
  EXPECT_EQ(o.exit_code, 4) << o.text;
  EXPECT_THAT(o.text, HasSubstr("--log /dev/full: cannot be written: No space left on device"));
}

}  // namespace
}  // namespace weft
