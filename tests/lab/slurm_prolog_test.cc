// The prolog and the epilog in a real Slurm cluster: a node with a fault of its own is drained with
// the reason, and no other node is drained.
// labels: lab
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "support/process/shell.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

TEST(SlurmProlog, DrainsNodesWithAFaultOfTheirOwn) {
  const Output output = run(WEFT_SOURCE_DIR "/tests/lab/slurm_prolog_checks " WEFT_BINARY);
  if (output.exit_code == 77) GTEST_SKIP() << output.text;
  ASSERT_EQ(output.exit_code, 0) << output.text;
  for (const char* const sound : {"healthy", "busy-tester", "unknown", "warning", "path",
                                  "other-node", "healthy-again", "unreadable-report"}) {
    EXPECT_THAT(output.text, HasSubstr(std::string(sound) + ": ran=yes idle none"));
  }
  const std::string reason = "drained weft: h3 rail 1 (mlx5_1) sends at 187 of 392 Gb/s";
  EXPECT_THAT(output.text, HasSubstr("faulty: ran=no " + reason));
  EXPECT_THAT(output.text, HasSubstr("epilog: " + reason));
}

}  // namespace
}  // namespace weft
