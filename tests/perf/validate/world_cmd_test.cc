// `weft validate --simulate --world`: what is broken is said, and what there is no world for.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "perf/validate/sim/world.h"
#include "support/process/shell.h"

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
