// Accepted UDP datagrams: only those that the peer signed for this rank and rail, from the peer's
// own socket, each once.
// sanitize: address threads
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "support/fakes/forged_job.h"
#include "transport/control/address.h"
#include "transport/control/hmac.h"
#include "transport/control/socket.h"
#include "transport/rails/datagram_channel_udp.h"

namespace weft::testing {
namespace {

constexpr int kRanks = 4, kRails = 2;

Topology hosts() {
  Nic lo;
  lo.name = lo.netdev = "lo";
  lo.address = "127.0.0.1";
  lo.up = true;
  std::vector<Place> places(kRanks);
  for (std::size_t r = 0; r < places.size(); ++r) {
    places[r].host = "host" + std::to_string(r);
    places[r].rails = {lo, lo};
  }
  return Topology(places);
}

Fd datagram_socket() {
  Fd fd = Fd::from([] { return socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); });
  Address here;
  EXPECT_TRUE(parse_address("127.0.0.1", 0, here));
  EXPECT_EQ(bind(fd.get(), reinterpret_cast<sockaddr*>(&here.bytes), here.length), 0);
  return fd;
}

// Rank 0's channel, and sockets of the other ranks. All ranks have the same nonce.
class Channel : public ::testing::Test {
 protected:
  void SetUp() override {
    for (Fd& fd : sockets_) fd = datagram_socket();
    ForgedJob job(kRanks, [this](Rank r, const std::string& right) {
      std::string text = right.substr(0, right.find(' '));
      for (int rail = 0; rail < kRails; ++rail)
        text += " " + std::to_string(port_of(at(r, rail).get()));
      return text;
    });
    std::string why;
    channel_ = make_udp_paths(job, hosts(), why);
    ASSERT_TRUE(channel_) << why;
    said_ = job.said;
    nonce_ = said_.substr(0, said_.find(' '));
    std::istringstream rest(said_.substr(nonce_.size()));
    for (std::uint16_t& port : ports_) rest >> port;
  }
  Fd& at(Rank r, int rail) { return sockets_[static_cast<std::size_t>(r * kRails + rail)]; }

  struct Of {
    std::uint32_t from = 1, to = 0, rail = 0, zero = 0;
    std::uint64_t number = 1;
  };
  // A datagram that `by` signs for `for_rank`.
  std::string datagram(const Of& of, Rank by, Rank for_rank, std::string_view text) {
    std::string all(reinterpret_cast<const char*>(&of), sizeof of);
    all += text;
    const std::string key = derive_key(
        derive_key("forged", "datagrams of rails"),
        std::to_string(by) + " " + nonce_ + " to " + std::to_string(for_rank) + " " + nonce_);
    return all + hmac_sha256(key, all).substr(0, 16);
  }
  void say(const std::string& bytes, Rank from = 1, int from_rail = 0, int rail = 0) {
    Address to;
    ASSERT_TRUE(parse_address("127.0.0.1", ports_[static_cast<std::size_t>(rail)], to));
    ASSERT_EQ(sendto(at(from, from_rail).get(), bytes.data(), bytes.size(), 0,
                     reinterpret_cast<sockaddr*>(&to.bytes), to.length),
              static_cast<ssize_t>(bytes.size()));
  }
  // The text of the next datagram; "" if there is none.
  std::string hear() {
    Datagram d;
    for (int i = 0; i < 4; ++i)
      if (channel_->receive(d))
        return std::to_string(d.from) + "/" + std::to_string(d.rail) + d.bytes;
    return "";
  }

