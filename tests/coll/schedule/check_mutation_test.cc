// Tests the checker: it must reject every wrong mutant of every algorithm and no correct one. An
// independent interpreter (interpreter.h) decides which mutants are correct.
// labels: sim
// ctest: whole
// sanitize: no
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>

#include "coll/schedule/check.h"
#include "tests/coll/interpreter.h"
#include "tests/coll/schedules.h"

namespace weft {
namespace {

using testing::Case;
using testing::Interpreter;
using testing::Random;

// One random change to one step of one rank, or the same change on all ranks. Empty if nothing
// changed.
std::optional<std::string> mutate(std::vector<Schedule>& all, Random& random) {
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  const int chosen = below(static_cast<int>(all.size()));
  const int length = static_cast<int>(all[chosen].steps.size());
  if (length == 0) return std::nullopt;
  const int i = below(length), to = below(length), kind = below(10);
  const int sign = below(2) == 0 ? 1 : -1;
  const auto op = static_cast<Op>(below(3));
  const Rank peer = below(static_cast<int>(all.size()));
  const bool everywhere = below(3) == 0;
  constexpr const char* kKinds[] = {"drop",  "duplicate", "swap with the next", "peer", "chunk",
                                    "count", "channel",   "operation",          "move", "joined"};
  bool changed = false;
  for (Schedule& s : all) {
    if ((!everywhere && s.rank != chosen) || i >= static_cast<int>(s.steps.size())) continue;
    const std::vector<Step> before = s.steps;
    const auto at = s.steps.begin() + i;
    switch (kind) {
      case 0:
        s.steps.erase(at);
        break;
      case 1:
        s.steps.insert(at, Step(*at));
        break;
      case 2:
        if (at + 1 != s.steps.end()) std::swap(*at, *(at + 1));
        break;
      case 3:
        at->peer = everywhere ? (at->peer + 1) % s.nranks : peer;
        break;
      case 4:
        at->at.first += sign;
        break;
      case 5:
        at->at.count += sign;
        break;
      case 6:
        at->channel = 1 - at->channel;
        break;
      case 7:
        // On all ranks, sends stay sends, so that the transfers still match.
        if (!everywhere)
          at->op = op;
        else if (at->op != Op::kSend)
          at->op = at->op == Op::kRecv ? Op::kRecvReduce : Op::kRecv;
        break;
      case 9:
        at->joined = !at->joined;
        break;
      case 8: {
        const Step step = *at;
        s.steps.erase(at);
        s.steps.insert(s.steps.begin() + std::min<int>(to, s.steps.size()), step);
        break;
      }
    }
    changed |= s.steps != before;
  }
  if (!changed) return std::nullopt;
  return fmt::format("{} at step {} of {}", kKinds[kind], i,
                     everywhere ? "all ranks" : fmt::format("rank {}", chosen));
}

// Splits each chunk in two and each step into one per half, which separates runs of recv_reduce.
void refine(std::vector<Schedule>& all) {
  for (Schedule& s : all) {
    const std::vector<Step> steps = std::exchange(s.steps, {});
    for (const Step& step : steps)
      for (int half : {0, 1})
        s.steps.push_back({step.op,
                           step.peer,
                           step.channel,
                           {2 * step.at.first + half * step.at.count, step.at.count},
                           step.joined});
    std::vector<int> block(2 * s.nchunks);
    for (int c = 0; c < 2 * s.nchunks; ++c) block[c] = s.block.empty() ? c / 2 : s.block[c / 2];
    s.block = block;
    std::vector<int> place;
    for (const int p : s.place)
      for (int half : {0, 1}) place.push_back(p < 0 ? p : 2 * p + half);
    s.place = place;
    s.nchunks *= 2;
  }
}

// A barrier (derived from an all-pairs one) among random transfers, slightly reordered.
std::vector<Schedule> random_barrier(Random& random) {
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  const int n = 2 + below(3);
  auto all =
      testing::build_all(*find_algorithm(Collective::kBarrier, "direct"), testing::on_one_host(n));
  const int nchunks = 1 + below(3);
  for (Schedule& s : all) s.nchunks = nchunks;
  const int transfers = 1 + below(10);
  for (int k = 0; k < transfers; ++k) {
    const Rank from = below(n), to = (from + 1 + below(n - 1)) % n;
    const int channel = below(2), first = below(nchunks);
    const Chunks at{first, 1 + below(nchunks - first)};
    all[from].send(to, at, channel);
    below(2) == 0 ? all[to].recv(from, at, channel) : all[to].recv_reduce(from, at, channel);
  }
  for (Schedule& s : all)
    for (int swaps = below(4); swaps > 0; --swaps) {
      const int i = below(static_cast<int>(s.steps.size()) - 1);
      const Step &a = s.steps[i], &b = s.steps[i + 1];
      const bool same_channel =
          a.peer == b.peer && a.channel == b.channel && (a.op == Op::kSend) == (b.op == Op::kSend);
      if (!same_channel) std::swap(s.steps[i], s.steps[i + 1]);
    }
  return all;
}

// Checks that need no interpreter.
bool well_formed(const std::vector<Schedule>& all) {
  for (const Schedule& s : all)
    for (std::size_t i = 0; i < s.steps.size(); ++i) {
      const Step& step = s.steps[i];
      if (step.peer == s.rank || step.at.first < 0 || step.at.count < 1 ||
          step.at.end() > s.nchunks)
        return false;
      if (step.joined &&
          (i == 0 || step.op == Op::kRecvReduce || s.steps[i - 1].op != step.op ||
           s.steps[i - 1].peer != step.peer || s.steps[i - 1].channel != step.channel))
        return false;
    }
  return true;
}

struct Counts {
  int rejected = 0, accepted = 0, deadlocks = 0, orders = 0;
};

// The checker and the interpreter must agree.
void compare(const Case& c, const std::vector<Schedule>& all, const std::string& what,
             Random& random, Counts& counts) {
  const std::string fault = check(c.collective, all, {.credits = c.credits, .root = c.root});
  bool right = well_formed(all);
  for (int run = 0; right && run < 2; ++run) right = Interpreter(all, c, random).right();
  if (fault.empty() != right)
    for (const Schedule& s : all) std::fputs(to_string(s).c_str(), stderr);
  ASSERT_EQ(fault.empty(), right) << name(c.collective) << ", " << c.credits << " credits, " << what
                                  << "\nthe checker says: " << fault;
  ++(right ? counts.accepted : counts.rejected);
  counts.deadlocks += fault.starts_with("deadlock");
  counts.orders += fault.find("another order") != fault.npos;
}

void try_mutants(const Algorithm& algorithm, const Shape& shape, Random& random, Counts& counts) {
  constexpr int kMutants = 40;
  const auto original = testing::build_all(algorithm, shape);
  for (int m = 0; m < kMutants; ++m) {
    auto all = original;
    std::string what = testing::full_name(algorithm);
    if (m % 4 == 0) {
      refine(all);
      what += ", refined";
    }
    if (m != 0) {  // the first is the refined schedule, unchanged
      const auto mutation = mutate(all, random);
      if (!mutation) continue;
      what += ", " + *mutation;
    }
    for (int credits : {0, 1, 2, 1000})
      ASSERT_NO_FATAL_FAILURE(
          compare({algorithm.collective, shape.root, credits}, all, what, random, counts));
  }
}

TEST(CheckMutation, RejectsExactlyTheWrongMutants) {
  Random random(20261121);
  Counts counts;
  for (const Algorithm& a : algorithms()) {
    for (int n : {2, 3, 4, 5, 6, 7, 8}) {
      Shape shape = testing::on_one_host(n);
      shape.root = n / 2;
      ASSERT_NO_FATAL_FAILURE(try_mutants(a, shape, random, counts));
    }
    for (auto [hosts, per_host] : {std::pair{2, 2}, {3, 2}, {2, 3}, {4, 2}}) {
      for (Shape shape :
           {testing::uniform(hosts, per_host), testing::round_robin(hosts, per_host)}) {
        shape.root = shape.nranks - 1;
        ASSERT_NO_FATAL_FAILURE(try_mutants(a, shape, random, counts));
      }
    }
  }
  // The test proves nothing unless many mutants are rejected and many accepted.
  EXPECT_GT(counts.rejected, 10000);
  EXPECT_GT(counts.accepted, 1000);
  EXPECT_GT(counts.orders, 100);
}

TEST(CheckMutation, RejectsExactlyTheRandomSchedulesThatHang) {
  Random random(20261122);
  Counts counts;
  for (int k = 0; k < 8000; ++k) {
    const auto all = random_barrier(random);
    for (int credits : {0, 1, 2, 1000})
      ASSERT_NO_FATAL_FAILURE(
          compare({Collective::kBarrier, 0, credits}, all, "random", random, counts));
  }
  EXPECT_GT(counts.deadlocks, 1000);
  EXPECT_GT(counts.accepted, 1000);
}

TEST(CheckMutation, TheInterpreterItselfAcceptsTheOriginals) {
  Random random(1);
  for (const Algorithm& a : algorithms())
    for (int credits : {0, 1, 2, 1000})
      for (const Shape& shape : {testing::on_one_host(5), testing::uniform(3, 2)})
        EXPECT_TRUE(
            Interpreter(testing::build_all(a, shape), {a.collective, shape.root, credits}, random)
                .right())
            << testing::full_name(a) << ", " << credits << " credits";
}

}  // namespace
}  // namespace weft
