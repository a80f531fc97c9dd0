// The planner matches the trainer: a run of every layout of 8 ranks sends the planned bytes, and
// needs the planned memory.
// labels: sim
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>
#include <mutex>

#include "support/train/train_on_device_cases.h"
#include "train/plan/rank_facts.h"

namespace weft::train {
namespace {

// Sizes divisible by 8, so that all ranks of an axis send equally much.
TrainOptions planned(const std::array<int, 3>& sizes, const Layout& l) {
  TrainOptions o = train::layout(sizes);
  o.model = {.vocabulary = 264, .positions = 32, .width = 96, .heads = 8, .layers = 8};
  o.mesh.algorithm = "ring";  // only the ring sends 2 (n-1)/n for every size
  o.micro_batch = static_cast<Index>(l.microbatch);
  o.batch = o.micro_batch * static_cast<Index>(l.microbatches * l.dp);
  o.zero = l.zero;
  o.schedule = l.schedule;
  o.chunks = l.chunks;
  o.recompute = l.recompute;
  return o;
}

struct Run {
  double data = 0, tensor = 0, pipeline = 0;  // bytes per step, of all ranks together
  double memory = 0;                          // of the rank with the highest peak
};

template <class T>
Run run_of(const TrainOptions& o) {
  set_operator_threads(1);
  Run all;
  std::mutex mutex;
  const Text data = text();
  testing::run_ranks(testing::places({o.mesh.ranks()}), testing::patient(), [&](World& world) {
    Trainer<T> trainer(world, o, data);
    trainer.step();
    MemoryLedger& ledger = MemoryLedger::of_this_rank();
    AxisBytes sent;
    // A pipeline rank keeps a sent message until delivery, so a step on a loaded machine may need
    // more memory: compares the plan with the smaller peak of two steps.
    std::size_t peak = std::numeric_limits<std::size_t>::max();
    for (int step = 0; step < 2; ++step) {
      ledger.peak_total = ledger.total;
      sent = trainer.step().sent;
      peak = std::min(peak, ledger.peak_total);
    }
    const std::lock_guard lock(mutex);
    all.data += static_cast<double>(sent.data);
    all.tensor += static_cast<double>(sent.tensor);
    all.pipeline += static_cast<double>(sent.pipeline);
    all.memory = std::max(all.memory, static_cast<double>(peak));
  });
  return all;
}

Run plan_of(const TrainOptions& o, const Layout& l) {
  const auto n = [](Index value) { return static_cast<int>(value); };
  const ModelShape model{"",
                         n(o.model.layers),
                         n(o.model.width),
                         n(o.model.heads),
                         n(o.model.vocabulary),
                         n(o.model.positions)};
  Run all;
  for (const RankFacts& rank : rank_facts(model, l)) {
    const double alike = l.dp * l.tp;
    all.data += alike * rank.dp_bytes;
    all.tensor += alike * rank.tp_bytes;
    all.pipeline += alike * rank.pp_bytes;
    all.memory = std::max(all.memory, rank.memory.total());
  }
  return all;
}

Layout layout_of(const std::array<int, 3>& sizes) {
  Layout l;
  l.dp = sizes[0];
  l.tp = sizes[1];
  l.pp = sizes[2];
  l.microbatch = 2;
  l.microbatches = l.pp == 8 ? 8 : 4;
  l.precision = precision_of("float");
  return l;
}

void expect_agreement(const std::array<int, 3>& sizes, const Layout& l) {
  const TrainOptions o = planned(sizes, l);
  const Run plan = plan_of(o, l), run = run_of<float>(o);
  const std::string what =
      fmt::format("dp {} tp {} pp {} ZeRO {} {} chunks {}{}", l.dp, l.tp, l.pp, l.zero, l.schedule,
                  l.chunks, l.recompute ? " recompute" : "");
  EXPECT_EQ(run.data, plan.data) << what;
  EXPECT_EQ(run.tensor, plan.tensor) << what;
  EXPECT_EQ(run.pipeline, plan.pipeline) << what;
  EXPECT_NEAR(plan.memory / run.memory, 1, 0.1) << what;
}

TEST(PlanAndRun, EveryLayoutOf8InEveryZeroStage) {
  int turn = 0;
  for (const auto& sizes : factorisations(8)) {
    ++turn;  // recomputation alternates between stages, unless all axes are used
    for (int zero = 0; zero <= (sizes[0] > 1 ? 3 : 0); ++zero)
      for (const bool recompute : {false, true}) {
        if (recompute && zero == 1) continue;  // like without ZeRO
        const bool all = sizes[0] == 1 || zero == 1 || sizes == std::array{2, 2, 2};
        if (!all && recompute != ((turn + zero) % 2 == 0)) continue;
        Layout l = layout_of(sizes);
        l.zero = zero;
        l.recompute = recompute;
        expect_agreement(sizes, l);
      }
  }
}

TEST(PlanAndRun, EveryScheduleInEveryZeroStage) {
  int turn = 0;
  for (const auto& sizes : {std::array{4, 1, 2}, {2, 1, 4}, {1, 2, 4}})
    for (const std::string& schedule : pipeline_schedule_names()) {
      ++turn;
      for (int zero = 0; zero <= (sizes[0] > 1 ? 3 : 0); ++zero) {
        if (sizes[0] == 4 && (turn + zero) % 2 == 0) continue;  // {2, 1, 4} has every pair
        Layout l = layout_of(sizes);
        l.zero = zero;
        l.schedule = schedule;
        l.chunks = schedule == "interleaved" ? 2 : 1;
        l.microbatches = 8;
        expect_agreement(sizes, l);
      }
    }
}

}  // namespace
}  // namespace weft::train
