// labels: multiproc waits
// Calls on device memory that one rank never makes, or makes with other memory: every rank gets the
// same error, which names the user's call. Uses the fake device; agreement_test.cc tests other
// mismatches.
//
// WEFT_TEST_SEED repeats a run.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>

#include "support/device/device_ranks.h"
#include "support/jobs/ranks.h"
#include "support/jobs/setting.h"

namespace weft {
namespace {

using std::chrono::milliseconds;
using ::testing::ContainsRegex;
using testing::DeviceBuffer;
using testing::places;
using testing::run_ranks;
using testing::TestStream;

constexpr std::size_t kElements = 4096;

struct Ended {
  Code code = Code::kOk;
  Rank blamed = kNoRank;
  std::string message;
};

// A rank's arguments in the failing round.
struct Passes {
  std::size_t count = 1024;
  bool device = true, stream = false;
};

class DeviceHang : public testing::OnFakeDevice, public ::testing::WithParamInterface<int> {
 protected:
  void SetUp() override {
    OnFakeDevice::SetUp();
    random_.seed(testing::seed());
    n_ = GetParam();
    victim_ = static_cast<Rank>(random_() % static_cast<unsigned>(n_));
    rounds_ = 1 + static_cast<int>(random_() % 12);
  }

  static Status perform(Communicator comm, TestStream& work, DeviceBuffer& data, const Passes& p) {
    std::vector<std::byte> host(data.size());
    void* const buffer = p.device ? static_cast<void*>(data.data()) : host.data();
    if (p.stream) comm = comm.on(work.get());
    return comm.all_reduce_async(buffer, buffer, p.count, DType::kFloat32, RedOp::kSum).wait();
  }

  // Some calls of all ranks, on host memory, device memory and streams in turn. Then all ranks pass
  // `usual`, but the victim passes `other` or, if that is null, makes no call until the other ranks
  // have ended. Finally all call barriers until they get the error.
  std::vector<Ended> run(milliseconds deadline, const Passes& usual, const Passes* other) {
    std::vector<Ended> ended(static_cast<std::size_t>(n_));
    std::atomic<int> left{n_ - 1};
    WorldOptions options;
    options.timeout = deadline;
    run_ranks(places({n_}), options, [&](World& world) {
      TestStream work(*device(), world.rank() % FakeDevice::kGpus);
      DeviceBuffer data(work, kElements * 8);
      Communicator comm = world.world();
      Status s;
      for (int i = 0; i < rounds_ && s.ok(); ++i)
        s = perform(comm, work, data, {i % 5 == 4 ? 0u : 100u, i % 3 != 0, i % 2 == 1});
      const bool odd = world.rank() == victim_;
      if (odd && !other) {
        while (left > 0) std::this_thread::sleep_for(milliseconds(1));
      } else if (s.ok()) {
        s = perform(comm, work, data, odd ? *other : usual);
      }
      for (int i = 0; i < 2 && s.ok(); ++i) s = comm.barrier();
      ended[static_cast<std::size_t>(world.rank())] = {s.code(), s.rank(), s.message()};
      if (!odd) --left;
    });
    return ended;
  }

  // The failing call; the World itself makes no call before.
  std::string title() const { return fmt::format("all_reduce #{}", rounds_ + 1); }

  // All ranks report the same error, about the user's call.
  void expect_mismatch(const std::vector<Ended>& ended, const std::vector<std::string>& patterns) {
    for (const Ended& e : ended) {
      EXPECT_EQ(e.code, Code::kMismatch) << e.message;
      for (const std::string& pattern : patterns) EXPECT_THAT(e.message, ContainsRegex(pattern));
      EXPECT_THAT(e.message, ::testing::Not(ContainsRegex("communicator|wait for each other")));
      EXPECT_EQ(e.message, ended[0].message) << "all ranks say the same";
    }
  }

  std::mt19937 random_;
  int n_ = 0, rounds_ = 0;
  Rank victim_ = 0;
};

constexpr milliseconds kDeviceDeadline{1500}, kDeviceLong{30000};

TEST_P(DeviceHang, ARankThatNeverCalls) {
  for (const bool stream : {false, true}) {
    Passes usual;
    usual.stream = stream;
    const auto ended = run(kDeviceDeadline, usual, nullptr);
    for (Rank r = 0; r < n_; ++r) {
      if (r == victim_) continue;
      const Ended& e = ended[static_cast<std::size_t>(r)];
      EXPECT_EQ(e.code, Code::kTimeout) << e.message;
      EXPECT_EQ(e.blamed, victim_) << e.message;
      EXPECT_THAT(e.message,
                  ContainsRegex(fmt::format("all_reduce did not finish.*rank {} never called {} "
                                            ".last: #{}, .* ago; .* in its own code",
                                            victim_, title(), rounds_)));
    }
  }
}

// Messages of a rank with host memory never match the receives of the other ranks.
TEST_P(DeviceHang, AnotherMemoryOnOneRank) {
  for (const auto& [count, usual_device] :
       {std::pair{16ul, true}, {4096ul, true}, {1024ul, false}}) {
    Passes usual, other;
    usual.count = other.count = count;
    usual.device = usual_device;
    other.device = !usual_device;
    const std::string in_words[] = {"host memory", "device memory"};
    expect_mismatch(
        run(kDeviceDeadline, usual, &other),
        {title() + "(:| of)", fmt::format("rank {} passed .*{}", victim_, in_words[!usual_device]),
         "rank [0-9] passed .*" + in_words[usual_device]});
  }
}

// A rank with count 0 returns at once; its next call shows the mismatch, or else the deadline.
TEST_P(DeviceHang, NothingOnOneRank) {
  Passes usual, other;
  other.count = 0;
  expect_mismatch(run(kDeviceDeadline, usual, &other), {title() + ".*1024 x float.* 0 x float|" +
                                                        title() + ".* 0 x float.*1024 x float"});
}

// Each communicator has a lane, and sibling communicators that fail with it.
TEST_P(DeviceHang, OneCommunicatorThatEndsLeavesTheOthers) {
  WorldOptions options;
  options.timeout = kDeviceLong;
  run_ranks(places({n_}), options, [&](World& world) {
    TestStream work(*device(), world.rank() % FakeDevice::kGpus);
    DeviceBuffer data(work, kElements * 8);
    Communicator wrong = world.world().duplicate(), right = world.world().duplicate();
    Passes usual, odd;
    odd.count = 2048;
    EXPECT_TRUE(perform(right, work, data, usual).ok());
    const Status first = perform(wrong, work, data, world.rank() == victim_ ? odd : usual);
    EXPECT_EQ(first.code(), Code::kMismatch) << first.to_string();
    for (int i = 0; i < 10; ++i) {
      usual.stream = i % 2 == 1;
      const Status s = perform(right, work, data, usual);
      EXPECT_TRUE(s.ok()) << s.to_string();
    }
    EXPECT_EQ(perform(wrong, work, data, usual).to_string(), first.to_string());
    EXPECT_TRUE(world.world().barrier().ok());
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, DeviceHang, ::testing::Values(2, 4));

}  // namespace
}  // namespace weft
