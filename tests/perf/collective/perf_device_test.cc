// labels: multiproc
// weft perf on device memory: ranks as processes, which map each other's memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "perf/collective/device_memory.h"
#include "support/process/shell.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

std::string perf(const std::string& device, const std::string& arguments) {
  return "WEFT_DEVICE=" + device + " " + WEFT_WITH_FAKES + " perf " + arguments +
         " --buffers cuda --timeout-ms 60000 -n 3";
}

TEST(PerfOnDevice, ProcessesReadEachOthersMemory) {
  for (const char* collective : {"all_reduce", "all_gather", "reduce_scatter", "broadcast"}) {
    const Output out = run(perf("fake", std::string(collective) + " -N 3 -b 8 -e 1M -f 64"));
    EXPECT_EQ(out.exit_code, 0) << out.text;
    EXPECT_THAT(out.text, HasSubstr("device")) << "not the direct path";
  }
  EXPECT_EQ(run(perf("fake", "all_reduce -N 2 -b 64K -e 64K --in-place -d all")).exit_code, 0);
}

TEST(PerfOnDevice, MessagesOfProcessesPassPinnedMemory) {
  const Output out = run(perf("fake", "sendrecv -N 3 -b 32K -e 8M -f 16"));
  EXPECT_EQ(out.exit_code, 0) << out.text;
  EXPECT_THAT(out.text, HasSubstr("all results exact"));
}

// Two ranks per host; between hosts through NICs or pinned memory.
TEST(PerfOnDevice, ProcessesOfHostsShareOutWhatCrosses) {
  const std::pair<const char*, const char*> paths[] = {{"fake", "staged_hierarchical"},
                                                       {"fake-nic", "gpudirect"}};
  for (const auto& [device, path] : paths)
    for (const char* collective : {"all_reduce", "all_gather", "all_to_all"}) {
      const Output out = run(perf(device, std::string(collective) + " -N 4 --hosts 2 -b 1M -e 1M"));
      EXPECT_EQ(out.exit_code, 0) << out.text;
      EXPECT_THAT(out.text, HasSubstr(path));
      EXPECT_THAT(out.text, HasSubstr("all results exact"));
    }
}

TEST(PerfOnDevice, ANamedAlgorithmIsStaged) {
  const Output out = run(perf("fake", "all_reduce -N 3 -b 5M -e 5M --algo ring"));
  EXPECT_EQ(out.exit_code, 0) << out.text;
  EXPECT_THAT(out.text, HasSubstr("ring"));
}

TEST(PerfOnDevice, SaysWhatIsMissing) {
  const Output out = run(perf("off", "all_reduce -N 2"));
  EXPECT_NE(out.exit_code, 0);
  EXPECT_THAT(out.text, HasSubstr("missing capability: a CUDA device (WEFT_DEVICE=off)"));
}

TEST(PerfOnDevice, TheBoundIsTheCardsOwnCopy) {
  // Eight ranks on one GPU: eight copies.
  EXPECT_DOUBLE_EQ(device_bound_us(Collective::kAllReduce, 8, 8, 100), 800);
  EXPECT_DOUBLE_EQ(device_bound_us(Collective::kAllGather, 2, 8, 100), 200);
  EXPECT_DOUBLE_EQ(device_bound_us(Collective::kReduceScatter, 2, 2, 100), 150);
  EXPECT_DOUBLE_EQ(device_bound_us(Collective::kBarrier, 2, 2, 100), 0);
}

}  // namespace
}  // namespace weft
