// Schedules, their checker and their simulator: golden table, formulas, mutants.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "support/jobs/setting.h"
#include "train/pipeline/checker.h"
#include "train/pipeline/explain.h"
#include "train/pipeline/simulator.h"

namespace weft::train {
namespace {

std::vector<PipelineShape> shapes(const std::string& name, int p_max, int m_max) {
  std::vector<PipelineShape> all;
  for (int p = 1; p <= p_max; ++p)
    for (int m = 1; m <= m_max; ++m)
      for (int v = 1; v <= (name == "interleaved" ? 3 : 1); ++v)
        if (name != "interleaved" || m % p == 0) all.push_back({p, m, v});
  return all;
}

TEST(PipelineSchedule, DataFlowTakesElevenSteps) {
  const auto s = make_pipeline_schedule("dataflow", {4, 4, 1});
  const auto steps = steps_of(s);
  std::vector<int> active;
  for (const auto& step : steps) active.push_back(static_cast<int>(100 * step.active));
  EXPECT_EQ(active, (std::vector<int>{25, 50, 75, 100, 75, 50, 75, 100, 75, 50, 25}));
}

TEST(PipelineSchedule, DataFlowStepsAreTheFormulas) {
  for (const auto& x : shapes("dataflow", 6, 9)) {
    const auto steps = steps_of(make_pipeline_schedule("dataflow", x));
    const int p = x.ranks, m = x.microbatches;
    ASSERT_EQ(static_cast<int>(steps.size()), m + 2 * p - 1) << p << " " << m;
    std::set<std::tuple<int, int, int, int>> seen, want;
    for (std::size_t t = 0; t < steps.size(); ++t)
      for (const auto& actions : steps[t].of_rank)
        for (const auto& a : actions)
          seen.insert({static_cast<int>(a.op), a.microbatch, a.stage, static_cast<int>(t)});
    for (int i = 0; i < m; ++i)
      for (int st = 0; st < p; ++st) {
        want.insert({0, i, st, i + st});
        want.insert({1, i, st, i + 2 * p - 1 - st});
      }
    EXPECT_EQ(seen, want) << p << " " << m;
  }
}

TEST(PipelineSchedule, AllShapesAreProved) {
  for (const auto& name : pipeline_schedule_names())
    for (const auto& x : shapes(name, 6, 12))
      EXPECT_EQ(check(make_pipeline_schedule(name, x)), "")
          << name << " p " << x.ranks << " m " << x.microbatches << " v " << x.chunks;
}

TEST(PipelineSchedule, ForwardAloneIsProvedForAllShapes) {
  for (const auto& x : shapes("interleaved", 6, 12)) {
    PipelineSchedule s = make_forward_schedule(x);
    EXPECT_EQ(check(s), "") << x.ranks << " " << x.microbatches << " " << x.chunks;
    for (const auto& actions : s.of_rank)
      for (const PipelineAction& a : actions)
        EXPECT_TRUE(a.op == PipeOp::kForward || a.op == PipeOp::kSendActivation ||
                    a.op == PipeOp::kRecvActivation);
    // Schedules without one micro-batch, and without the required backward passes.
    s.of_rank[0].erase(s.of_rank[0].begin());
    EXPECT_NE(check(s), "");
    s = make_forward_schedule(x);
    s.forward_only = false;
    EXPECT_NE(check(s), "");
  }
}

TEST(PipelineSchedule, BubblesAreTheFormulas) {
  for (const auto& name : pipeline_schedule_names())
    for (const auto& x : shapes(name, 8, 32)) {
      const auto s = make_pipeline_schedule(name, x);
      const double formula = bubble_formula(s);
      if (formula < 0) continue;
      // Integer times, so that busy and total time are exact.
      EXPECT_NEAR(simulate(s, {1, 1, 1, 0, {}}).bubble, formula, 1e-12)
          << name << " p " << x.ranks << " m " << x.microbatches << " v " << x.chunks;
    }
}

TEST(PipelineSchedule, ZeroBubbleWaitsAThirdOf1F1B) {
  for (int p = 2; p <= 8; ++p)
    for (int m = p; m <= 32; m += 3) {
      const double zero = simulate(make_pipeline_schedule("zero-bubble", {p, m, 1}), {}).time;
      const double f1b1 = simulate(make_pipeline_schedule("1f1b", {p, m, 1}), {}).time;
      EXPECT_EQ(3 * (zero - 3 * m), f1b1 - 3 * m) << p << " " << m;  // idle time per rank
    }
}

TEST(PipelineSchedule, MemoryIsWhatTheScheduleIsKnownFor) {
  for (int p = 1; p <= 6; ++p)
    for (int m = 1; m <= 12; ++m) {
      const auto held = [&](const char* name) {
        return peak_held(make_pipeline_schedule(name, {p, m, 1}));
      };
      for (int r = 0; r < p; ++r) {
        const auto at = static_cast<std::size_t>(r);
        EXPECT_EQ(held("gpipe")[at], m);
        EXPECT_EQ(held("1f1b")[at], std::min(m, p - r));
        EXPECT_EQ(held("sequential")[at], 1);
        EXPECT_LE(held("zero-bubble")[at], p);  // no more than rank 0 of 1f1b
      }
    }
}

// Rank 0 receives a gradient before it sends the activation on which the gradient depends.
TEST(PipelineSchedule, ARankThatWaitsForEverIsNamed) {
  auto s = make_pipeline_schedule("1f1b", {2, 2, 1});
  auto& first = s.of_rank[0];
  const auto gradient = std::find_if(first.begin(), first.end(), [](const PipelineAction& a) {
    return a.op == PipeOp::kRecvGradient;
  });
  std::rotate(first.begin(), gradient, gradient + 1);
  EXPECT_THAT(check(s), ::testing::HasSubstr("rank 0, action 0 ("));
  EXPECT_THAT(check(s), ::testing::HasSubstr("waits for ever"));
}

TEST(PipelineSchedule, RefusesWhatCannotBe) {
  const auto message = [](const char* name, PipelineShape x) {
    try {
      make_pipeline_schedule(name, x);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("accepted");
  };
  EXPECT_NE(message("2f2b", {2, 2, 1}).find("zero-bubble"), std::string::npos);
  EXPECT_NE(message("interleaved", {4, 6, 2}).find("take 8"), std::string::npos);
  EXPECT_NE(message("1f1b", {4, 6, 2}).find("interleaved"), std::string::npos);
  EXPECT_NE(message("1f1b", {0, 6, 1}).find("at least 1"), std::string::npos);
}

TEST(PipelineSimulator, MessagesAndHeavyStagesTakeTheirTime) {
  // One micro-batch, two stages: F0, message, F1, B1, message, B0.
  const auto s = make_pipeline_schedule("1f1b", {2, 1, 1});
  EXPECT_EQ(simulate(s, {10, 20, 30, 5, {}}).time, 2 * (10 + 20 + 30) + 2 * 5);
  EXPECT_EQ(simulate(s, {10, 20, 30, 5, {1, 3}}).time, 4 * (10 + 20 + 30) + 2 * 5);
  // The sixteen messages of gpipe from rank 0 to 1 do not overlap.
  const auto g = make_pipeline_schedule("gpipe", {2, 16, 1});
  EXPECT_EQ(simulate(g, {1, 1, 0, 10, {}}).time, 1 + 16 * 10 + 1 + 1 + 16 * 10 + 1);
}

TEST(PipelineExplain, ShowsStepsMessagesAndShares) {
  const std::string text = explain_pipeline(make_pipeline_schedule("dataflow", {4, 4, 1}));
  EXPECT_NE(text.find("active %: 25/50/75/100/75/50/75/100/75/50/25"), std::string::npos) << text;
  // Step 2 sends to the third rank; step 4 sends three results (some texts draw this differently).
  EXPECT_NE(text.find("50 %  0>1 F1, 1>2 F0\n"), std::string::npos) << text;
  EXPECT_NE(text.find("100 %  0>1 F3, 1>2 F2, 2>3 F1\n"), std::string::npos) << text;
  for (const auto& name : pipeline_schedule_names())
    EXPECT_NE(explain_pipeline(make_pipeline_schedule(name, {3, 3, name == "interleaved" ? 2 : 1}))
                  .find("checked: complete"),
              std::string::npos);
}

// ---- the checker itself: mutants, judged by an interpreter that only tracks data

// Runs a schedule with values: an activation is the list of (stage, micro-batch) that it passed.
// Returns true if all F, B, W are done once on the right data and no message is left.
bool works(const PipelineSchedule& s) {
  const auto& x = s.shape;
  using Value = std::pair<char, std::vector<std::pair<int, int>>>;  // kind, path
  struct Memory {
    std::map<std::pair<int, int>, Value> in, out, grad_in, grad_out;  // by stage, micro-batch
    std::map<std::pair<int, int>, int> f, b, w;
    std::map<int, int> last_w;
  };
  std::vector<Memory> memory(s.of_rank.size());
  std::map<std::pair<int, int>, std::vector<Value>> wire;
  std::vector<std::size_t> at(s.of_rank.size(), 0);
  std::map<std::pair<int, int>, std::size_t> taken;
  bool right = true;
  const auto forward_way = [](int mb, int upto) {
    Value v{'F', {}};
    for (int st = 0; st < upto; ++st) v.second.push_back({st, mb});
    return v;
  };
  const auto backward_way = [&](int mb, int downto) {
    Value v{'B', {}};
    for (int st = x.stages() - 1; st > downto; --st) v.second.push_back({st, mb});
    return v;
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t r = 0; r < s.of_rank.size(); ++r)
      while (at[r] < s.of_rank[r].size()) {
        const auto a = s.of_rank[r][at[r]];
        if (a.stage < 0 || a.stage >= x.stages() || x.rank_of(a.stage) != static_cast<int>(r) ||
            a.microbatch < 0 || a.microbatch >= x.microbatches)
          return false;
        const std::pair<int, int> key{a.stage, a.microbatch};
        Memory& mine = memory[r];
        const int me = static_cast<int>(r);
        if (receives(a.op)) {
          if ((a.op == PipeOp::kRecvActivation && a.stage == 0) ||
              (a.op == PipeOp::kRecvGradient && a.stage == x.stages() - 1))
            return false;
          auto& channel = wire[{s.peer(a), me}];
          auto& n = taken[{s.peer(a), me}];
          if (n == channel.size()) break;
          auto& to = a.op == PipeOp::kRecvActivation ? mine.in : mine.grad_in;
          if (!to.emplace(key, channel[n++]).second) return false;
        } else if (a.op == PipeOp::kSendActivation) {
          if (a.stage == x.stages() - 1 || !mine.out.count(key)) return false;
          wire[{me, s.peer(a)}].push_back(mine.out[key]);
        } else if (a.op == PipeOp::kSendGradient) {
          if (a.stage == 0 || !mine.grad_out.count(key)) return false;
          wire[{me, s.peer(a)}].push_back(mine.grad_out[key]);
        } else if (a.op == PipeOp::kForward) {
          Value v = a.stage == 0 ? forward_way(a.microbatch, 0) : mine.in[key];
          right = right && v == forward_way(a.microbatch, a.stage);
          v.second.push_back(key);
          mine.out[key] = v;
          ++mine.f[key];
        } else if (a.op == PipeOp::kBackwardInput) {
          Value v =
              a.stage == x.stages() - 1 ? backward_way(a.microbatch, a.stage) : mine.grad_in[key];
          right = right && mine.f[key] == 1 && v == backward_way(a.microbatch, a.stage);
          v.second.push_back(key);
          mine.grad_out[key] = v;
          ++mine.b[key];
        } else {
          right = right && mine.b[key] == 1 && mine.last_w[a.stage]++ == a.microbatch;
          ++mine.w[key];
        }
        ++at[r];
        moved = true;
      }
  }
  for (std::size_t r = 0; r < s.of_rank.size(); ++r) {
    if (at[r] < s.of_rank[r].size()) return false;
    for (int st = static_cast<int>(r); st < x.stages(); st += x.ranks)
      for (int i = 0; i < x.microbatches; ++i)
        right = right && memory[r].f[{st, i}] == 1 && memory[r].b[{st, i}] == 1 &&
                memory[r].w[{st, i}] == 1;
  }
  for (const auto& [ends, channel] : wire) right = right && taken[ends] == channel.size();
  return right;
}

TEST(PipelineChecker, JudgesMutantsAsTheInterpreterDoes) {
  std::mt19937 random(testing::seed());
  const auto pick = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  int rejected = 0, accepted = 0;
  for (const auto& name : pipeline_schedule_names()) {
    const PipelineShape x{3, 3, name == "interleaved" ? 2 : 1};
    const auto good = make_pipeline_schedule(name, x);
    ASSERT_TRUE(works(good)) << name;
    for (int k = 0; k < 1200; ++k) {
      PipelineSchedule bad = good;
      auto& list = bad.of_rank[pick(bad.of_rank.size())];
      const std::size_t i = pick(list.size()), j = pick(list.size());
      switch (k % 6) {
        case 0:
          list.erase(list.begin() + static_cast<long>(i));
          break;
        case 1:
          list.insert(list.begin() + static_cast<long>(j), list[i]);
          break;
        case 2:
          list[i].microbatch = static_cast<int>(pick(4));
          break;
        case 3:
          list[i].stage = static_cast<int>(pick(7));
          break;
        case 4:
          std::swap(list[i], list[i + 1 < list.size() ? i + 1 : 0]);
          break;
        default:
          std::swap(list[i], list[j]);
          break;
      }
      const std::string fault = check(bad);
      ASSERT_EQ(fault.empty(), works(bad)) << name << ", mutation " << k % 6 << ": " << fault;
      ++(fault.empty() ? accepted : rejected);
    }
  }
  EXPECT_GT(rejected, 4000);
  std::printf("%d mutants rejected, %d are schedules as good as the first\n", rejected, accepted);
}

}  // namespace
}  // namespace weft::train
