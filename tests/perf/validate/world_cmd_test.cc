// `weft validate --simulate --world`: the announced fault, and errors for unknown worlds.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "perf/validate/sim/world.h"
#include "support/process/read_file.h"
#include "support/process/shell.h"
#include "support/process/temporary_folder.h"

namespace weft::fabric {
namespace {

using ::testing::HasSubstr;

Output validate_world(const std::string& arguments) {
  return run(fmt::format("{} validate {} 2>&1", WEFT_BINARY, arguments));
}

TEST(WorldCommand, SaysWhatIsBrokenAndRepeatsBySeed) {
  const std::string arguments = "--simulate --world spray+slow-port --hosts 8 --seed ";
  const Output o = validate_world(arguments + "3");
  const SimWorld world = make_world("spray+slow-port", 8, 2, 400, 3);
  EXPECT_THAT(o.text, HasSubstr("injected: " + line_of(world.effects[0]) + ": named")) << o.text;
  EXPECT_EQ(validate_world(arguments + "3").text, o.text);
  EXPECT_NE(validate_world(arguments + "4").text, o.text);
}

TEST(SoakCommand, PrintsALineAMinute) {
  const Output o = validate_world("--simulate --hosts 4 --soak 3m --world slow-port");
  for (const char* minute : {"soak: 1 of 4 min: ", "soak: 2 of 4 min: ", "soak: 3 of 4 min: "})
    EXPECT_THAT(o.text, HasSubstr(minute)) << o.text;
  EXPECT_THAT(o.text, HasSubstr("; so far CRITICAL - "));
  EXPECT_THAT(validate_world("--simulate --hosts 4").text, ::testing::Not(HasSubstr("soak: ")));
}

TEST(SuggestPolicyCommand, WritesWhatAHealthyRunPassesAndNothingElse) {
  const testing::TemporaryFolder folder;
  const std::string policy = folder / "fleet.toml";
  EXPECT_EQ(validate_world("--simulate --hosts 4 --suggest-policy " + policy).exit_code, 0);
  EXPECT_THAT(read_file(policy), HasSubstr("rate = \"400 Gb/s\"\nmtu = 9000\nrdma_mtu = 4096\n"));
  EXPECT_EQ(validate_world("--simulate --hosts 4 --policy " + policy).exit_code, 0);
  const Output bad = validate_world("--simulate --hosts 4 --world slow-port --suggest-policy " +
                                    folder.path() + "/b");
  EXPECT_THAT(bad.text, HasSubstr("not written, since the verdict is CRITICAL"));
  EXPECT_FALSE(std::filesystem::exists(folder / "b"));
}

TEST(SimulatedFleet, PassesByThePolicyOfThePage) {
  const testing::TemporaryFolder folder;
  const std::string page = read_file(WEFT_SOURCE_DIR "/docs/validate.md");
  const std::size_t at = page.find("```toml\n") + 8;
  std::ofstream(folder / "fleet.toml") << page.substr(at, page.find("```", at) - at);
  const Output o = validate_world("--simulate --hosts 4 --policy " + (folder / "fleet.toml"));
  EXPECT_EQ(o.exit_code, 0) << o.text;
}

TEST(WorldCommand, ListsThePartsAndRefusesOthers) {
  const Output list = validate_world("--worlds"),
               wrong = validate_world("--simulate --world closs");
  EXPECT_EQ(wrong.exit_code, 4);
  for (const WorldPart& part : world_parts()) {
    EXPECT_THAT(list.text, HasSubstr(part.text));
    EXPECT_THAT(wrong.text, HasSubstr(part.name));
  }
  EXPECT_THAT(validate_world("--worlds --json -").text, HasSubstr("--worlds tests nothing"));
  EXPECT_THAT(validate_world("--world clos").text, HasSubstr("belongs to --simulate"));
  EXPECT_THAT(validate_world("--simulate --world clos --random-faults 1").text,
              HasSubstr("a world names its faults"));
}

}  // namespace
}  // namespace weft::fabric
