// Collectives on device memory: the fixture with the fake device, and a function that fills one
// rank's buffers, runs the collective and compares every byte.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <vector>

#include "coll/api/communicator.h"
#include "support/device/device_memory.h"
#include "support/fakes/fake_device.h"
#include "support/jobs/call.h"
#include "support/jobs/payload.h"
#include "transport/gpu/gates.h"

namespace weft::testing {

class OnFakeDevice : public ::testing::Test {
 protected:
  void SetUp() override {
    fake_ = &use_fake_device();
    late_before_ = fake_->late_calls();
  }
  void TearDown() override {
    if (!fake_) return;  // SetUp() threw
    fake_->separate(false);
    EXPECT_EQ(fake_->late_calls(), late_before_);
  }
  FakeDevice* fake_ = nullptr;
  std::vector<std::string> late_before_;
};

// During its lifetime, the fake device rejects allocations while a stream waits for weft, and weft
// waits up to a minute for its streams, because the machine may be loaded.
class NoLateMemory {
 public:
  NoLateMemory() {
    fake_device()->allow_late_memory(false);
    settle_limit = std::chrono::minutes(1);
  }
  ~NoLateMemory() {
    fake_device()->allow_late_memory(true);
    settle_limit = usual_;
  }

 private:
  const std::chrono::milliseconds usual_ = settle_limit;
};

// Blocks a stream until release().
class Brake {
 public:
  explicit Brake(Device::Stream stream) : word_(fake_device()->words(1)) {
    fake_device()->hold(stream, word_);
  }
  ~Brake() { fake_device()->free_words(word_); }
  void release() { word_->store(1); }

 private:
  std::atomic<std::uint32_t>* word_;
};

inline WorldOptions patient() {
  WorldOptions options;
  options.timeout = std::chrono::milliseconds(60000);
  return options;
}

struct DeviceCase {
  Collective collective;
  std::size_t count;
  DType type = DType::kFloat32;
  RedOp op = RedOp::kSum;
  bool in_place = false;
  std::size_t shift = 0;
  Rank root = 0;
  bool on_stream = true;
};

inline std::string text(const DeviceCase& c, const Communicator& comm) {
  return std::string(name(c.collective)) + " of " + std::to_string(c.count) + " " + name(c.type) +
         " " + name(c.op) + (c.in_place ? " in place" : "") + " shift " + std::to_string(c.shift) +
         " root " + std::to_string(c.root) + (c.on_stream ? " on a stream" : "") + ", rank " +
         std::to_string(comm.rank()) + " of " + std::to_string(comm.size());
}

inline Status call(Communicator comm, const DeviceCase& c, const void* in, void* out) {
  const Reduction reduction{c.op, c.op == RedOp::kPreMulSum ? 2.0 : 1.0};
  return call(comm, c.collective, in, out, c.count, c.type, reduction, c.root);
}

// Input of rank `me` of n, and its expected output, computed without weft.
void put_operands(std::byte* to, const DeviceCase& c, Rank me, std::size_t elements);
void put_expected(std::byte* to, const DeviceCase& c, Rank me, int n, std::size_t elements);

// Runs one case and checks the result; `work` is the rank's stream.
inline void run_device_case(Communicator comm, TestStream& work, const DeviceCase& c) {
  const auto n = static_cast<std::size_t>(comm.size());
  const auto me = static_cast<std::size_t>(comm.rank());
  const std::size_t e = size_of(c.type);
  const bool at_root = comm.rank() == c.root;
  const bool gathers =
      c.collective == Collective::kAllGather || c.collective == Collective::kGather;
  const bool scatters =
      c.collective == Collective::kReduceScatter || c.collective == Collective::kScatter;
  const bool exchanges = c.collective == Collective::kAllToAll;
  std::size_t in_count = scatters || exchanges ? c.count * n : c.count;
  std::size_t out_count = gathers || exchanges ? c.count * n : c.count;
  if (!at_root && (c.collective == Collective::kBroadcast || c.collective == Collective::kScatter))
    in_count = 0;
  if (!at_root && (c.collective == Collective::kReduce || c.collective == Collective::kGather))
    out_count = 0;
  const bool in_place = c.in_place && in_count && out_count;
  const std::string what = text(c, comm);
  DeviceBuffer whole(work, std::max(in_count, out_count) * e, c.shift);
  DeviceBuffer other(work, out_count * e, c.shift);
  std::byte *in = whole.data(), *out = other.data();
  std::size_t out_at = 0;
  if (in_place) {
    if (gathers) in = whole.data() + me * c.count * e;
    out_at = scatters ? me * c.count * e : 0;
    out = whole.data() + out_at;
  }
  std::vector<std::byte> mine(in_count * e);
  put_operands(mine.data(), c, comm.rank(), in_count);
  Device& device = work.device();
  device.copy(in, mine.data(), mine.size(), work.gpu(), work.get());
  if (!c.on_stream) work.wait();
  // A buffer that this rank does not use may be null.
  const Status s = call(c.on_stream ? comm.on(work.get()) : comm, c, in_count ? in : nullptr,
                        out_count ? out : nullptr);
  ASSERT_TRUE(s.ok()) << what << ": " << s.to_string();
  // Later work on the stream sees the result.
  std::vector<std::byte> got(out_count * e), want(got.size());
  device.copy(got.data(), out, got.size(), work.gpu(), work.get());
  work.wait();
  put_expected(want.data(), c, comm.rank(), comm.size(), out_count);
  if (got != want) {
    const auto at = std::ranges::mismatch(got, want).in1 - got.begin();
    std::size_t last = got.size() - 1;
    while (got[last] == want[last]) --last;
    FAIL() << what << ": elements " << static_cast<std::size_t>(at) / e << " to " << last / e
           << " of " << out_count << ": got " << std::to_integer<int>(got[last]) << ", not "
           << std::to_integer<int>(want[last]) << ", in byte " << last;
  }
  EXPECT_TRUE(whole.intact_around() && other.intact_around()) << what << ": wrote past the end";
  if (!in_place) {
    const auto kept = whole.get();
    EXPECT_TRUE(std::equal(mine.begin(), mine.end(), kept.begin())) << what << ": input changed";
  }
}

}  // namespace weft::testing
