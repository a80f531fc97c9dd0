// labels: multiproc
// Bubbles of the runtime on real processes equal simulator and formula exactly, for every m from 1
// to 32. Operators have a fixed time, which is counted without a wait: every message carries the
// clock of its sender.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>

#include "support/jobs/processes.h"
#include "support/jobs/ranks.h"
#include "train/pipeline/bubble.h"
#include "train/pipeline/runtime.h"
#include "train/pipeline/simulator.h"

namespace weft::train {
namespace {

constexpr std::chrono::minutes kPatience{4};  // each test takes seconds

// Runs body(communicator) on n processes; it returns errors, one per line.
void on_processes(int n, const std::function<std::string(Communicator)>& body) {
  const auto where = testing::places({n});
  testing::Processes job(n, kPatience, [&](const JobSpec& spec) {
    World world(connect(spec), where[static_cast<std::size_t>(spec.rank)], {});
    const std::string wrong = body(world.world());
    if (!wrong.empty()) std::fprintf(stderr, "rank %d:\n%s", spec.rank, wrong.c_str());
    return wrong.empty() ? 0 : 1;
  });
  ASSERT_TRUE(job.wait(kPatience));
  for (Rank r = 0; r < n; ++r) EXPECT_EQ(job.code(r), 0) << "rank " << r;
}

// F, B and W take one unit of a rank's clock. The value of a result is its completion time; an
// action starts after its inputs are complete.
class ClockStage : public Stage<double> {
 public:
  ClockStage(int stage, int stages, double& clock)
      : in_(stage > 0 ? 1 : 0), out_(stage + 1 < stages ? 1 : 0), clock_(clock) {}
  std::size_t input_count() const override { return in_; }
  std::size_t output_count() const override { return out_; }
  Tensor<double> forward(int, Tensor<double> in) override { return work(in, out_); }
  Tensor<double> backward_input(int, Tensor<double> grad) override { return work(grad, in_); }
  void backward_weight(int) override { clock_ += 1; }
  // B directly followed by its W is one pass: its result is complete at the end of both.
  Tensor<double> backward(int, Tensor<double> grad) override {
    clock_ += 1;
    if (out_ > 0) clock_ = std::max(clock_, grad[0] + 1);
    return work({}, in_);
  }
  std::vector<Parameter<double>>& parameters() override { return none_; }

 private:
  Tensor<double> work(const Tensor<double>& needed, std::size_t count) {
    if (needed.count() > 0) clock_ = std::max(clock_, needed[0]);
    clock_ += 1;
    Tensor<double> made(count, Use::kActivations);
    if (count > 0) made[0] = clock_;
    return made;
  }
  std::size_t in_, out_;
  double& clock_;
  std::vector<Parameter<double>> none_;
};

// The idle share of the ranks' time, by their clocks.
double counted_bubble(const PipelineSchedule& s, Communicator comm) {
  double clock = 0;
  std::vector<std::unique_ptr<ClockStage>> own;
  std::vector<Stage<double>*> stages;
  for (int stage = comm.rank(); stage < s.shape.stages(); stage += s.shape.ranks) {
    own.push_back(std::make_unique<ClockStage>(stage, s.shape.stages(), clock));
    stages.push_back(own.back().get());
  }
  PipelineRuntime<double> runtime(s, comm, stages);
  runtime.run();
  const double busy = 3.0 * s.shape.microbatches * s.shape.chunks;
  double last = clock;
  comm.all_reduce(&last, &last, 1, DType::kFloat64, RedOp::kMax).check();
  return 1 - busy / last;
}

TEST(PipelineBubble, CountedIsTheFormulaForEveryNumberOfMicroBatches) {
  for (const int p : {2, 3, 4})
    on_processes(p, [&](Communicator comm) {
      std::string wrong;
      int with_formula = 0;
      for (const std::string& name : pipeline_schedule_names())
        for (int m = 1; m <= 32; ++m) {
          const bool many = name == "interleaved";
          if (many && m % p != 0) continue;
          const PipelineSchedule s = make_pipeline_schedule(name, {p, m, many ? 2 : 1});
          const double counted = counted_bubble(s, comm), formula = bubble_formula(s);
          const double simulated = simulate(s, {}).bubble;
          if (std::abs(counted - simulated) > 1e-12 ||
              (formula >= 0 && std::abs(counted - formula) > 1e-12))
            wrong += fmt::format("{} m {}: counted {}, simulated {}, formula {}\n", name, m,
                                 counted, simulated, formula);
          with_formula += formula >= 0;
        }
      // sequential, gpipe, 1f1b: every m; interleaved: multiples of p; zero-bubble: m >= p.
      const int want = 3 * 32 + 32 / p + (33 - p);
      if (with_formula != want) wrong += fmt::format("{} formulas, not {}\n", with_formula, want);
      return wrong;
    });
}

// A machine's clock starts at its boot.
TEST(MeasuredBubble, DoesNotDependOnTheClocksOfMachines) {
  for (const std::int64_t ahead : {0L, 3'600'000'000'000L, -3'600'000'000'000L}) {
    double bubbles[2] = {};
    testing::run_ranks(testing::places({2}), {}, [&](World& world) {
      const bool second = world.rank() == 1;
      PipelineRun run;
      run.begin_ns = 5'000'000'000'000 + (second ? ahead + 100 : 0);
      run.end_ns = 5'000'000'000'000 + (second ? ahead + 900 : 1000);
      run.compute_ns = second ? 700 : 500;
      bubbles[world.rank()] = measured_bubble(run, world.world());
    });
    for (const double b : bubbles) EXPECT_DOUBLE_EQ(b, 1 - 1200.0 / 2000) << ahead;
  }
}

}  // namespace
}  // namespace weft::train
