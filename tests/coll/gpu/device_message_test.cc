// labels: multiproc
// ctest: whole
// send, recv and exchange in stream order: the work that they wait for, and the work that waits for
// them. Uses the fake device; device_message_end_test.cc tests how they end.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <vector>

#include "support/device/device_ranks.h"
#include "support/fakes/fake_device.h"
#include "support/jobs/ranks.h"

namespace weft {
namespace {

using testing::Brake;
using testing::DeviceBuffer;
using testing::patient;
using testing::places;
using testing::run_ranks;
using testing::TestStream;

class DeviceMessageOrder : public testing::OnFakeDevice {};

constexpr DType kElement = DType::kInt64;
using Values = std::vector<std::int64_t>;

// Data from rank `from` to rank `to`.
Values values(Rank from, Rank to, std::size_t count) {
  Values all(count);
  std::iota(all.begin(), all.end(), from * 1'000'000'000'000 + to * 1'000'000'000LL);
  return all;
}

// A buffer in device or host memory, written and read in stream order.
class Buffer {
 public:
  Buffer(TestStream& work, bool on_device, std::size_t count)
      : work_(work),
        host_(count, -1),
        on_device_(work, on_device ? count * 8 : 0),
        data_(on_device ? static_cast<void*>(on_device_.data()) : host_.data()) {}
  void* data() const { return data_; }
  // `from` and `to` must stay valid until the stream reaches the copy.
  void put(const Values& from) {
    work_.device().copy(data_, from.data(), from.size() * 8, work_.gpu(), work_.get());
  }
  void get(Values& to) const {
    work_.device().copy(to.data(), data_, to.size() * 8, work_.gpu(), work_.get());
  }
  bool intact_around() const { return on_device_.intact_around(); }

 private:
  TestStream& work_;
  Values host_;
  DeviceBuffer on_device_;
  void* data_;
};

// Everything is queued on a blocked stream, with inputs and results: around a ring, in host and
// device memory, with and without bytes, and each rank sends first.
TEST_F(DeviceMessageOrder, KeepTheOrderOfTheirStream) {
  for (const std::vector<int>& hosts : {std::vector<int>{3}, std::vector<int>{1, 1}}) {
    run_ranks(places(hosts), patient(), [](World& world) {
      TestStream work(*device(), world.rank() % FakeDevice::kGpus);
      Communicator comm = world.world().on(work.get());
      const Rank next = (comm.rank() + 1) % comm.size();
      const Rank last = (comm.rank() + comm.size() - 1) % comm.size();
      for (const std::size_t count : {0, 1, 300001})
        for (const bool from_device : {false, true})
          for (const bool to_device : {false, true}) {
            Buffer in(work, from_device, count), out(work, to_device, count);
            Values mine(count, -1), got(count, -1);
            Brake brake(work.get());
            in.put(mine);
            ASSERT_TRUE(comm.send(in.data(), count, kElement, next).ok());
            ASSERT_TRUE(comm.recv(out.data(), count, kElement, last).ok());
            out.get(got);
            std::ranges::copy(values(comm.rank(), next, count), mine.begin());
            brake.release();
            work.wait();
            EXPECT_EQ(got, values(last, comm.rank(), count)) << count;
            EXPECT_TRUE(out.intact_around());
          }
    });
  }
}

// Later work on the stream may overwrite a sent buffer.
TEST_F(DeviceMessageOrder, ASendIsOverForItsStreamOnceItsBytesAreCopied) {
  run_ranks(places({2}), patient(), [](World& world) {
    TestStream work(*device());
    Communicator comm = world.world().on(work.get());
    constexpr std::size_t kCount = 600001;
    const Rank peer = 1 - world.rank();
    for (const bool on_device : {true, false}) {
      Buffer in(work, on_device, kCount), out(work, on_device, kCount);
      const Values mine = values(world.rank(), peer, kCount), other(kCount, 7);
      Values got(kCount);
      in.put(mine);
      ASSERT_TRUE(comm.send(in.data(), kCount, kElement, peer).ok());
      in.put(other);
      ASSERT_TRUE(comm.recv(out.data(), kCount, kElement, peer).ok());
      out.get(got);
      work.wait();
      EXPECT_EQ(got, values(peer, world.rank(), kCount));
    }
  });
}

TEST_F(DeviceMessageOrder, TheHostDoesNotWaitForTheStream) {
  run_ranks(places({2}), patient(), [](World& world) {
    FakeDevice& fake = *fake_device();
    TestStream work(fake);
    Communicator comm = world.world().on(work.get());
    DeviceBuffer in(work, 8000), out(work, 8000);
    std::atomic<std::uint32_t>* passed = fake.words(1);
    Brake brake(work.get());
    const Rank peer = 1 - world.rank();
    Request sent = comm.send_async(in.data(), 1000, kElement, peer);
    Request received = comm.recv_async(out.data(), 1000, kElement, peer);
    fake.write_word(work.get(), passed, 1);
    EXPECT_FALSE(sent.test());
    EXPECT_FALSE(received.test());
    EXPECT_EQ(passed->load(), 0u);
    brake.release();
    EXPECT_TRUE(sent.wait().ok());
    EXPECT_TRUE(received.wait().ok());
    work.wait();
    EXPECT_EQ(passed->load(), 1u);
    fake.free_words(passed);
  });
}

// Every rank exchanges with every rank and itself at once: two messages each, one of them empty if
// the sum of the ranks is odd; device and host memory mixed in one exchange.
TEST_F(DeviceMessageOrder, ExchangesProgressTogether) {
  for (const std::vector<int>& hosts : {std::vector<int>{4}, std::vector<int>{1, 2}}) {
    run_ranks(places(hosts), patient(), [](World& world) {
      TestStream work(*device(), world.rank() % FakeDevice::kGpus);
      Communicator comm = world.world().on(work.get());
      const Rank me = comm.rank();
      for (const std::size_t scale : {10, 50000}) {
        const auto count = [&](Rank other, int k) {
          return k == 1 && (me + other) % 2 ? std::size_t{0} : scale;
        };
        std::vector<std::unique_ptr<Buffer>> ins, outs;
        std::vector<Values> mine, got;
        std::vector<Message> messages;
        for (Rank r = 0; r < comm.size(); ++r)
          for (const int k : {0, 1}) {
            ins.push_back(std::make_unique<Buffer>(work, (me + r + k) % 2 == 0, count(r, k)));
            outs.push_back(std::make_unique<Buffer>(work, (me + r + k) % 3 == 0, count(r, k)));
            mine.push_back(values(me + k * 100, r, count(r, k)));
            ins.back()->put(mine.back());
            // Some ranks list sends first, others receives.
            const auto send = Message::to(r, ins.back()->data(), count(r, k), kElement);
            const auto receive = Message::from(r, outs.back()->data(), count(r, k), kElement);
            messages.push_back(me % 2 ? send : receive);
            messages.push_back(me % 2 ? receive : send);
          }
        Brake brake(work.get());
        ASSERT_TRUE(comm.exchange(messages).ok());
        for (std::size_t i = 0; i < outs.size(); ++i) {
          got.emplace_back(mine[i].size(), -1);
          outs[i]->get(got.back());
        }
        brake.release();
        work.wait();
        for (std::size_t i = 0; i < got.size(); ++i) {
          const auto r = static_cast<Rank>(i / 2);
          const int k = static_cast<int>(i % 2);
          EXPECT_EQ(got[i], values(r + k * 100, me, count(r, k))) << "from " << r << ", " << k;
          EXPECT_TRUE(outs[i]->intact_around());
        }
      }
    });
  }
}

// Messages of many slices each; a few slices are in flight at a time.
TEST_F(DeviceMessageOrder, LongOnesBetweenHostsAreUnderWayTogether) {
  run_ranks(places({1, 1}), patient(), [](World& world) {
    Communicator comm = world.world();
    constexpr std::size_t kCount = 1'000'001;
    const Rank me = comm.rank(), peer = 1 - me;
    std::vector<Values> mine, got(3, Values(kCount, -1));
    std::vector<Request> all;
    for (Rank k = 0; k < 3; ++k) mine.push_back(values(me + k * 100, peer, kCount));
    for (Values& to : got) all.push_back(comm.recv_async(to.data(), kCount, kElement, peer));
    for (const Values& from : mine)
      all.push_back(comm.send_async(from.data(), kCount, kElement, peer));
    for (Request& one : all) {
      const Status s = one.wait();
      EXPECT_TRUE(s.ok()) << s.to_string();
    }
    for (Rank k = 0; k < 3; ++k)
      EXPECT_TRUE(got[static_cast<std::size_t>(k)] == values(peer + k * 100, me, kCount)) << k;
  });
}

// A waiting receive blocks neither messages of other streams nor collectives.
TEST_F(DeviceMessageOrder, StreamsDoNotWaitForEachOther) {
  run_ranks(places({2}), patient(), [](World& world) {
    TestStream one(*device()), two(*device(), 1);
    Communicator receiver = world.world().on(one.get()), sender = world.world().on(two.get());
    const Rank peer = 1 - world.rank();
    constexpr std::size_t kCount = 200000;
    Buffer in(two, true, kCount), out(one, true, kCount);
    const Values mine = values(world.rank(), peer, kCount);
    Values got(kCount);
    in.put(mine);
    ASSERT_TRUE(receiver.recv(out.data(), kCount, kElement, peer).ok());
    out.get(got);
    // The peer's message is sent only then, on another stream, after a collective.
    ASSERT_TRUE(sender.barrier().ok());
    ASSERT_TRUE(sender.send(in.data(), kCount, kElement, peer).ok());
    two.wait();
    one.wait();
    EXPECT_EQ(got, values(peer, world.rank(), kCount));
  });
}

// The i-th message of a pair matches the i-th call, on a stream or not, on either side.
TEST_F(DeviceMessageOrder, MeetMessagesOutsideOfStreams) {
  run_ranks(places({2}), patient(), [](World& world) {
    TestStream work(*device());
    Communicator comm = world.world(), ordered = comm.on(work.get());
    constexpr std::size_t kCount = 5000;
    if (world.rank() == 0) {
      Brake brake(work.get());
      std::vector<Values> mine;
      for (int k = 0; k < 4; ++k) mine.push_back(values(k, 1, kCount));
      // The other calls start while those on the stream have not begun.
      ASSERT_TRUE(ordered.send(mine[0].data(), kCount, kElement, 1).ok());
      Request second = comm.send_async(mine[1].data(), kCount, kElement, 1);
      ASSERT_TRUE(ordered.send(mine[2].data(), kCount, kElement, 1).ok());
      Request fourth = comm.send_async(mine[3].data(), kCount, kElement, 1);
      brake.release();
      work.wait();
      EXPECT_TRUE(second.wait().ok() && fourth.wait().ok());
    } else {
      std::vector<Values> got(4, Values(kCount));
      ASSERT_TRUE(comm.recv(got[0].data(), kCount, kElement, 0).ok());
      ASSERT_TRUE(ordered.recv(got[1].data(), kCount, kElement, 0).ok());
      ASSERT_TRUE(ordered.recv(got[2].data(), kCount, kElement, 0).ok());
      ASSERT_TRUE(comm.recv(got[3].data(), kCount, kElement, 0).ok());
      work.wait();
      for (int k = 0; k < 4; ++k) EXPECT_EQ(got[static_cast<std::size_t>(k)], values(k, 1, kCount));
    }
  });
}

// Short messages, and messages read from the sender's memory.
class DeviceMessageGraphs : public testing::OnFakeDevice,
                            public ::testing::WithParamInterface<std::size_t> {};
INSTANTIATE_TEST_SUITE_P(Elements, DeviceMessageGraphs, ::testing::Values(3000, 9000));

TEST_P(DeviceMessageGraphs, Replay) {
  run_ranks(places({3}), patient(), [](World& world) {
    FakeDevice& fake = *fake_device();
    TestStream work(fake, world.rank() % FakeDevice::kGpus);
    Communicator comm = world.world().on(work.get());
    const Rank me = comm.rank(), next = (me + 1) % 3, last = (me + 2) % 3;
    const std::size_t kCount = GetParam();
    Buffer in(work, true, kCount), out(work, true, kCount), again(work, true, kCount);
    Values mine(kCount), got(kCount), called(kCount);
    fake.begin_capture(work.get());
    in.put(mine);
    ASSERT_TRUE(comm.send(in.data(), kCount, kElement, next).ok());
    ASSERT_TRUE(comm.recv(out.data(), kCount, kElement, last).ok());
    const Message back[] = {Message::to(last, out.data(), kCount, kElement),
                            Message::from(next, again.data(), kCount, kElement),
                            Message::to(me, nullptr, 0, kElement),
                            Message::from(me, nullptr, 0, kElement)};
    ASSERT_TRUE(comm.exchange(back).ok());
    again.get(got);
    const Status refused = comm.send_async(in.data(), kCount, kElement, next).wait();
    EXPECT_EQ(refused.code(), Code::kInvalidArgument);
    EXPECT_NE(refused.message().find("captured in a graph"), std::string::npos);
    const FakeDevice::Graph graph = fake.end_capture(work.get());
    for (int replay = 0; replay < 5; ++replay) {
      std::ranges::copy(values(me, replay, kCount), mine.begin());
      fake.launch_graph(graph, work.get());
      // Calls outside the graph are counted separately.
      ASSERT_TRUE(comm.send(in.data(), kCount, kElement, next).ok());
      ASSERT_TRUE(comm.recv(out.data(), kCount, kElement, last).ok());
      out.get(called);
      work.wait();
      EXPECT_EQ(got, values(me, replay, kCount));
      EXPECT_EQ(called, values(last, replay, kCount));
    }
  });
}

TEST_F(DeviceMessageOrder, ToItselfARankSendsInAnExchangeOnly) {
  run_ranks(places({2}), patient(), [](World& world) {
    TestStream work(*device());
    Communicator comm = world.world().on(work.get());
    DeviceBuffer data(work, 80);
    const Status s = comm.send(data.data(), 10, kElement, world.rank());
    EXPECT_EQ(s.code(), Code::kInvalidArgument);
    EXPECT_NE(s.message().find("send: 1 messages are sent to this rank itself and 0 received"),
              std::string::npos)
        << s.message();
    EXPECT_TRUE(comm.exchange({}).ok());
    EXPECT_TRUE(comm.barrier().ok());
  });
}

}  // namespace
}  // namespace weft
