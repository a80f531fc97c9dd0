// Letters between ranks via rank 0, over sockets and between ranks of one process.
// labels: multiproc waits
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "tests/transport/rendezvous_helpers.h"
#include "transport/job/mailbox.h"

namespace weft {
namespace {

using namespace test;

// Waits for n letters and returns them.
std::vector<Letter> received(Mailbox& box, std::size_t n) {
  std::vector<Letter> all;
  EXPECT_TRUE(eventually([&] {
    for (Letter letter; box.receive(letter);) all.push_back(letter);
    return all.size() >= n;
  })) << all.size()
      << " letters of " << n;
  return all;
}

// Every rank writes to every rank, including itself: each letter arrives once, in its sender's
// order.
void exchange(std::vector<Outcome>& jobs) {
  const int n = static_cast<int>(jobs.size());
  constexpr int kEach = 20;
  on_each(jobs, [&](Job& job) {
    const auto first = job.open_mailbox(), second = job.open_mailbox();
    for (int i = 0; i < kEach; ++i)
      for (Rank to = 0; to < n; ++to) {
        first->send(to, "first " + std::to_string(i));
        second->send(to, std::string(static_cast<std::size_t>(i) * 100, 'x'));
      }
    std::vector<int> next(static_cast<std::size_t>(n));
    for (const Letter& letter : received(*first, static_cast<std::size_t>(n * kEach)))
      EXPECT_EQ(letter.bytes,
                "first " + std::to_string(next[static_cast<std::size_t>(letter.from)]++));
    for (const int count : next) EXPECT_EQ(count, kEach);
    EXPECT_FALSE(first->waiting());
    EXPECT_EQ(received(*second, static_cast<std::size_t>(n * kEach)).size(),
              static_cast<std::size_t>(n * kEach));
    job.all_gather("");
  });
}

TEST(Letters, ReachEveryRankOverSockets) {
  auto jobs = connect_all(Specs(4).specs);
  exchange(jobs);
  leave_all(jobs);
}

TEST(Letters, ReachEveryRankOfAProcess) {
  std::vector<Outcome> jobs;
  for (auto& job : local_jobs(3)) jobs.push_back({std::move(job), ""});
  exchange(jobs);
  leave_all(jobs);
}

TEST(Letters, WakeWhoSleeps) {
  auto jobs = connect_all(Specs(3).specs);
  const auto from = jobs[1].job->open_mailbox(), to = jobs[2].job->open_mailbox();
  pollfd sleeps{to->fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&sleeps, 1, 0), 0);
  from->send(2, "wake up");
  EXPECT_EQ(::poll(&sleeps, 1, 30'000), 1);
  Letter letter;
  EXPECT_TRUE(to->receive(letter));
  EXPECT_EQ(letter.from, 1);
  EXPECT_EQ(letter.bytes, "wake up");
  EXPECT_EQ(::poll(&sleeps, 1, 0), 0);
  leave_all(jobs);
}

// The letters of a flood are limited; letters of other senders still arrive.
TEST(Letters, OfOneSenderDoNotFillABox) {
  auto jobs = connect_all(Specs(3).specs);
  const auto flood = jobs[1].job->open_mailbox(), other = jobs[0].job->open_mailbox(),
             to = jobs[2].job->open_mailbox();
  for (int i = 0; i < 2000; ++i) flood->send(2, "and one more");
  on_each(jobs, [](Job& job) { job.all_gather(""); });  // rank 0 has forwarded them
  other->send(2, "hello");
  bool heard = false;
  std::size_t from_one = 0;
  EXPECT_TRUE(eventually([&] {
    for (Letter letter; to->receive(letter);) {
      heard = heard || letter.from == 0;
      from_one += letter.from == 1;
    }
    return heard;
  }));
  EXPECT_GE(from_one, 1u);
  EXPECT_LT(from_one, 2000u);
  leave_all(jobs);
}

// A mailbox may outlive its job; its job's letters do not reach the job after shrink().
TEST(Letters, EndWithTheirJob) {
  auto jobs = connect_all(Specs(3).specs);
  on_each(jobs, [](Job& job) { job.all_gather(""); });
  std::vector<std::unique_ptr<Mailbox>> old;
  for (Outcome& o : jobs) old.push_back(o.job->open_mailbox());
  jobs[2].job.reset();
  ASSERT_TRUE(eventually([&] { return jobs[0].job->failed() && jobs[1].job->failed(); }));
  auto next = shrink_all(std::span(jobs).first(2));
  const auto a = next[0].job->open_mailbox(), b = next[1].job->open_mailbox();
  old[1]->send(0, "of before");
  old[2]->send(0, "of one that is gone");
  b->send(0, "of now");
  const std::vector<Letter> come = received(*a, 1);
  ASSERT_EQ(come.size(), 1u);
  EXPECT_EQ(come[0].bytes, "of now");
  EXPECT_FALSE(old[0]->waiting());
  leave_all(next);
  leave_all(jobs);
}

}  // namespace
}  // namespace weft
