// GPUDirect on RDMA devices: fake device memory that the kernel registers, because NICs reach it
// (FakeDevice::give_nics), and collectives sent from it and received into it.
// labels: multiproc
// ctest: alone
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <vector>

#include "support/device/device_ranks.h"
#include "support/fakes/fake_device.h"
#include "support/jobs/ranks.h"
#include "transport/conformance.h"
#include "transport/gpu/device_region.h"
#include "transport/verbs/verbs.h"
#include "transport/verbs_devices.h"

namespace weft::testing {
namespace {

class VerbsGpuDirect : public ::testing::Test {
 protected:
  void SetUp() override {
    if (test_devices().empty()) GTEST_SKIP() << "missing capability: RDMA device";
    gpu_ = &use_fake_device();
    gpu_->give_nics(true);
    setenv("WEFT_GPUDIRECT", "1", 1);
  }
  void TearDown() override { unsetenv("WEFT_GPUDIRECT"); }
  FakeDevice* gpu_ = nullptr;
};

// Without a copy, which would fail.
TEST_F(VerbsGpuDirect, BytesOfEverySizeWithoutACopy) {
  Net both(make_in_threads(2, [](Job& job, Rank rank) {
    return make_verbs_transport(job, verbs_hosts(2), test_rail(rank));
  }));
  constexpr std::size_t kBytes = 400'000;
  DeviceRegion from(*gpu_, 1, kBytes), to(*gpu_, 2, kBytes);
  EXPECT_TRUE(both[0].transport().device_memory()->reaches_gpu(from.data(), kBytes));
  EXPECT_TRUE(both[1].transport().device_memory()->reaches_gpu(to.data(), kBytes));
  Buffer host(kBytes);
  EXPECT_FALSE(both[0].transport().device_memory()->reaches_gpu(host.data(), kBytes));
  gpu_->fail_next("copy");
  std::uint64_t tag = 1;
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{300}, std::size_t{20'000}, kBytes})
    for (const bool late : {false, true}) {  // the receive
      SCOPED_TRACE(::testing::Message() << bytes << " bytes" << (late ? " late" : ""));
      Buffer pattern(bytes);
      pattern.fill(tag);
      std::memcpy(gpu_->local(from.data()), pattern.data(), bytes);
      if (late) {
        both[0].post(Kind::kSend, 1, tag, from.data(), bytes);
        both.settle();
      }
      both[1].post(Kind::kRecv, 0, tag, to.data(), bytes);
      if (!late) both[0].post(Kind::kSend, 1, tag, from.data(), bytes);
      ASSERT_TRUE(both.finish());
      EXPECT_TRUE(has_pattern(gpu_->local(to.data()), bytes, tag));
      ++tag;
    }
  gpu_->fail_next("");
}

TEST_F(VerbsGpuDirect, CollectivesBetweenHosts) {
  for (const int n : {2, 3}) {
    std::vector<Place> where(static_cast<std::size_t>(n));
    for (Rank r = 0; r < n; ++r) {
      Place& place = where[static_cast<std::size_t>(r)];
      place.host = place.machine = "host" + std::to_string(r);
      place.rails = {test_rail(r)};
    }
    WorldOptions options = patient();
    options.transport = "verbs";
    run_ranks(where, options, [](World& world) {
      TestStream work(*device(), world.rank());
      Communicator comm = world.world();
      for (const Collective c :
           {Collective::kAllReduce, Collective::kAllGather, Collective::kReduceScatter,
            Collective::kBroadcast, Collective::kReduce, Collective::kGather, Collective::kScatter,
            Collective::kAllToAll})
        for (const DType type : {DType::kFloat32, DType::kBFloat16}) {
          run_device_case(comm, work,
                          {c, 3000, type, RedOp::kSum, type == DType::kBFloat16, 4, comm.size() - 1,
                           type == DType::kFloat32});
          ASSERT_EQ(comm.last_algorithm(), "gpudirect") << name(c);
          if (::testing::Test::HasFatalFailure()) return;
        }
      // Two slices. Soft-RoCE reaches some 100 MB/s at best.
      if (comm.size() == 2)
        run_device_case(comm, work, {Collective::kAllReduce, 700'000, DType::kFloat32});
      // Messages around a ring through pinned memory, of one slice and of two.
      const Rank next = (comm.rank() + 1) % comm.size();
      const Rank last = (comm.rank() + comm.size() - 1) % comm.size();
      for (const std::size_t bytes : {std::size_t{70'001}, std::size_t{2'500'000}}) {
        DeviceBuffer in(work, bytes, 1), out(work, bytes);
        in.put(std::vector<std::byte>(bytes, static_cast<std::byte>(comm.rank() + 1)));
        const Message both[] = {Message::to(next, in.data(), bytes, DType::kUInt8),
                                Message::from(last, out.data(), bytes, DType::kUInt8)};
        const Status s = comm.exchange(both);
        ASSERT_TRUE(s.ok()) << s.to_string();
        EXPECT_EQ(out.get(), std::vector<std::byte>(bytes, static_cast<std::byte>(last + 1)));
      }
    });
  }
}

}  // namespace
}  // namespace weft::testing
