// The CPUs near a device, and threads bound to them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "fake_sysfs.h"
#include "topo/base/thread.h"
#include "topo/sysfs.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr const char* kNic = "0000:3b:00.0";

TEST(CpusBeside, AreThoseOfTheDeviceElseOfItsNode) {
  FakeSysfs tree;
  tree.add_numa_node(0, "0-1", "");
  tree.add_numa_node(1, "2-3,6", "");
  tree.add_pci(kNic, "0x020000", "0x15b3", "0x1021", "1");
  EXPECT_THAT(sysfs::cpus_beside(tree.root(), kNic), ElementsAre(2, 3, 6));
  tree.write(std::string("bus/pci/devices/") + kNic + "/local_cpulist", "2-3");
  EXPECT_THAT(sysfs::cpus_beside(tree.root(), kNic), ElementsAre(2, 3));
  EXPECT_THAT(sysfs::cpus_beside(tree.root(), ""), IsEmpty()) << "a virtual device is nowhere";
  EXPECT_THAT(sysfs::cpus_beside(tree.root(), "0000:5e:00.0"), IsEmpty());
  tree.add_pci("0000:5f:00.0", "0x020000", "0x15b3", "0x1021", "-1");
  EXPECT_THAT(sysfs::cpus_beside(tree.root(), "0000:5f:00.0"), IsEmpty());
}

std::vector<int> allowed() {
  cpu_set_t set;
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  return cpus;
}

std::vector<int> allowed_in_a_thread() {
  std::vector<int> cpus;
  start_thread("a thread", [&] { cpus = allowed(); }).join();
  return cpus;
}

TEST(RunsOn, PlacesTheThreadAndThoseThatItStarts) {
  const std::vector<int> all = allowed();
  ASSERT_FALSE(all.empty());
  {
    const RunsOn last({all.back(), CPU_SETSIZE + 7, -1});
    EXPECT_THAT(allowed(), ElementsAre(all.back()));
    EXPECT_THAT(allowed_in_a_thread(), ElementsAre(all.back()));
    const RunsOn wider(all);  // beyond the thread's own binding
    EXPECT_EQ(allowed(), all);
  }
  EXPECT_EQ(allowed(), all);
}

TEST(RunsOn, ChangesNothingWhereNoneOfTheCpusIsThere) {
  const std::vector<int> all = allowed();
  for (const std::vector<int>& cpus : {std::vector<int>{}, std::vector<int>{CPU_SETSIZE - 1}}) {
    const RunsOn nowhere(cpus);
    EXPECT_EQ(allowed(), all);
  }
}

}  // namespace
}  // namespace weft
