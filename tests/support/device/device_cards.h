// Fixture and cases for collectives on device memory that RDMA NICs can reach: the fake device,
// with NICs as strict as real hardware may be (fake_nic.cc).
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "support/device/device_ranks.h"
#include "support/fakes/fake_device.h"
#include "support/jobs/ranks.h"
#include "support/pairwise.h"

namespace weft::testing {

class OnFakeCards : public OnFakeDevice {
 protected:
  void SetUp() override {
    OnFakeDevice::SetUp();
    fake_->give_nics(true);
    setenv("WEFT_GPUDIRECT", "1", 1);  // for the shortest messages, too
  }
  void TearDown() override {
    unsetenv("WEFT_GPUDIRECT");
    if (!fake_) return;
    fake_->give_nics(false);
    fake_->hide_from_nics(-1);
    OnFakeDevice::TearDown();
  }
  static int gpu_of(const World& world) { return world.rank() % FakeDevice::kGpus; }
};

// Runs a small sum and returns the algorithm (path) that it took.
inline std::string path_of(Communicator comm, TestStream& work, std::size_t count = 1) {
  run_device_case(comm, work, {Collective::kAllReduce, count});
  return std::string(comm.last_algorithm());
}

// Wiring of ranks, GPUs and NICs, and the expected path of collectives on device memory.
enum WiringFlags : unsigned {
  kNics = 1,      // NICs reach the GPUs
  kSeparate = 2,  // the GPUs of a host do not reach each other
  kInTurns = 4,   // consecutive ranks are on different hosts
};
struct Wiring {
  const char* name;
  std::vector<int> hosts;  // ranks on each host
  const char* path;        // the expected last_algorithm(); "": not checked
  unsigned flags = 0;
  std::size_t longest = 0;  // elements of long messages, over all blocks; 0: no long messages
  int rails = 1;
  std::size_t bytes = 0;  // each message is this size plus a few elements
};
inline void PrintTo(const Wiring& w, std::ostream* os) { *os << w.name; }

inline std::vector<Place> places(const Wiring& w) {
  std::vector<Place> all = places(w.hosts, w.rails);
  if (w.flags & kInTurns)
    for (std::size_t r = 0; r < all.size(); ++r)
      all[r].host = "host" + std::to_string(r % w.hosts.size());
  return all;
}

// Pairwise combinations of collective, type, operator, length, in place, alignment, root and
// stream. Arithmetic does not depend on the path, so long messages are float32 sums only.
inline std::vector<DeviceCase> device_cases(const Wiring& w) {
  const auto n = static_cast<int>(places(w).size());
  Axis<Rank> roots{"roots", {}};
  for (Rank r = 0; r < n; ++r) roots.values.push_back(r);
  Axis<std::size_t> counts{"counts", {1, 33, 333}};
  if (w.longest) counts.values.push_back(w.longest);
  Pairwise rows(
      Axis<Collective>{"collectives",
                       {Collective::kAllToAll, Collective::kAllReduce, Collective::kAllGather,
                        Collective::kReduceScatter, Collective::kReduce, Collective::kGather,
                        Collective::kScatter, Collective::kBroadcast}},
      Axis<DType>{"types", {std::begin(kAllDTypes), std::end(kAllDTypes)}},
      Axis<RedOp>{"operators", {std::begin(kAllRedOps), std::end(kAllRedOps)}}, std::move(counts),
      Axis<bool>{"in place", {false, true}}, Axis<bool>{"unaligned", {false, true}},
      std::move(roots), Axis<bool>{"on a stream", {false, true}});
  rows.where(
      [&](Collective c, DType type, RedOp op, std::size_t count, bool, bool, Rank root, bool) {
        if (!defined(op, type) || (op != RedOp::kSum && !reduces(c))) return false;
        if (root != 0 && !rooted(c)) return false;
        if (op == RedOp::kAvg && is_floating(type) && (n & (n - 1))) return false;  // not exact
        return count < 1000 || (type == DType::kFloat32 && op == RedOp::kSum);
      });
  std::vector<DeviceCase> cases;
  for (const auto& [collective, type, op, more, in_place, unaligned, root, stream] :
       rows.rows(w.name)) {
    const std::size_t count = more < 1000
                                  ? w.bytes / size_of(type) + more
                                  : more / static_cast<std::size_t>(by_blocks(collective) ? n : 1);
    cases.push_back(
        {collective, count, type, op, in_place, unaligned ? size_of(type) : 0, root, stream});
  }
  return cases;
}

// Runs all cases on a rank; ranks share GPUs if there are more ranks than GPUs.
inline void run_device_cases(World& world, const Wiring& w, const std::vector<DeviceCase>& cases) {
  TestStream work(*device(), world.rank() % FakeDevice::kGpus);
  Communicator comm = world.world();
  for (const DeviceCase& c : cases) {
    run_device_case(comm, work, c);
    if (::testing::Test::HasFatalFailure()) return;
    // With several ranks on a host, an in-place all_to_all is staged.
    const bool staged = c.in_place && c.collective == Collective::kAllToAll &&
                        *std::ranges::max_element(w.hosts) > 1;
    if (*w.path) {
      ASSERT_EQ(comm.last_algorithm(), staged ? "staged" : w.path) << text(c, comm);
    }
  }
}

}  // namespace weft::testing
