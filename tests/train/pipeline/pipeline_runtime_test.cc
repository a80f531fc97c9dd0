// labels: multiproc
// The pipeline in real processes: each schedule's gradients equal those of one process bit for bit,
// and the steps executed are those of the schedule, in an order that respects data dependencies.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>

#include "support/jobs/processes.h"
#include "support/jobs/ranks.h"
#include "support/process/temporary_folder.h"
#include "train/pipeline/simulator.h"
#include "train/pipeline/trace.h"

namespace weft::train {
namespace {

using testing::Processes;
using testing::Shared;

constexpr int kWidth = 37;
constexpr std::chrono::seconds kLimit{40};

// y = tanh(w * x + c * x_next): its gradients are simple, and depend on all earlier stages.
class ToyStage : public Stage<double> {
 public:
  ToyStage(int stage, int stages, int time_us = 0)
      : first_(stage == 0), last_(stage == stages - 1), time_us_(time_us) {
    Parameter<double> w;
    for (int i = 0; i < 2 * kWidth; ++i) value_.push_back(0.5 + 0.01 * i + 0.03 * stage);
    gradient_.assign(2 * kWidth, 0);
    w.logical = {"toy", {2 * kWidth}, {}};
    w.value = value_.data();
    w.gradient = gradient_.data();
    parameters_.push_back(w);
  }
  std::size_t input_count() const override { return first_ ? 0 : kWidth; }
  std::size_t output_count() const override { return last_ ? 0 : kWidth; }
  Tensor<double> forward(int i, Tensor<double> in) override {
    work();
    Kept& k = kept_[i];
    for (int e = 0; e < kWidth; ++e) k.x.push_back(first_ ? std::sin(e + 40.0 * i) : in[at(e)]);
    for (int e = 0; e < kWidth; ++e)
      k.y.push_back(std::tanh(w(e) * k.x[at(e)] + c(e) * k.x[at((e + 1) % kWidth)]));
    Tensor<double> out(kWidth, Use::kActivations);
    std::copy(k.y.begin(), k.y.end(), out.data());
    return out;
  }
  Tensor<double> backward_input(int i, Tensor<double> grad) override {
    work();
    Kept& k = kept_.at(i);
    for (int e = 0; e < kWidth; ++e)  // last stage: of the sum of squares
      k.z.push_back((last_ ? 2 * k.y[at(e)] : grad[at(e)]) * (1 - k.y[at(e)] * k.y[at(e)]));
    Tensor<double> grad_in(kWidth, Use::kErrors);
    for (int e = 0; e < kWidth; ++e) {
      const int before = (e + kWidth - 1) % kWidth;
      grad_in[at(e)] = w(e) * k.z[at(e)] + c(before) * k.z[at(before)];
    }
    return grad_in;
  }
  void backward_weight(int i) override {
    work();
    const Kept& k = kept_.at(i);
    for (int e = 0; e < kWidth; ++e) {
      gradient_[at(e)] += k.z[at(e)] * k.x[at(e)];
      gradient_[at(e + kWidth)] += k.z[at(e)] * k.x[at((e + 1) % kWidth)];
    }
    kept_.erase(i);
  }
  std::vector<Parameter<double>>& parameters() override { return parameters_; }
  std::size_t activation_bytes(int i) const { return kept_.count(i) * kWidth * 8; }

