// Registrations that the kernel refuses: those of GPU memory for a while only, on the fake device.
// ctest: alone
#include <gtest/gtest.h>

#include <cstring>
#include <utility>

#include "support/fakes/fake_device.h"
#include "support/fakes/fake_verbs.h"
#include "support/fakes/forged_job.h"
#include "transport/conformance.h"
#include "transport/gpu/device_region.h"
#include "transport/verbs/verbs.h"

namespace weft::testing {
namespace {

TEST(VerbsRegions, AreAskedForAgainAfterARefusal) {
  FakeDevice& gpu = use_fake_device();
  gpu.give_nics(true);
  FakeVerbs& fake = FakeVerbs::get();
  fake.wired = true;
  Nic rail;
  rail.name = "fake";
  rail.rdma = rail.up = true;
  Net both(make_in_threads(
      2, [&](Job& job, Rank) { return make_verbs_transport(job, separate_hosts(2, rail), rail); }));
  constexpr std::size_t kBytes = 200'000;
  DeviceRegion from(gpu, 1, kBytes), to(gpu, 2, kBytes);
  for (std::uint64_t tag = 1; tag <= 4; ++tag) {
    Buffer pattern(kBytes);
    pattern.fill(tag);
    std::memcpy(gpu.local(from.data()), pattern.data(), kBytes);
    // The first message goes by way of host memory; no copy is made of the others.
    fake.refuse_regions = tag == 1 ? 2 : 0;
    gpu.fail_next(tag == 1 ? "" : "copy");
    both[1].post(Transfer::Kind::kRecv, 0, tag, to.data(), kBytes);
    both[0].post(Transfer::Kind::kSend, 1, tag, from.data(), kBytes);
    ASSERT_TRUE(both.finish()) << tag;
    EXPECT_EQ(fake.refuse_regions, 0);
    EXPECT_TRUE(has_pattern(gpu.local(to.data()), kBytes, tag));
  }
  gpu.fail_next("");
}

}  // namespace
}  // namespace weft::testing
