// labels: multiproc
// ctest: whole
// Messages between GPUs of a host bypass host memory if both ranks support that; otherwise they are
// staged. Uses the fake device, whose memory processes can map.
#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "coll/gpu/messages.h"
#include "support/device/device_ranks.h"
#include "support/jobs/processes.h"
#include "support/jobs/ranks.h"

namespace weft {
namespace {

using testing::DeviceBuffer;
using testing::NoLateMemory;
using testing::patient;
using testing::places;
using testing::Processes;
using testing::TestStream;

// Ranks are processes, which map each other's memory. (Nothing may use the device before the fork,
// because its threads do not survive it.)
class DeviceOffers : public testing::OnFakeDevice {
 protected:
  static void on_ranks(const std::vector<Place>& where, const std::function<void(World&)>& body) {
    Processes job(2, std::chrono::seconds(20), [&](const JobSpec& spec) {
      World world(connect(spec), where[static_cast<std::size_t>(spec.rank)], patient());
      body(world);
      return ::testing::Test::HasFailure() ? 1 : 0;
    });
    ASSERT_TRUE(job.wait(std::chrono::seconds(60)));
    EXPECT_EQ(job.code(0), 0);
    EXPECT_EQ(job.code(1), 0);
  }
};

constexpr DType kOctet = DType::kUInt8;
const std::vector<std::size_t> kOfferSizes{0, 1, 333, DeviceMessages::kEagerBytes + 1, 3'000'001};

std::vector<std::byte> octets(Rank from, std::size_t count) {
  std::vector<std::byte> all(count);
  for (std::size_t i = 0; i < count; ++i)
    all[i] = static_cast<std::byte>(i * 7 + i / 251 + static_cast<std::size_t>(from) * 31 + 1);
  return all;
}

// Both ranks send and receive at once: on a stream, outside streams, and in an exchange. Returns
// how many copies to or from host memory both devices made.
std::size_t swap_all(World& world, TestStream& work, std::size_t count) {
  FakeDevice& fake = *fake_device();
  const Rank me = world.rank(), peer = 1 - me;
  Communicator comm = world.world(), ordered = comm.on(work.get());
  std::uint64_t copies = 0;
  for (int how = 0; how < 3; ++how) {
    DeviceBuffer in(work, count), out(work, count);
    in.put(octets(me + how, count));
    EXPECT_TRUE(comm.barrier().ok());
    const std::size_t before = fake.host_copies();
    EXPECT_TRUE(comm.barrier().ok());
    if (how == 0) {
      EXPECT_TRUE(ordered.send(in.data(), count, kOctet, peer).ok());
      EXPECT_TRUE(ordered.recv(out.data(), count, kOctet, peer).ok());
    } else if (how == 1) {
      Request sent = comm.send_async(in.data(), count, kOctet, peer);
      EXPECT_TRUE(comm.recv(out.data(), count, kOctet, peer).ok());
      EXPECT_TRUE(sent.wait().ok());
    } else {
      const Message both[] = {Message::to(peer, in.data(), count, kOctet),
                              Message::from(peer, out.data(), count, kOctet)};
      EXPECT_TRUE(ordered.exchange(both).ok());
    }
    work.wait();
    EXPECT_TRUE(comm.barrier().ok());
    copies += fake.host_copies() - before;
    EXPECT_TRUE(comm.barrier().ok());
    EXPECT_EQ(out.get(), octets(peer + how, count)) << count << " bytes, " << how;
    EXPECT_TRUE(in.intact_around() && out.intact_around());
  }
  EXPECT_TRUE(comm.all_reduce(&copies, &copies, 1, DType::kUInt64, RedOp::kSum).ok());
  return copies;
}

// Memory that processes map from each other; on different GPUs and on one GPU.
TEST_F(DeviceOffers, NoByteOfAMessagePassesHostMemory) {
  for (const int gpus : {2, 1}) {
    on_ranks(places({2}), [gpus](World& world) {
      TestStream work(*fake_device(), world.rank() % gpus);
      for (const std::size_t count : kOfferSizes) {
        // The first receive on a stream is too late for mapping.
        for (int k = 0; swap_all(world, work, count) > 0; ++k) ASSERT_LT(k, 10) << count;
      }
    });
  }
}

// Applies if GPUs do not reach each other, and between hosts.
TEST_F(DeviceOffers, ThroughHostMemoryWhereThereIsNoOtherWay) {
  for (const bool one_host : {true, false}) {
    fake_->separate(one_host);
    on_ranks(one_host ? places({2}) : places({1, 1}), [](World& world) {
      TestStream work(*fake_device(), world.rank());
      for (const std::size_t count : kOfferSizes)
        EXPECT_EQ(swap_all(world, work, count) > 0, count > 0) << count;
    });
  }
}

// Offered memory may be received into host memory, on and off a stream; memory that cannot be
// mapped is offered from a copy; and a message that is not offered is received on a GPU.
TEST_F(DeviceOffers, AnyMemoryMeetsAny) {
  on_ranks(places({2}), [](World& world) {
    FakeDevice& fake = *fake_device();
    TestStream work(fake, world.rank());
    Communicator comm = world.world();
    for (const std::size_t count : kOfferSizes) {
      const auto mine = octets(0, count);
      DeviceBuffer shared(work, count);
      auto* const hidden = static_cast<std::byte*>(fake.alloc_private(world.rank(), count + 1));
      std::vector<std::byte> host(count);
      std::byte* const memories[] = {shared.data(), hidden, host.data()};
      for (std::byte* const from : memories)
        for (std::byte* const to : memories)
          for (const bool ordered : {false, true}) {
            std::byte* const at = world.rank() == 0 ? from : to;
            Communicator c = ordered ? comm.on(work.get()) : comm;
            const auto before = world.rank() == 0 ? mine : std::vector<std::byte>(count);
            fake.copy(at, before.data(), count, work.gpu(), work.get());
            work.wait();
            EXPECT_TRUE(
                (world.rank() == 0 ? c.send(at, count, kOctet, 1) : c.recv(at, count, kOctet, 0))
                    .ok());
            std::vector<std::byte> got(count);
            fake.copy(got.data(), at, count, work.gpu(), work.get());
            work.wait();
            EXPECT_EQ(got, mine) << count << ", " << ordered;
            EXPECT_TRUE(comm.barrier().ok());
          }
      fake.free(hidden);
    }
  });
}

// Short sends complete without a receiver, like those of host memory.
TEST_F(DeviceOffers, AShortSendWaitsForNobody) {
  on_ranks(places({2}), [](World& world) {
    TestStream work(*fake_device(), world.rank());
    const Rank peer = 1 - world.rank();
    DeviceBuffer in(work, DeviceMessages::kEagerBytes), out(work, DeviceMessages::kEagerBytes);
    in.put(octets(world.rank(), in.size()));
    ASSERT_TRUE(world.world().send(in.data(), in.size(), kOctet, peer).ok());
    ASSERT_TRUE(world.world().recv(out.data(), out.size(), kOctet, peer).ok());
    EXPECT_EQ(out.get(), octets(peer, out.size()));
  });
}

// A rank dies that was to send, or to fetch an offer: its peer gets an error that names it, and the
// peer's stream continues.
TEST_F(DeviceOffers, ADeadRankIsNamed) {
  for (const Rank victim : {0, 1})
    for (const bool ordered : {false, true}) {
      testing::Shared<int> ready(1);
      Processes job(2, std::chrono::seconds(20), [&](const JobSpec& spec) {
        World world(connect(spec), places({2})[0], patient());
        TestStream work(*fake_device(), world.rank());
        DeviceBuffer data(work, 1'000'000);
        Communicator comm = ordered ? world.world().on(work.get()) : world.world();
        const auto call = [&] {
          return world.rank() == 0 ? comm.send_async(data.data(), data.size(), kOctet, 1)
                                   : comm.recv_async(data.data(), data.size(), kOctet, 0);
        };
        EXPECT_TRUE(call().wait().ok());
        if (world.rank() == victim)
          for (ready[0] = 1;;) pause();
        const Status s = call().wait();
        EXPECT_FALSE(s.ok());
        EXPECT_NE(s.message().find("rank " + std::to_string(victim)), std::string::npos)
            << s.to_string();
        work.wait();
        return ::testing::Test::HasFailure() ? 1 : 0;
      });
      ASSERT_TRUE(Processes::wait_until(std::chrono::seconds(30), [&] { return ready[0] == 1; }));
      std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the peer is in its call
      job.signal(victim, SIGKILL);
      ASSERT_TRUE(job.wait(std::chrono::seconds(60)));
      EXPECT_EQ(job.code(1 - victim), 0) << victim << ", " << ordered;
    }
}

// The receive's stream waits when the offer arrives: nothing is mapped, allocated or loaded, and
// the data still arrive. Once no stream waits, messages bypass host memory.
TEST_F(DeviceOffers, NothingIsMappedWhileAStreamWaits) {
  const NoLateMemory strict;
  on_ranks(places({2}), [](World& world) {
    FakeDevice& fake = *fake_device();
    TestStream work(fake, world.rank());
    Communicator comm = world.world();
    const Rank me = world.rank(), peer = 1 - me;
    DeviceBuffer in(work, 100'000), out(work, 100'000);
    in.put(octets(me, in.size()));
    const Message both[] = {Message::to(peer, in.data(), in.size(), kOctet),
                            Message::from(peer, out.data(), out.size(), kOctet)};
    std::uint64_t copies = 1;
    for (int k = 0; copies > 0 && k < 10; ++k) {
      EXPECT_TRUE(comm.barrier().ok());
      copies = fake.host_copies();
      EXPECT_TRUE(comm.on(work.get()).exchange(both).ok());
      work.wait();
      EXPECT_TRUE(comm.barrier().ok());  // the peer has received this rank's message
      copies = fake.host_copies() - copies;
      EXPECT_TRUE(k > 0 || copies == 2) << copies;
      EXPECT_EQ(out.get(), octets(peer, out.size()));
      EXPECT_TRUE(comm.all_reduce(&copies, &copies, 1, DType::kUInt64, RedOp::kSum).ok());
    }
    EXPECT_EQ(copies, 0u);
    EXPECT_TRUE(fake.late_calls().empty());
  });
}

}  // namespace
}  // namespace weft
