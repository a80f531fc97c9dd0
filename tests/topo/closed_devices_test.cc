// labels: fast
// Verbs devices that sysfs shows but that a process cannot open, as in a container.
#include <gtest/gtest.h>

#include "fake_sysfs.h"
#include "topo/sysfs.h"

namespace weft {
namespace {

TEST(ClosedDevices, AreNamedWithTheFileThatIsNotThere) {
  const FakeSysfs tree;
  const std::string dev = tree.root() + "/dev";
  const auto why = [&](const std::string& device) {
    return sysfs::why_not_opened(tree.root(), dev, device);
  };
  tree.write("class/infiniband_verbs/uverbs3/ibdev", "mlx5_0");
  tree.write("class/infiniband_verbs/uverbs4/ibdev", "mlx5_1");
  EXPECT_EQ(why("mlx5_0"), dev + "/infiniband is not in this container");
  tree.write("dev/infiniband/uverbs4", "");
  EXPECT_EQ(why("mlx5_0"), dev + "/infiniband/uverbs3 is not in this container");
  EXPECT_EQ(why("mlx5_1"), "");
}

}  // namespace
}  // namespace weft
