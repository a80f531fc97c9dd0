// Lost letters, on the fake device: connections are still made, closed and resumed.
// ctest: alone
// labels: waits
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "support/fakes/fake_verbs.h"
#include "support/fakes/forged_job.h"
#include "transport/conformance.h"
#include "transport/verbs/connections/letters.h"
#include "transport/verbs/ring.h"
#include "transport/verbs/verbs.h"

namespace weft::testing {
namespace {

// Lost letters: the first of each kind between each pair.
struct Losses {
  std::mutex mutex;
  std::set<std::tuple<Rank, Rank, VerbsLetter>> lost;
  bool loses(Rank from, Rank to, std::string_view letter) {
    VerbsLetterFront front;
    std::memcpy(&front, letter.data(), sizeof front);
    const std::lock_guard lock(mutex);
    return lost.insert({from, to, front.what}).second;
  }
};

class LossyMailbox final : public Mailbox {
 public:
  LossyMailbox(std::unique_ptr<Mailbox> below, Rank me, Losses& losses)
      : below_(std::move(below)), me_(me), losses_(losses) {}
  void send(Rank to, std::string_view bytes) noexcept override {
    if (!losses_.loses(me_, to, bytes)) below_->send(to, bytes);
  }
  bool receive(Letter& letter) noexcept override { return below_->receive(letter); }
  bool waiting() const noexcept override { return below_->waiting(); }
  int fd() const noexcept override { return below_->fd(); }

 private:
  std::unique_ptr<Mailbox> below_;
  Rank me_;
  Losses& losses_;
};

class LossyJob final : public Job {
 public:
  LossyJob(Job& below, Losses& losses) : below_(below), losses_(losses) {}
  Rank rank() const override { return below_.rank(); }
  int size() const override { return below_.size(); }
  std::vector<std::string> all_gather(std::string_view mine) override {
    return below_.all_gather(mine);
  }
  std::unique_ptr<Mailbox> open_mailbox() override {
    return std::make_unique<LossyMailbox>(below_.open_mailbox(), rank(), losses_);
  }
  bool failed() const noexcept override { return below_.failed(); }
  Status failure() const override { return below_.failure(); }
  void report(const Status& why, const Scope& scope) noexcept override {
    below_.report(why, scope);
  }
  std::vector<Rank> silent(std::chrono::milliseconds age) const override {
    return below_.silent(age);
  }
  void leave() noexcept override {}
  void abort(const char*) noexcept override {}
  std::unique_ptr<Job> shrink() override { return nullptr; }

 private:
  Job& below_;
  Losses& losses_;
};

class VerbsLostLetters : public ::testing::Test {
 protected:
  void SetUp() override { fake_.wired = true; }
  void TearDown() override {
    fake_.wired = false;
    unsetenv("WEFT_VERBS_CONNECTIONS");
    EXPECT_TRUE(fake_.pairs.empty());
  }
  Net net(int n) {
    Nic rail;
    rail.name = "fake";
    rail.rdma = rail.up = true;
    return Net(make_in_threads(n, [&](Job& job, Rank) {
      LossyJob lossy(job, losses_);
      return make_verbs_transport(lossy, separate_hosts(n, rail), rail);
    }));
  }
  static void pass(Net& net, Rank a, Rank b, std::uint64_t tag, std::size_t bytes) {
    Buffer from(bytes), to(bytes);
    from.fill(tag);
    net[a].send(b, tag, from);
    net[b].recv(a, tag, to);
    ASSERT_TRUE(net.finish());
    EXPECT_TRUE(has_pattern(to.data(), bytes, tag));
  }
  bool lost(VerbsLetter what) {
    for (const auto& one : losses_.lost)
      if (std::get<2>(one) == what) return true;
    return false;
  }
  FakeVerbs& fake_ = FakeVerbs::get();
  Losses losses_;
};

TEST_F(VerbsLostLetters, OfPeersThatConnectAndCloseAreSaidAgain) {
  setenv("WEFT_VERBS_CONNECTIONS", "1", 1);
  Net three = net(3);
  std::uint64_t tag = 1;
  for (Rank a = 0; a < 3; ++a) {
    pass(three, a, (a + 1) % 3, tag, 300);
    pass(three, (a + 1) % 3, a, tag + 1, 30'000);
    tag += 2;
  }
  for (const VerbsLetter what : {VerbsLetter::kInvite, VerbsLetter::kReady, VerbsLetter::kClose})
    EXPECT_TRUE(lost(what)) << static_cast<int>(what) << ": nothing is tested";
}

// Both ends invite each other at the same time, and all their first letters are lost.
TEST_F(VerbsLostLetters, OfPeersThatInviteEachOtherAreSaidAgain) {
  Net two = net(2);
  Buffer a(500), b(500), to_a(500), to_b(500);
  a.fill(1), b.fill(2);
  two[0].send(1, 1, a), two[1].send(0, 2, b);
  two[1].recv(0, 1, to_b), two[0].recv(1, 2, to_a);
  ASSERT_TRUE(two.finish());
  EXPECT_TRUE(has_pattern(to_b.data(), 500, 1) && has_pattern(to_a.data(), 500, 2));
}

TEST_F(VerbsLostLetters, OfAConnectionThatIsResumedAreSaidAgain) {
  Net two = net(2);
  pass(two, 0, 1, 1, 100);
  losses_.lost.clear();  // loses the following letters, too
  Buffer from(3'000'000), to(3'000'000);
  from.fill(2);
  two[0].send(1, 2, from, 7);
  two[1].recv(0, 2, to, 7);
  ASSERT_TRUE(two.until([&] { return !to.clean(); }));
  two[0].cancel(7);
  two[1].cancel(7);
  pass(two, 0, 1, 3, 100);
  pass(two, 1, 0, 4, 200'000);
  EXPECT_TRUE(lost(VerbsLetter::kInvite));
}

}  // namespace
}  // namespace weft::testing
