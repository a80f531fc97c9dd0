// Measures bubbles of the real runtime with stages that sleep, without a model.
#include "train/pipeline/bubble.h"

#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <thread>

#include "train/pipeline/runtime.h"
#include "train/pipeline/simulator.h"

namespace weft::train {
namespace {

constexpr std::size_t kElements = 1024;  // number of elements of a message

// A stage without parameters that only sleeps.
class SleepingStage : public Stage<float> {
 public:
  SleepingStage(int stage, int stages, std::size_t elements, std::chrono::microseconds time)
      : in_(stage == 0 ? 0 : elements), out_(stage == stages - 1 ? 0 : elements), time_(time) {}
  std::size_t input_count() const override { return in_; }
  std::size_t output_count() const override { return out_; }
  Tensor<float> forward(int, Tensor<float>) override { return after_time(out_); }
  Tensor<float> backward_input(int, Tensor<float>) override { return after_time(in_); }
  void backward_weight(int) override { std::this_thread::sleep_for(time_); }
  std::vector<Parameter<float>>& parameters() override { return none_; }

 private:
  Tensor<float> after_time(std::size_t count) {
    std::this_thread::sleep_for(time_);
    return Tensor<float>::zeros(count, Use::kActivations);
  }
  std::size_t in_, out_;
  std::chrono::microseconds time_;
  std::vector<Parameter<float>> none_;
};

}  // namespace

std::vector<BubbleRow> measure_bubbles(Communicator comm, int op_us) {
  std::vector<BubbleRow> rows;
  const int p = comm.size();
  for (const std::string& name : pipeline_schedule_names())
    for (int m = 1; m <= 32; m *= 2) {
      const bool many = name == "interleaved";
      if (many && m % p != 0) continue;
      const PipelineShape x{p, m, many ? 2 : 1};
      const PipelineSchedule schedule = make_pipeline_schedule(name, x);
      const std::chrono::microseconds time(op_us / x.chunks);
      std::vector<std::unique_ptr<SleepingStage>> own;
      std::vector<Stage<float>*> stages;
      for (int s = comm.rank(); s < x.stages(); s += p) {
        own.push_back(std::make_unique<SleepingStage>(s, x.stages(), kElements, time));
        stages.push_back(own.back().get());
      }
      PipelineRuntime<float> runtime(schedule, comm, stages);
      comm.barrier().check();
      const PipelineRun& run = runtime.run();
      rows.push_back({name, m, measured_bubble(run, comm), simulate(schedule, {}).bubble,
                      bubble_formula(schedule)});
    }
  return rows;
}

std::string to_text(const std::vector<BubbleRow>& rows) {
  std::string text = fmt::format("{:<12}  {:>4}  {:>10}  {:>11}  {:>9}\n", "# schedule", "m",
                                 "measured %", "simulated %", "formula %");
  for (const BubbleRow& r : rows)
    text += fmt::format("{:<12}  {:>4}  {:>10.1f}  {:>11.1f}  {:>9}\n", r.schedule, r.microbatches,
                        100 * r.measured, 100 * r.simulated,
                        r.formula < 0 ? "-" : fmt::format("{:.1f}", 100 * r.formula));
  return text;
}

}  // namespace weft::train
