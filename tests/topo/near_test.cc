// The GPU of each rank, on typical server trees.
#include "topo/near.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "fake_sysfs.h"
#include "topo/sysfs.h"
#include "topo/topology.h"

namespace weft {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Adds a PCI function below the bridges of a path like "pci0000:17/0000:17:01.0/0000:18:00.0".
void add(const FakeSysfs& tree, const std::string& above, const std::string& pci, int node) {
  const std::string directory = "devices/" + above + "/" + pci;
  tree.write(directory + "/numa_node", std::to_string(node));
  tree.link("bus/pci/devices/" + pci, directory);
}

// Eight switches with a GPU and a NIC each, four on each socket. The NICs are in another order than
// the GPUs.
struct Dgx {
  FakeSysfs tree;
  std::vector<std::string> gpus, nics;
  Dgx() {
    nics.resize(8);
    for (int i = 0; i < 8; ++i) {
      const int root = 0x10 + 0x10 * i;
      const std::string above =
          fmt::format("pci0000:{0:02x}/0000:{0:02x}:01.0/0000:{1:02x}:00.0", root, root + 1);
      gpus.push_back(fmt::format("0000:{:02x}:00.0", root + 2));
      const std::string nic = fmt::format("0000:{:02x}:00.0", root + 3);
      add(tree, above + fmt::format("/0000:{:02x}:00.0", root + 4), gpus.back(), i / 4);
      add(tree, above + fmt::format("/0000:{:02x}:01.0", root + 4), nic, i / 4);
      nics[static_cast<std::size_t>(7 - i)] = nic;
    }
  }
};

TEST(NearestGpus, EachTakesTheOneBehindTheSwitchOfItsRail) {
  const Dgx dgx;
  EXPECT_THAT(nearest_gpus(dgx.nics, dgx.gpus, dgx.tree.root()),
              ElementsAre(7, 6, 5, 4, 3, 2, 1, 0));
  // Fewer ranks than rails.
  EXPECT_THAT(nearest_gpus({dgx.nics[0], dgx.nics[4]}, dgx.gpus, dgx.tree.root()),
              ElementsAre(7, 3));
  // Two ranks for each GPU; and three more.
  std::vector<std::string> twice;
  for (const std::string& nic : dgx.nics) twice.insert(twice.end(), 2, nic);
  EXPECT_THAT(nearest_gpus(twice, dgx.gpus, dgx.tree.root()),
              ElementsAre(7, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0));
  std::vector<std::string> more = dgx.nics;
  more.insert(more.end(), {dgx.nics[0], dgx.nics[0], dgx.nics[0]});
  std::vector<int> load(8);
  for (const int gpu : nearest_gpus(more, dgx.gpus, dgx.tree.root()))
    ++load[static_cast<std::size_t>(gpu)];
  EXPECT_THAT(load, Each(::testing::AnyOf(1, 2)));
}

TEST(NearestGpus, DistanceKnowsSwitchesRootsAndSockets) {
  const Dgx dgx;
  const auto far = [&](int gpu, int nic) {
    return pci_distance(dgx.gpus[static_cast<std::size_t>(gpu)],
                        dgx.nics[static_cast<std::size_t>(nic)], dgx.tree.root());
  };
  EXPECT_LT(far(0, 7), far(0, 6));  // another switch
  EXPECT_LT(far(0, 6), far(0, 0));  // another socket
  EXPECT_EQ(far(0, 6), far(0, 5));
  EXPECT_GT(pci_distance(dgx.gpus[0], "", dgx.tree.root()), far(0, 0));
  EXPECT_GT(pci_distance(dgx.gpus[0], "0000:ff:00.0", dgx.tree.root()), far(0, 0));
}

// Four GPUs and two NICs: the middle GPUs are near the first NIC.
TEST(NearestGpus, FourGpusShareTwoRails) {
  const FakeSysfs tree;
  const std::vector<std::string> gpus{"0000:11:00.0", "0000:22:00.0", "0000:23:00.0",
                                      "0000:12:00.0"};
  for (const auto& gpu : gpus) {
    const std::string root = gpu.substr(0, 6) + "0";
    add(tree, "pci" + root + "/" + root + ":01.0", gpu, gpu[5] == '1' ? 0 : 1);
  }
  add(tree, "pci0000:20/0000:20:03.0", "0000:29:00.0", 1);
  add(tree, "pci0000:10/0000:10:03.0", "0000:19:00.0", 0);
  const std::string first = "0000:29:00.0", second = "0000:19:00.0";
  EXPECT_THAT(nearest_gpus({first, first, second, second}, gpus, tree.root()),
              ElementsAre(2, 1, 0, 3));
  // A subset selected by CUDA_VISIBLE_DEVICES: one of each half.
  EXPECT_THAT(nearest_gpus({first, second}, {gpus[3], gpus[2]}, tree.root()), ElementsAre(1, 0));
  EXPECT_THAT(nearest_gpus({first, second}, {gpus[0]}, tree.root()), ElementsAre(0, 0));
}

TEST(NearestGpus, InTurnWhereNothingIsKnown) {
  const FakeSysfs tree;
  EXPECT_THAT(nearest_gpus({"", "", "", "", "", ""}, {"", "", "", ""}, tree.root()),
              ElementsAre(0, 1, 2, 3, 0, 1));
  EXPECT_THAT(nearest_gpus({"", ""}, {"", "", "", ""}, tree.root()), ElementsAre(0, 1));
  EXPECT_THAT(nearest_gpus({"", ""}, {}, tree.root()), ElementsAre(-1, -1));
}

// The rails of ranks on one host with these GPUs and NUMA nodes.
std::vector<int> rails_of(const std::vector<std::string>& nics,
                          const std::vector<std::string>& gpus, const FakeSysfs& tree,
                          const std::vector<int>& nodes = {}) {
  std::vector<Place> places(gpus.size());
  for (std::size_t r = 0; r < gpus.size(); ++r) {
    places[r].host = "a";
    for (const std::string& pci : nics) {
      Nic nic;
      nic.name = nic.pci = pci;
      nic.up = true;
      nic.numa_node = sysfs::pci_numa_node(tree.root(), pci);
      places[r].rails.push_back(nic);
    }
    if (!nodes.empty()) places[r].numa_node = nodes[r];
    if (!gpus[r].empty()) set_gpu(places[r], gpus[r], tree.root());
  }
  const Topology topology(places);
  std::vector<int> rails;
  for (Rank r = 0; r < topology.nranks(); ++r) rails.push_back(topology.rail(r));
  return rails;
}

// The NICs are in another order than the GPUs, and a NUMA node has four of each.
TEST(NearestRails, ARankTakesTheOneBehindTheSwitchOfItsGpu) {
  const Dgx dgx;
  const std::vector<int> nodes{0, 0, 0, 0, 1, 1, 1, 1};
  EXPECT_THAT(rails_of(dgx.nics, dgx.gpus, dgx.tree, nodes), ElementsAre(7, 6, 5, 4, 3, 2, 1, 0));
  // NUMA nodes that contradict the switches, as of ranks bound elsewhere.
  const std::vector<int> elsewhere{1, 1, 1, 1, 0, 0, 0, 0};
  EXPECT_THAT(rails_of(dgx.nics, dgx.gpus, dgx.tree, elsewhere),
              ElementsAre(7, 6, 5, 4, 3, 2, 1, 0));
  // Fewer ranks than GPUs, in any order; without information about the GPU, the NUMA node decides.
  EXPECT_THAT(rails_of(dgx.nics, {dgx.gpus[5], dgx.gpus[2]}, dgx.tree), ElementsAre(2, 5));
  EXPECT_THAT(rails_of(dgx.nics, {"0000:ff:00.0", dgx.gpus[2]}, dgx.tree, {1, 0}),
              ElementsAre(0, 5));
  // Equally many ranks on each rail: two with one GPU use the two nearest rails.
  EXPECT_THAT(
      rails_of({dgx.nics[3], dgx.nics[7], dgx.nics[6]}, {dgx.gpus[0], dgx.gpus[0]}, dgx.tree),
      ElementsAre(2, 1));
}

// Two NICs on one node, each behind the switch of two GPUs: NUMA nodes do not distinguish them.
TEST(NearestRails, NodesDoNotTellApartWhatSwitchesDo) {
  const FakeSysfs tree;
  const std::vector<std::string> gpus{"0000:12:00.0", "0000:22:00.0", "0000:13:00.0",
                                      "0000:23:00.0"};
  const std::vector<std::string> nics{"0000:14:00.0", "0000:24:00.0"};
  for (const auto& pci : {gpus[0], gpus[1], gpus[2], gpus[3], nics[0], nics[1]}) {
    const std::string bus = pci.substr(5, 1);
    add(tree,
        fmt::format("pci0000:{0}0/0000:{0}0:01.0/0000:{0}1:00.0/0000:{0}1:0{1}.0", bus, pci[6]),
        pci, 0);
  }
  EXPECT_THAT(rails_of(nics, gpus, tree, {0, 0, 0, 0}), ElementsAre(0, 1, 0, 1));
  EXPECT_THAT(rails_of(nics, {"", "", "", ""}, tree, {0, 0, 0, 0}), ElementsAre(0, 0, 1, 1));
}

TEST(VisibleGpus, AreNamedByNumberAndUuid) {
  const FakeSysfs proc;
  std::vector<Gpu> gpus(3);
  for (int i = 0; i < 3; ++i) {
    Gpu& gpu = gpus[static_cast<std::size_t>(i)];
    gpu.pci = fmt::format("0000:{}b:00.0", i + 1);
    gpu.name = i == 2 ? "AMD 74a1" : "NVIDIA H200";
    proc.write("driver/nvidia/gpus/" + gpu.pci + "/information",
               fmt::format("GPU UUID: \t GPU-{}1234", i));
  }
  const auto seen = [&](const char* visible) {
    std::string text;
    for (const Gpu& gpu : visible_gpus(gpus, visible, proc.root())) text += gpu.pci.substr(5, 2);
    return text;
  };
  EXPECT_EQ(seen(nullptr), "1b2b");
  EXPECT_EQ(seen("1,0"), "2b1b");
  EXPECT_EQ(seen("1,7,0"), "2b");  // as CUDA reads it
  EXPECT_EQ(seen("GPU-11,0"), "2b1b");
  EXPECT_EQ(seen(""), "");
  EXPECT_EQ(seen("-1"), "");
  EXPECT_EQ(seen("MIG-55"), "");
}

}  // namespace
}  // namespace weft
