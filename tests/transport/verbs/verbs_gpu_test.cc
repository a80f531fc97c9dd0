// GPU memory in the verbs transport. The fake device's memory cannot be registered, so transfers go
// through host memory; tests with the label cuda cover registration on hosts with GPUs.
// labels: multiproc
// ctest: alone
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "support/fakes/fake_device.h"
#include "transport/conformance.h"
#include "transport/verbs/verbs.h"
#include "transport/verbs_devices.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class VerbsGpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (test_devices().empty()) GTEST_SKIP() << "missing capability: RDMA device";
    gpu_ = &use_fake_device();
  }
  static Net net() {
    return Net(make_in_threads(2, [](Job& job, Rank rank) {
      return make_verbs_transport(job, verbs_hosts(2), test_rail(rank));
    }));
  }
  FakeDevice* gpu_ = nullptr;
};

TEST_F(VerbsGpuTest, BytesOfEverySizeBetweenHostAndGpu) {
  Net both = net();
  EXPECT_TRUE(both[0].caps().cuda);
  std::uint64_t tag = 1;
  for (const std::size_t bytes :
       {std::size_t{1}, std::size_t{300}, std::size_t{20'000}, std::size_t{400'000}}) {
    for (const bool from_gpu : {false, true}) {
      for (const bool to_gpu : {false, true}) {
        for (const bool late : {false, true}) {  // the receive
          SCOPED_TRACE(::testing::Message() << bytes << " bytes from GPU " << from_gpu << " to GPU "
                                            << to_gpu << (late ? " late" : ""));
          Buffer host_from(bytes), host_to(bytes);
          void* from = from_gpu ? gpu_->alloc(1, bytes) : host_from.data();
          void* to = to_gpu ? gpu_->alloc(2, bytes) : host_to.data();
          host_from.fill(tag);
          if (from_gpu) std::memcpy(gpu_->local(from), host_from.data(), bytes);
          if (late) {
            both[0].post(Kind::kSend, 1, tag, from, bytes);
            both.settle();
          }
          both[1].post(Kind::kRecv, 0, tag, to, bytes);
          if (!late) both[0].post(Kind::kSend, 1, tag, from, bytes);
          ASSERT_TRUE(both.finish());
          EXPECT_TRUE(has_pattern(to_gpu ? gpu_->local(to) : to, bytes, tag));
          if (from_gpu) gpu_->free(from);
          if (to_gpu) gpu_->free(to);
          ++tag;
        }
      }
    }
  }
}

TEST_F(VerbsGpuTest, WhatCannotBeRegisteredSaysWhatItTakes) {
  const VerbsDevice device(test_rail(0).name);
  void* memory = gpu_->alloc(0, 4096);
  try {
    VerbsMemory region(device, memory, 4096, IBV_ACCESS_LOCAL_WRITE);
    ADD_FAILURE() << "memory that nobody can read was registered";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(),
                AllOf(HasSubstr("GPU memory (no dma-buf: "), HasSubstr("nvidia_peermem")));
  }
  gpu_->free(memory);
}

// A failing GPU ends the transfer, not the process.
TEST_F(VerbsGpuTest, ACopyThatFailsEndsTheTransfer) {
  Net both = net();
  void* to = gpu_->alloc(0, 64);
  Buffer from(64);
  gpu_->fail_next("copy");
  const std::uint64_t id = both[1].post(Kind::kRecv, 0, 1, to, 64);
  both[0].send(1, 1, from);
  ASSERT_TRUE(both.until([&] { return both[1].idle() && both[0].idle(); }));
  EXPECT_EQ(both[1].result(id).code, Code::kTransport);
  EXPECT_FALSE(both[1].transport().cause(0).ok());
  gpu_->free(to);
}

}  // namespace
}  // namespace weft::testing
