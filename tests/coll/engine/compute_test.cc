// The engine with a Compute: the engine launches work, and rounds wait for it.
#include "coll/engine/compute.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "coll/engine/engine.h"
#include "coll/schedules.h"

namespace weft {
namespace {

using testing::full_name;
using testing::uniform;

// A transport between hosts that records posted transfers.
class Wires final : public Transport {
 public:
  void post(std::span<const Transfer> transfers) noexcept override {
    posted.insert(posted.end(), transfers.begin(), transfers.end());
  }
  std::size_t poll(std::span<Completion>) noexcept override { return 0; }
  void cancel(std::uint32_t) noexcept override {}
  Caps caps() const override { return {.name = "wires"}; }
  Status cause(Rank) const override { return {}; }
  std::vector<Transfer> posted;
};

class Memory final : public Compute {
 public:
  using Compute::Compute;
  std::byte* memory(std::size_t bytes) override {
    memory_.resize(bytes + 256);
    const auto at = reinterpret_cast<std::uintptr_t>(memory_.data());
    return memory_.data() + (256 - at % 256) % 256;
  }
  std::size_t size() const { return memory_.size() - 256; }

 private:
  std::vector<std::byte> memory_;
};

Plan plan_of(const Algorithm& algorithm, const Shape& shape) {
  static const std::vector<Link> links(1);
  std::vector<Rank> world(static_cast<std::size_t>(shape.nranks));
  std::iota(world.begin(), world.end(), 0);
  return compile(algorithm.build(shape),
                 {.collective = algorithm.collective,
                  .network = true,
                  .world = world,
                  .links = links,
                  .link_of = [](Rank, int) { return 0; }},
                 false);
}

// GPU kernels use 16-byte vectors if all operands are equally aligned. All slices of a buffer that
// starts at a 16-byte boundary do so, in the buffer and in the copy.
TEST(ComputeRounds, BeginAtWholeVectorsAndFit) {
  constexpr std::size_t kRound = std::size_t{2} << 20;
  int plans = 0;
  for (const int hosts : {2, 3, 7, 48})
    for (const Algorithm& a : algorithms()) {
      const Shape shape = uniform(hosts, 1);
      if (a.collective == Collective::kBarrier || !a.applies(shape)) continue;
      if (a.collective == Collective::kAllToAll && hosts > 24) continue;
      const Plan plan = plan_of(a, shape);
      const std::size_t blocks =
          by_blocks(a.collective) ? static_cast<std::size_t>(hosts) : std::size_t{1};
      for (const DType type : {DType::kUInt8, DType::kFloat16, DType::kFloat64}) {
        SCOPED_TRACE(full_name(a) + ", " + std::to_string(hosts) + " hosts, " +
                     std::string(name(type)));
        Memory compute(true, kRound / blocks);
        Wires wires;
        Transport* const links[] = {&wires};
        Call call{.count = 5 * kRound / size_of(type), .type = type};
        weft::Run run;
        run.start(plan, call, slicing_for(compute, plan), links, &compute);
        EXPECT_LE(compute.size(), kComputeScratchMax);
        for (const Work& work : compute.take_given())
          for (const Work::Slice& slice : work.slices) {
            EXPECT_EQ(reinterpret_cast<std::uintptr_t>(slice.at) % 16, 0u);
            EXPECT_EQ(slice.first * size_of(type) % 16, 0u);
            EXPECT_LE(slice.count * size_of(type), kRound / blocks);
          }
        ++plans;
      }
    }
  EXPECT_GT(plans, 100);
}

// A sum of two ranks: nothing is sent before the input is ready, and the round ends only after the
// reduction and the copy back.
TEST(ComputeRounds, WaitForEveryWork) {
  const Shape shape = uniform(2, 1);
  const Plan plan = plan_of(*find_algorithm(Collective::kAllReduce, "flat"), shape);
  Memory compute(true, 64);
  Wires wires;
  Transport* const links[] = {&wires};
  Call call{.count = 16};
  weft::Run run;
  run.start(plan, call, slicing_for(compute, plan), links, &compute);
  const auto works = [&](Work::Kind kind) {
    std::vector<Work> given = compute.take_given();
    EXPECT_EQ(given.size(), 1u);
    EXPECT_EQ(given.at(0).kind, kind);
    return given.at(0);
  };
  const auto end = [&](Work&& work) {
    EXPECT_TRUE(compute.busy());
    compute.end(std::move(work));
    run.progress();
  };
  Work bring = works(Work::Kind::kBring);
  ASSERT_EQ(bring.slices.size(), 1u);
  EXPECT_EQ(bring.slices[0].count, 16u);
  run.progress();
  EXPECT_TRUE(wires.posted.empty());
  end(std::move(bring));
  ASSERT_EQ(wires.posted.size(), 2u);
  EXPECT_FALSE(compute.busy());
  for (const Transfer& t : wires.posted) EXPECT_TRUE(t.on_device);
  for (const Transfer& t : wires.posted) run.complete({.id = t.id});
  run.progress();
  Work reduce = works(Work::Kind::kReduce);
  ASSERT_EQ(reduce.sums.size(), 1u);
  EXPECT_EQ(reduce.sums[0].from.size(), 2u);
  EXPECT_EQ(reduce.sums[0].count, 16u);
  end(std::move(reduce));
  Work take = works(Work::Kind::kTake);
  EXPECT_FALSE(run.done());
  end(std::move(take));
  EXPECT_TRUE(run.done());
}

// A message written by a NIC is forwarded when it has become visible, not when it is received.
TEST(ComputeRounds, SendOnWhatHasLanded) {
  const Plan plan = plan_of(*find_algorithm(Collective::kAllGather, "ring"), uniform(3, 1));
  Memory compute(true, 64);
  Wires wires;
  Transport* const links[] = {&wires};
  weft::Run run;
  Call call{.count = 16};
  run.start(plan, call, slicing_for(compute, plan), links, &compute);
  for (Work& work : compute.take_given()) compute.end(std::move(work));
  run.progress();
  const auto sends = [&] {
    return std::ranges::count(wires.posted, Transfer::Kind::kSend, &Transfer::kind);
  };
  EXPECT_EQ(sends(), 1);  // its own block
  const std::vector<Transfer> first = wires.posted;
  for (const Transfer& t : first) run.complete({.id = t.id});
  run.progress();
  EXPECT_EQ(sends(), 1);
  for (Work& work : compute.take_given()) {
    EXPECT_EQ(work.kind, Work::Kind::kLand);
    compute.end(std::move(work));
  }
  run.progress();
  EXPECT_EQ(sends(), 2);
}

}  // namespace
}  // namespace weft
