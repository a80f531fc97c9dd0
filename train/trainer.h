// Trainer: trains a GPT on a mesh of ranks, one step at a time.
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
  // Collective. Throws UsageError if options contradict each other or differ between ranks, or the
  // text is too short. `world` and `text` must outlive the trainer.
  Trainer(World& world, const TrainOptions& options, const Text& text);
  ~Trainer();

  StepReport step();
  // Collective, with the same `text` on every rank. Returns the mean loss of a batch of `text` in
  // nats per byte, the same on every rank, always of the same samples. Changes no weights.
  double evaluate(const Text& text);
  // Completes a step whose step() threw on this rank but succeeded on another: applies the update
  // with the loss and norm of that rank. Needs ZeRO 0, where local gradients are complete: a rank
  // has the loss only after all ranks have reduced their gradients. Not collective.
  void complete_step(double loss, double norm);
  int steps_done() const { return step_; }
  void set_steps_done(int step) { step_ = step; }
  Mesh& mesh() { return *mesh_; }
  int micro_batches() const { return micro_batches_; }  // per replica and step
  LossScaler& scaler() { return scaler_; }              // for restore() from a checkpoint
  PipelineRuntime<T>& pipeline() { return *runtime_; }
  // When the samples of the last step were loaded for the first and the last stage, if this rank
  // has them. Item step x micro_batches() + m is micro-batch m of a step, from step 0. On a device:
  // the loads whose end was observed in the last step.
  const std::vector<BroughtSamples>& brought() const { return brought_; }

  // Returns weights and optimizer state of this rank, for checkpoints.
  std::vector<TensorPart<HostOf<T>>> pieces();
  // Collective. Call after a load into pieces(): gives every rank the weights that it needs.
  void restored();
  // Collective. Returns every whole logical tensor on rank 0, and an empty map elsewhere.
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
  std::vector<std::unique_ptr<GptStage<T>>> stages_;      // `chunks` model chunks
  std::vector<std::unique_ptr<DataParallel<T>>> stores_;  // one store per stage
  std::vector<std::unique_ptr<SampleFeed<T>>> feeds_;     // one feed per first or last stage
  std::vector<BroughtSamples> brought_;
  struct Passes {  // the passes that run: text, first item, end of items
    const Text* text;
    std::uint64_t first, end;
  } passes_{};
  std::unique_ptr<PipelineRuntime<T>> runtime_, evaluation_;  // evaluation_: made on first use
  std::optional<StepMeter> meter_;
  int step_ = 0;
  int lost_ = 0;
  LossScaler scaler_;
};

}  // namespace weft::train
