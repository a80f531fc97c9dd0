// labels: multiproc
// A communicator allocates all its resources before a stream waits at its first call: afterwards
// the fake device rejects allocations, mappings and loads (OnFakeDevice checks late calls that are
// only recorded).
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "support/device/device_cards.h"
#include "support/device/device_ranks.h"
#include "support/jobs/ranks.h"
#include "transport/gpu/rank_gpu.h"

namespace weft {
namespace {

using namespace testing;

class DeviceFirstUse : public OnFakeDevice {
  const testing::NoLateMemory strict_;
};

// More communicators are first used while streams of earlier calls wait, because the GPU runs far
// behind the host. Covers every path, and messages.
TEST_F(DeviceFirstUse, OfFurtherCommunicators) {
  for (const auto& where : {places({2}), places({2, 2})})
    run_ranks(where, patient(), [](World& world) {
      FakeDevice& fake = *fake_device();
      const int gpu = world.rank() % FakeDevice::kGpus;
      TestStream work(fake, gpu), messages(fake, gpu);
      constexpr std::size_t kCount = 100'000;
      DeviceBuffer data(work, kCount * 4), out(work, kCount * 4), got(messages, kCount * 4);
      const Rank next = (world.rank() + 1) % world.size(),
                 last = (world.rank() + world.size() - 1) % world.size();
      for (int round = 0; round < 3; ++round) {
        std::vector<Communicator> comms;
        for (int k = 0; k < 3; ++k) comms.push_back(world.world().duplicate());
        for (Communicator& comm : comms) {
          if (world.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(5));
          const Status reduced =
              comm.on(work.get())
                  .all_reduce(data.data(), out.data(), kCount, DType::kFloat32, RedOp::kSum);
          ASSERT_TRUE(reduced.ok()) << reduced.message();
          const Status sent =
              comm.on(work.get()).broadcast(out.data(), out.data(), 10, DType::kFloat32, 0);
          ASSERT_TRUE(sent.ok()) << sent.message();
          const Message both[] = {Message::to(next, data.data(), kCount, DType::kFloat32),
                                  Message::from(last, got.data(), kCount, DType::kFloat32)};
          const Status exchanged = comm.on(messages.get()).exchange(both);
          ASSERT_TRUE(exchanged.ok()) << exchanged.message();
        }
        work.wait();
        messages.wait();
      }
    });
}

// The GPU that the program selects before the first World determines the near rail, and is the
// rank's GPU.
TEST_F(DeviceFirstUse, ARankHasTheGpuThatTheProgramHasChosen) {
  fake_->choose(2, "0000:2b:00.0");
  const auto world = World::from_id(World::unique_id(), 0, 1);
  fake_->choose(-1);
  EXPECT_EQ(world->topology().place(0).gpu, "0000:2b:00.0");
  fake_->choose(2, "0000:2b:00.0");
  EXPECT_EQ(gpu_of_rank(world->topology(), 0, *fake_), 2);
  fake_->choose(-1);
  EXPECT_EQ(gpu_of_rank(world->topology(), 0, *fake_), 0);  // no longer visible
}

class DeviceFirstUseOfCards : public OnFakeCards {
  const testing::NoLateMemory strict_;
};

// As above, with memory that NICs reach.
TEST_F(DeviceFirstUseOfCards, OfFurtherCommunicators) {
  run_ranks(places({1, 1}), patient(), [](World& world) {
    TestStream work(*fake_device(), gpu_of(world));
    constexpr std::size_t kCount = 100'000;
    DeviceBuffer data(work, kCount * 4);
    std::vector<Communicator> comms;
    for (int k = 0; k < 3; ++k) comms.push_back(world.world().duplicate());
    for (Communicator& comm : comms) {
      if (world.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      ASSERT_TRUE(comm.on(work.get())
                      .all_reduce(data.data(), data.data(), kCount, DType::kFloat32, RedOp::kSum)
                      .ok());
    }
    work.wait();
    EXPECT_EQ(comms[0].last_algorithm(), "gpudirect");
  });
}

}  // namespace
}  // namespace weft