 private:
  struct Kept {
    std::vector<double> x, y, z;
  };
  static std::size_t at(int e) { return static_cast<std::size_t>(e); }
  double w(int e) const { return value_[at(e)]; }
  double c(int e) const { return value_[at(e + kWidth)]; }
  void work() const {
    if (time_us_ > 0) std::this_thread::sleep_for(std::chrono::microseconds(time_us_));
  }
  bool first_, last_;
  int time_us_;
  std::vector<double> value_, gradient_;
  std::vector<Parameter<double>> parameters_;
  std::map<int, Kept> kept_;
};

// All gradients, stage by stage, of one process without a schedule.
std::vector<double> reference(int stages, int microbatches) {
  std::vector<double> gradients;
  std::vector<std::unique_ptr<ToyStage>> chain;
  for (int s = 0; s < stages; ++s) chain.push_back(std::make_unique<ToyStage>(s, stages));
  for (int i = 0; i < microbatches; ++i) {
    Tensor<double> x;
    for (auto& s : chain) x = s->forward(i, std::move(x));
    for (auto s = chain.rbegin(); s != chain.rend(); ++s) x = (*s)->backward(i, std::move(x));
  }
  for (auto& s : chain)
    gradients.insert(gradients.end(), s->parameters()[0].gradient,
                     s->parameters()[0].gradient + 2 * kWidth);
  return gradients;
}

struct Rig {
  Rig(const PipelineSchedule& s, Communicator comm, int time_us = 0) {
    for (int stage = comm.rank(); stage < s.shape.stages(); stage += s.shape.ranks)
      own.push_back(std::make_unique<ToyStage>(stage, s.shape.stages(), time_us));
    std::vector<Stage<double>*> stages;
    for (auto& o : own) stages.push_back(o.get());
    runtime = std::make_unique<PipelineRuntime<double>>(s, comm, stages);
  }
  std::vector<std::unique_ptr<ToyStage>> own;
  std::unique_ptr<PipelineRuntime<double>> runtime;
};

std::vector<PipelineSchedule> all_schedules(int p) {
  std::vector<PipelineSchedule> all;
  for (const auto& name : pipeline_schedule_names())
    for (const int m : {p, 2 * p, 5})
      for (int v = 1; v <= (name == "interleaved" ? 3 : 1); ++v)
        if (name != "interleaved" || m % p == 0)
          all.push_back(make_pipeline_schedule(name, {p, m, v}));
  return all;
}

// Compares a rank's executed actions with the schedule, including implied messages.
bool same_computation(const std::vector<PipelineAction>& planned,
                      const std::vector<PipelineRecord>& done) {
  std::vector<PipelineAction> a, b;
  for (const auto& x : planned)
    if (computes(x.op)) a.push_back(x);
  for (const auto& x : done) b.push_back(x.action);
  return a == b;
}

class Runtime : public ::testing::TestWithParam<std::pair<int, int>> {};  // ranks, hosts

TEST_P(Runtime, GradientsAreThoseOfOneProcess) {
  const int p = GetParam().first, hosts = GetParam().second;
  const auto schedules = all_schedules(p);
  std::vector<int> per_host(static_cast<std::size_t>(hosts), p / hosts);
  const auto where = testing::places(per_host);
  Shared<int> faults(static_cast<std::size_t>(p));
  Processes job(p, std::chrono::seconds(30), [&](const JobSpec& spec) {
    World world(connect(spec), where[static_cast<std::size_t>(spec.rank)], {});
    const Communicator comm = world.world();
    const Rank r = comm.rank();
    for (const auto& s : schedules) {
      Rig rig(s, comm);
      for (int step = 0; step < 2; ++step) {  // a runtime runs many steps
        for (auto& o : rig.own) std::fill_n(o->parameters()[0].gradient, 2 * kWidth, 0.0);
        rig.runtime->run();
        const auto want = reference(s.shape.stages(), s.shape.microbatches);
        for (std::size_t c = 0; c < rig.own.size(); ++c) {
          const auto* got = rig.own[c]->parameters()[0].gradient;
          const auto* expected =
              &want[(c * static_cast<std::size_t>(p) + static_cast<std::size_t>(r)) * 2 * kWidth];
          if (!std::equal(got, got + 2 * kWidth, expected)) {
            std::fprintf(stderr, "%s m %d v %d: rank %d has other gradients\n", s.name.c_str(),
                         s.shape.microbatches, s.shape.chunks, r);
            ++faults[r];
          }
          if (rig.own[c]->activation_bytes(0) != 0) ++faults[r];
        }
        if (!same_computation(s.of_rank[static_cast<std::size_t>(r)], rig.runtime->last().records))
          ++faults[r];
      }
    }
    return 0;
  });
  ASSERT_TRUE(job.wait(kLimit));
  for (Rank r = 0; r < p; ++r) {
    EXPECT_EQ(job.code(r), 0) << "rank " << r;
    EXPECT_EQ(faults[r], 0) << "rank " << r;
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, Runtime,
                         ::testing::Values(std::pair{1, 1}, std::pair{2, 1}, std::pair{3, 1},
                                           std::pair{4, 2}),
                         [](const auto& i) {
                           return "p" + std::to_string(i.param.first) + "_hosts" +
                                  std::to_string(i.param.second);
                         });

// Each F begins after the end of the previous stage's F, each B after that of the next stage's B,
// on one clock. The steps reconstructed from the records equal the table.
TEST(PipelineTrace, OfARealRunHasTheElevenSteps) {
  const auto s = make_pipeline_schedule("dataflow", {4, 4, 1});
  struct Times {
    std::int64_t begin, end;
  };
  Shared<Times> times(4 * 4 * 2);  // op, micro-batch, stage
  Shared<double> bubble(1);
  const auto slot = [](int op, int i, int stage) { return (op * 4 + i) * 4 + stage; };
  const auto where = testing::places({4});
  Shared<PipelineAction> done(4 * 16);
  Processes job(4, std::chrono::seconds(30), [&](const JobSpec& spec) {
    World world(connect(spec), where[static_cast<std::size_t>(spec.rank)], {});
    Rig rig(s, world.world(), 1000);
    const PipelineRun& run = rig.runtime->run();
    int n = 0;
    for (const auto& r : run.records) {
      done[spec.rank * 16 + n++] = r.action;
      if (r.action.op != PipeOp::kBackwardWeight)
        times[slot(r.action.op == PipeOp::kForward ? 0 : 1, r.action.microbatch, r.action.stage)] =
            {r.begin_ns, r.end_ns};
    }
    const double b = measured_bubble(run, world.world());
    if (spec.rank == 0) bubble[0] = b;
    return n == 12 ? 0 : 1;
  });
  ASSERT_TRUE(job.wait(kLimit));
  for (Rank r = 0; r < 4; ++r) ASSERT_EQ(job.code(r), 0);
  for (int i = 0; i < 4; ++i)
    for (int stage = 0; stage < 4; ++stage) {
      if (stage < 3) {
        EXPECT_GE(times[slot(0, i, stage + 1)].begin, times[slot(0, i, stage)].end);
        EXPECT_GE(times[slot(1, i, stage)].begin, times[slot(1, i, stage + 1)].end);
      }
      EXPECT_GE(times[slot(1, i, stage)].begin, times[slot(0, i, stage)].end);
    }
  // The executed actions with the schedule's messages in between, as a schedule.
  PipelineSchedule seen = s;
  for (Rank r = 0; r < 4; ++r) {
    int n = 0;
    for (auto& a : seen.of_rank[static_cast<std::size_t>(r)])
      if (computes(a.op)) a = done[r * 16 + n++];
  }
  std::vector<int> active;
  for (const auto& step : steps_of(seen)) active.push_back(static_cast<int>(100 * step.active));
  EXPECT_EQ(active, (std::vector<int>{25, 50, 75, 100, 75, 50, 75, 100, 75, 50, 25}));
  EXPECT_GT(bubble[0], 0);
  EXPECT_LT(bubble[0], 1);
  std::printf("bubble of the run: %.1f %%\n", 100 * bubble[0]);
}

TEST(PipelineTrace, IsAFileThatMergeReads) {
  const testing::TemporaryFolder folder;
  const std::string path = folder / "trace.json";
  const PipelineShape x{2, 1, 1};
  write_pipeline_trace(path, 3, {1, 3}, "gpipe", x, {{{PipeOp::kForward, 0, 1}, 1000, 3000}});
  std::ifstream file(path);
  const auto trace = nlohmann::json::parse(file);
  EXPECT_EQ(trace["otherData"]["schema"], "weft.trace/1");
  EXPECT_EQ(trace["otherData"]["pipeline"], (std::vector<Rank>{1, 3}));
  EXPECT_EQ(trace["traceEvents"][1]["args"]["name"], "stage 1");
  EXPECT_EQ(trace["traceEvents"].back()["name"], "F0");
  EXPECT_EQ(trace["traceEvents"].back()["dur"], 2.0);
  EXPECT_THROW(write_pipeline_trace("/nowhere/x.json", 0, {0, 1}, "gpipe", x, {}), Error);
  EXPECT_THROW(write_pipeline_trace("/dev/full", 0, {0, 1}, "gpipe", x, {}), Error);
}

// Threads suffice for this test.
TEST(PipelineErrors, RanksThatDisagreeAllHearOfIt) {
  const auto said = [](const std::function<PipelineSchedule(Rank)>& schedule, bool other_size) {
    std::vector<std::string> texts(2);
    testing::run_ranks(testing::places({2}), {}, [&](World& world) {
      struct Wide : ToyStage {
        using ToyStage::ToyStage;
        std::size_t input_count() const override { return 2 * kWidth; }
      };
      const Rank r = world.rank();
      ToyStage toy(r, 2);
      Wide wide(r, 2);
      try {
        PipelineRuntime<double> runtime(schedule(r), world.world(),
                                        {other_size && r == 1 ? &wide : &toy});
      } catch (const Error& e) {
        texts[static_cast<std::size_t>(r)] = e.what();
      }
    });
    return texts;
  };
  using ::testing::Each;
  using ::testing::HasSubstr;
  EXPECT_THAT(said(
                  [](Rank r) {
                    return make_pipeline_schedule(r ? "gpipe" : "1f1b", {2, 4, 1});
                  },
                  false),
              Each(HasSubstr("another schedule than rank 0")));
  EXPECT_THAT(said(
                  [](Rank) {
                    return make_pipeline_schedule("1f1b", {2, 4, 1});
                  },
                  true),
              Each(HasSubstr("makes 37 elements per micro-batch, stage 1 (rank 1) takes 74")));
  EXPECT_THAT(said(
                  [](Rank) {
                    return make_pipeline_schedule("1f1b", {3, 4, 1});
                  },
                  false),
              Each(HasSubstr("is for 3 ranks")));
}

}  // namespace
}  // namespace weft::train
