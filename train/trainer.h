// Trainer: a GPT on a mesh of ranks, one step at a time.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "train/model/sample_feed.h"
#include "train/model/text.h"
#include "train/pipeline/runtime.h"
#include "train/step_meter.h"
#include "train/train_options.h"

namespace weft::train {

template <class T>
class Trainer {
 public:
  // A collective call. Throws UsageError where options contradict each other or differ between
  // ranks, or the text is too short. `world` and `text` must outlive the trainer.
  Trainer(World& world, const TrainOptions& options, const Text& text);
  ~Trainer();

  StepReport step();
  // Returns the mean loss of a batch of `text`, in nats per byte: always of the same samples, and
  // the same on every rank. Changes no weight. A collective call; `text` is the same on every rank.
  double evaluate(const Text& text);
  // After a step() that threw, where another rank has done that step: does the update from that
  // rank's loss and norm. Without ZeRO the gradients are there: no rank has the loss of a step
  // before all have summed theirs. Calls no other rank.
  void complete_step(double loss, double norm);
  int steps_done() const { return step_; }
  void set_steps_done(int step) { step_ = step; }
  Mesh& mesh() { return *mesh_; }
  int micro_batches() const { return micro_batches_; }  // per replica and step
  LossScaler& scaler() { return scaler_; }              // for restore() from a checkpoint
  PipelineRuntime<T>& pipeline() { return *runtime_; }
  // When the samples of the last step were brought to the first and the last stage, where this rank
  // has them. Item step x micro_batches() + m is micro-batch m of a step, steps from 0. On a device
  // those whose end was seen in the last step.
  const std::vector<BroughtSamples>& brought() const { return brought_; }

  // Weights and optimizer state of this rank, for checkpoints.
  std::vector<TensorPart<HostOf<T>>> pieces();
  // Must follow a load into pieces(): every rank gets the weights it needs. A collective call.
  void restored();
  // Returns every logical tensor, whole, on rank 0, and nothing elsewhere. A collective call.
  std::map<std::string, std::vector<HostOf<T>>> collect();

 private:
  StepCounts counts() const;
  void bring_samples();
  void take_losses(std::span<double> by_number);
  void run_passes();
  double exact_squares();
  void agree_on_numbers(StepReport& report);
  void judge(StepReport& report);
  void update(const StepReport& report);
  double loss_scale() const { return options_.loss_scale > 0 ? scaler_.scale() : 1; }

  World& world_;
  const TrainOptions options_;
  const Text& text_;
  std::unique_ptr<Mesh> mesh_;
  int micro_batches_;                                     // per replica and step
  std::vector<std::unique_ptr<GptStage<T>>> stages_;      // `chunks` stages
  std::vector<std::unique_ptr<DataParallel<T>>> stores_;  // of each stage
  std::vector<std::unique_ptr<SampleFeed<T>>> feeds_;     // of each first and last stage
  std::vector<BroughtSamples> brought_;
  struct Passes {  // the passes under way: their text, their first item, and where items end
    const Text* text;
    std::uint64_t first, end;
  } passes_{};
  std::unique_ptr<PipelineRuntime<T>> runtime_, evaluation_;  // evaluation_: made when first used
  std::optional<StepMeter> meter_;
  int step_ = 0;
  int lost_ = 0;
  LossScaler scaler_;
};

}  // namespace weft::train
