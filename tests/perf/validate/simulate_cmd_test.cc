// `weft validate --simulate`: the announced faults, soaks, and policies of simulated fleets.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "support/process/read_file.h"
#include "support/process/shell.h"
#include "support/process/temporary_folder.h"

namespace weft::fabric {
namespace {

using ::testing::HasSubstr;

Output validate_simulated(const std::string& arguments) {
  return run(fmt::format("{} validate {} 2>&1", WEFT_BINARY, arguments));
}

TEST(SimulateCommand, SaysWhatIsBrokenAndRepeatsBySeed) {
  const std::string arguments = "--simulate --random-faults 1 --hosts 8 --seed ";
  const Output o = validate_simulated(arguments + "3");
  EXPECT_THAT(o.text, HasSubstr("injected: ")) << o.text;
  EXPECT_THAT(o.text, HasSubstr(": named")) << o.text;
  EXPECT_EQ(validate_simulated(arguments + "3").text, o.text);
  EXPECT_NE(validate_simulated(arguments + "4").text, o.text);
}

TEST(SoakCommand, PrintsALineAMinute) {
  const Output o = validate_simulated("--simulate --hosts 4 --soak 3m --random-faults 1");
  for (const char* minute : {"soak: 1 of 4 min: ", "soak: 2 of 4 min: ", "soak: 3 of 4 min: "})
    EXPECT_THAT(o.text, HasSubstr(minute)) << o.text;
  EXPECT_THAT(o.text, HasSubstr("; so far CRITICAL - "));
  EXPECT_THAT(validate_simulated("--simulate --hosts 4").text, ::testing::Not(HasSubstr("soak: ")));
}

TEST(SuggestPolicyCommand, WritesWhatAHealthyRunPassesAndNothingElse) {
  const testing::TemporaryFolder folder;
  const std::string policy = folder / "fleet.toml";
  EXPECT_EQ(validate_simulated("--simulate --hosts 4 --suggest-policy " + policy).exit_code, 0);
  EXPECT_THAT(read_file(policy), HasSubstr("rate = \"400 Gb/s\"\nmtu = 9000\nrdma_mtu = 4096\n"));
  EXPECT_EQ(validate_simulated("--simulate --hosts 4 --policy " + policy).exit_code, 0);
  const Output bad = validate_simulated("--simulate --hosts 4 --random-faults 1 --suggest-policy " +
                                        folder.path() + "/b");
  EXPECT_THAT(bad.text, HasSubstr("not written, since the verdict is CRITICAL"));
  EXPECT_FALSE(std::filesystem::exists(folder / "b"));
}

TEST(SimulatedFleet, PassesByThePolicyOfThePage) {
  const testing::TemporaryFolder folder;
  const std::string page = read_file(WEFT_SOURCE_DIR "/docs/validate.md");
  const std::size_t at = page.find("```toml\n") + 8;
  std::ofstream(folder / "fleet.toml") << page.substr(at, page.find("```", at) - at);
  const Output o = validate_simulated("--simulate --hosts 4 --policy " + (folder / "fleet.toml"));
  EXPECT_EQ(o.exit_code, 0) << o.text;
}

}  // namespace
}  // namespace weft::fabric
