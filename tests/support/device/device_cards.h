// Collectives on device memory that RDMA NICs reach: on the fake device, with NICs that are as
// strict as the hardware may be (fake_nic.cc).
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "support/device/device_ranks.h"
#include "support/fakes/fake_device.h"
#include "support/jobs/ranks.h"

namespace weft::testing {

// The collectives that the NICs can carry out.
inline constexpr Collective kGpuHierarchical[] = {
    Collective::kAllReduce, Collective::kAllGather, Collective::kReduceScatter,
    Collective::kBroadcast, Collective::kReduce,    Collective::kGather,
    Collective::kScatter,   Collective::kAllToAll};

class OnFakeCards : public OnFakeDevice {
 protected:
  void SetUp() override {
    OnFakeDevice::SetUp();
    fake_->give_nics(true);
    setenv("WEFT_GPUDIRECT", "1", 1);  // also the shortest messages
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

// The sum of a few elements, so that the path that a call takes can be looked at.
inline std::string path_of(Communicator comm, TestStream& work, std::size_t count = 1) {
  run_device_case(comm, work, {Collective::kAllReduce, count});
  return std::string(comm.last_algorithm());
}

// Every collective, type and operator, in place and out of place, aligned and not, on a stream and
// on none: of messages of so many bytes and a little, by this path; all but an all_to_all in place,
// where it is not `all_to_all_in_place`.
inline void run_every_collective(const std::vector<Place>& where, const char* path,
                                 bool all_to_all_in_place, std::size_t bytes = 0) {
  run_ranks(where, patient(), [&](World& world) {
    TestStream work(*device(), world.rank() % FakeDevice::kGpus);
    Communicator comm = world.world();
    for (const Collective collective : kGpuHierarchical)
      for (const std::size_t more : {std::size_t{1}, std::size_t{333}})
        for (const DType type : kAllDTypes)
          for (const RedOp op : kAllRedOps) {
            const std::size_t count = bytes / size_of(type) + more;
            const bool reducing = reduces(collective);
            if (!reducing && (op != RedOp::kSum || more == 1)) continue;
            if (!defined(op, type)) continue;
            if (op == RedOp::kAvg && is_floating(type) && (comm.size() & (comm.size() - 1)))
              continue;
            const bool odd = (count + static_cast<std::size_t>(type)) % 2;
            run_device_case(comm, work,
                            {collective, count, type, op, odd, odd ? size_of(type) : 0,
                             static_cast<Rank>(type) % comm.size(), static_cast<int>(op) % 2 == 0});
            if (::testing::Test::HasFatalFailure()) return;
            const bool staged = collective == Collective::kAllToAll && odd && !all_to_all_in_place;
            ASSERT_EQ(comm.last_algorithm(), staged ? "staged" : path) << name(collective);
          }
  });
}

// A sum on a stream that comes to it after all has been called, and on rank `last` later still.
inline void sum_in_stream_order(const std::vector<Place>& where, Rank last) {
  run_ranks(where, patient(), [&](World& world) {
    TestStream work(*device(), world.rank() % FakeDevice::kGpus);
    Communicator comm = world.world();
    constexpr std::size_t kCount = 300'000;
    DeviceBuffer in(work, kCount * 4), out(work, kCount * 4);
    const std::vector<float> ones(kCount, 1);
    std::vector<float> got(kCount);
    {
      // Nothing on the stream moves before everything has been called.
      Brake brake(work.get());
      // Written on the stream before the call; read on it after.
      device()->copy(in.data(), ones.data(), kCount * 4, work.gpu(), work.get());
      ASSERT_TRUE(comm.on(work.get())
                      .all_reduce(in.data(), out.data(), kCount, DType::kFloat32, RedOp::kSum)
                      .ok());
      device()->copy(got.data(), out.data(), kCount * 4, work.gpu(), work.get());
      if (world.rank() == last) std::this_thread::sleep_for(std::chrono::milliseconds(50));
      brake.release();
      work.wait();
    }
    EXPECT_EQ(got, std::vector<float>(kCount, static_cast<float>(where.size())));
    EXPECT_EQ(comm.last_algorithm(), "gpudirect");
  });
}

}  // namespace weft::testing
