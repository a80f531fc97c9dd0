// labels: multiproc
// ctest: whole
// Calls that a callback of a device-memory operation may make, from every thread that may run it,
// on the fake device.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>

#include "support/device/device_ranks.h"
#include "support/fakes/fake_device.h"
#include "support/jobs/ranks.h"

namespace weft {
namespace {

using std::chrono::milliseconds;
using testing::DeviceBuffer;
using testing::patient;
using testing::places;
using testing::run_ranks;
using testing::TestStream;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kSummed = 100;

class DeviceCallbacks : public testing::OnFakeDevice {
 protected:
  // Nobody waits for the request, so one of weft's threads runs the callback.
  static void sum_and_call(Communicator comm, DeviceBuffer& data,
                           std::function<void(const Status&)> call) {
    Request h =
        comm.all_reduce_async(data.data(), data.data(), kSummed, DType::kInt64, RedOp::kSum);
    h.on_done(std::move(call));
    h.detach();
  }
  static bool comes(const std::atomic<bool>& flag) {
    const auto end = Clock::now() + milliseconds(20000);
    while (!flag && Clock::now() < end) std::this_thread::sleep_for(milliseconds(1));
    return flag;
  }
};

TEST_F(DeviceCallbacks, AnotherOperationMayBeWaitedFor) {
  run_ranks(places({2}), patient(), [](World& world) {
    TestStream work(*fake_device(), world.rank());
    DeviceBuffer data(work, kSummed * 8), more(work, kSummed * 8), last(work, kSummed * 8);
    Communicator comm = world.world();
    std::atomic<bool> sums = false, messages = false;
    sum_and_call(comm, data, [&](const Status& s) {
      const Status then =
          comm.all_reduce(more.data(), more.data(), kSummed, DType::kInt64, RedOp::kSum);
      sums = s.ok() && then.ok();
    });
    ASSERT_TRUE(comes(sums));
    const Rank peer = 1 - comm.rank();
    // Posted before any send, and not polled meanwhile: a test() that found the first receive
    // complete would run the callback itself, which waits for a message that its peer posts only
    // after its own test().
    Request came[] = {comm.recv_async(more.data(), kSummed, DType::kInt64, peer),
                      comm.recv_async(last.data(), kSummed, DType::kInt64, peer)};
    Request h = comm.send_async(data.data(), kSummed, DType::kInt64, peer);
    h.on_done([&](const Status& s) {
      const Status then = comm.send(data.data(), kSummed, DType::kInt64, peer);
      messages = s.ok() && then.ok();
    });
    h.detach();
    ASSERT_TRUE(comes(messages));
    for (Request& message : came) EXPECT_TRUE(message.wait().ok());
  });
}

TEST_F(DeviceCallbacks, TheStreamMayBeWaitedFor) {
  run_ranks(places({2}), patient(), [](World& world) {
    TestStream work(*fake_device(), world.rank());
    DeviceBuffer data(work, kSummed * 8);
    std::atomic<bool> called = false;
    sum_and_call(world.world().on(work.get()), data, [&](const Status& s) {
      work.wait();
      called = s.ok();
    });
    ASSERT_TRUE(comes(called));
  });
}

TEST_F(DeviceCallbacks, TheWorldMayEndMeanwhile) {
  auto jobs = local_jobs(1);
  auto world = std::make_unique<World>(std::move(jobs[0]), places({1})[0], patient());
  TestStream work(*fake_device());
  DeviceBuffer data(work, kSummed * 8), more(work, kSummed * 8);
  Communicator comm = world->world();
  std::atomic<bool> called = false, over = false;
  bool at_once = false;
  const auto call = [&, here = std::this_thread::get_id()](const Status& s) {
    // on_done() of a completed sum calls back in this thread, so it destroys no World there.
    if (std::this_thread::get_id() == here) {
      at_once = true;
      return;
    }
    called = s.ok();
    const auto end = Clock::now() + milliseconds(5000);
    while (comm.barrier().ok() && Clock::now() < end) std::this_thread::sleep_for(milliseconds(1));
    const Status then =
        comm.all_reduce(more.data(), more.data(), kSummed, DType::kInt64, RedOp::kSum);
    EXPECT_EQ(then.code(), Code::kAborted) << then.to_string();
    over = true;
  };
  do {
    at_once = false;
    sum_and_call(comm, data, call);
  } while (at_once);
  ASSERT_TRUE(comes(called));
  world.reset();
  EXPECT_TRUE(over) << "nothing of the World is at work any more";
}

}  // namespace
}  // namespace weft