  Fd sockets_[kRanks * kRails];
  std::unique_ptr<DatagramChannel> channel_;
  std::string said_, nonce_;
  std::uint16_t ports_[kRails] = {};
};

TEST_F(Channel, TakesThePeersOwnWords) {
  say(datagram({}, 1, 0, "one"));
  EXPECT_EQ(hear(), "1/0one");
  say(datagram({.number = 7}, 1, 0, "later"));
  EXPECT_EQ(hear(), "1/0later");
  say(datagram({.rail = 1, .number = 2}, 1, 0, "other rail"), 1, 1, 1);
  EXPECT_EQ(hear(), "1/1other rail");
  say(datagram({.from = 3}, 3, 0, ""), 3);
  EXPECT_EQ(hear(), "3/0");
}

// Ranks exchange a nonce and ports at set-up, but neither the job's key nor a pair's.
TEST_F(Channel, NoKeyTravels) {
  EXPECT_EQ(said_.size(), 2 * 8 + 1 + std::string_view(said_).substr(17).size());
  EXPECT_EQ(nonce_.size(), 16u);
  const std::string base = derive_key("forged", "datagrams of rails");
  EXPECT_EQ(said_.find(base), std::string::npos);
  EXPECT_EQ(said_.find(hex(base)), std::string::npos);
}

TEST_F(Channel, TakesEachOnce) {
  const std::string one = datagram({.number = 5}, 1, 0, "one");
  say(one);
  EXPECT_EQ(hear(), "1/0one");
  say(one);
  EXPECT_EQ(hear(), "");
  say(datagram({.number = 4}, 1, 0, "from before"));
  EXPECT_EQ(hear(), "");
}

// Rank 3's first note to rank 2, replayed to rank 0; a datagram for another rail; rank 0's own.
TEST_F(Channel, TakesNothingThatWasForAnother) {
  say(datagram({.from = 3, .to = 2}, 3, 2, "n"), 3);
  EXPECT_EQ(hear(), "");
  say(datagram({.from = 3, .to = 0}, 3, 2, "n"), 3);
  EXPECT_EQ(hear(), "");
  say(datagram({.rail = 0}, 1, 0, "n"), 1, 1, 1);
  EXPECT_EQ(hear(), "");
  say(datagram({.rail = 1}, 1, 0, "n"), 1, 0, 0);
  EXPECT_EQ(hear(), "");
  say(datagram({.from = 1}, 0, 1, "n"));
  EXPECT_EQ(hear(), "");
  say(datagram({.from = 2}, 1, 0, "n"), 2);
  EXPECT_EQ(hear(), "");
}

TEST_F(Channel, TakesNothingFromAnotherSocket) {
  say(datagram({}, 1, 0, "n"), 2);
  EXPECT_EQ(hear(), "");
  say(datagram({}, 1, 0, "n"), 1, 1);
  EXPECT_EQ(hear(), "");
  say(datagram({}, 1, 0, "n"));
  EXPECT_EQ(hear(), "1/0n");
}

TEST_F(Channel, TakesNothingThatWasChanged) {
  const std::string good = datagram({}, 1, 0, "note");
  for (std::size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 1);
    say(bad);
    say(good.substr(0, i));
  }
  // Multiplied by the number of rails, it wraps around to a small value.
  say(datagram({.from = 1u << 31}, 1, 0, "n"));
  EXPECT_EQ(hear(), "");
  say(good);
  EXPECT_EQ(hear(), "1/0note");
}

// A call reads a limited number of datagrams, whatever arrives meanwhile.
TEST_F(Channel, AFloodOfStrangersHasAnEnd) {
  for (int i = 0; i < 100; ++i) say(std::string(50, 'x'), 2);
  say(datagram({}, 1, 0, "note"));
  Datagram d;
  EXPECT_FALSE(channel_->receive(d));
  ASSERT_TRUE(channel_->receive(d));
  EXPECT_EQ(d.bytes, "note");
}

// Between ranks, like in Rails.
TEST(ChannelOfRanks, BothDirectionsOnEachRail) {
  auto jobs = local_jobs(kRanks);
  std::vector<std::unique_ptr<DatagramChannel>> all(kRanks);
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < kRanks; ++r)
    threads.emplace_back([&, r] {
      std::string why;
      all[r] = make_udp_paths(*jobs[r], hosts(), why);
    });
  for (auto& t : threads) t.join();
  for (int from = 0; from < kRanks; ++from)
    for (int to = 0; to < kRanks; ++to)
      for (int rail = 0; rail < kRails && from != to; ++rail)
        for (const std::string text : {"once", "again"}) {
          all[static_cast<std::size_t>(from)]->send(to, rail, text);
          Datagram d;
          ASSERT_TRUE(all[static_cast<std::size_t>(to)]->receive(d));
          EXPECT_EQ(d.from, from);
          EXPECT_EQ(d.rail, rail);
          EXPECT_EQ(d.bytes, text);
        }
  for (auto& job : jobs) job->leave();
}

}  // namespace
}  // namespace weft::testing
