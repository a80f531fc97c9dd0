// Trainer: a GPT on a mesh of ranks, one step at a time.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "train/model/learning_rate.h"
#include "train/model/text.h"
#include "train/parallel/data_parallel.h"
#include "train/pipeline/runtime.h"

namespace weft::train {

struct TrainOptions {
  GptShape model;
  MeshShape mesh;
  OptimizerOptions optimizer;
  RateSchedule rate;
  Index batch = 8;        // samples per step, over all replicas
  Index micro_batch = 1;  // samples that pass the model together
  std::string schedule = "1f1b";
  int chunks = 1;  // stages of a rank of the pipeline (interleaved)
  int zero = 0;
  std::size_t bucket_bytes = 4u << 20;
  bool overlap = true, deterministic = false, recompute = false, sequence_parallel = false;
  bool parameter_server = false;  // not an all-reduce of gradients (data_parallel_server.cc)
  bool vocab_parallel = true, seed_style = false;  // of tensor parallelism (gpt_layers.h)
  // Folder where activations and optimizer state wait, or "host" (of a device); empty: nowhere.
  std::string offload;
  double clip = 1;        // norm of the gradient; 0: no limit
  double loss_scale = 0;  // first one of dynamic loss scaling; 0: none
  std::uint64_t seed = 1;
  int straggler_us = 0;  // for tests: the last rank sleeps so long in each step
};

// What all ranks must agree on, as text: names and values in turn. Not `straggler_us`, and of
// `offload` only what kind of place it is: the folder of each rank is its own.
std::string describe(const TrainOptions& options);

// A collective call with such a text of this rank's. Throws UsageError on every rank that names the
// first value in which a rank differs from rank 0.
void agree(World& world, const std::string& mine);

// Of one step. Seconds and bytes are this rank's.
struct StepReport {
  int step = 0;
  double loss = 0, norm = 0, rate = 0, seconds = 0;
  bool skipped = false;  // a gradient was infinite or no number: the weights are as before
  // So many steps until this one were skipped though a smaller scale is no help: the loss, which is
  // not scaled, is no number either, or nothing is scaled. The weights may be of no use any more.
  int lost = 0;
  double loss_scale = 1;                             // that this step was computed with
  double tensor_seconds = 0, pipeline_seconds = 0;   // waited
  double gradient_seconds = 0, exposed_seconds = 0;  // gradients under way; waited for
  // Of all ranks: who computed longest between waits, and how much longer than their mean.
  Rank straggler = 0;
  double straggler_ratio = 1;
  std::vector<double> busy_seconds;  // of each rank: without its waits
  double bubble = 0;  // share of time in which the ranks of this pipeline computed nothing
  std::uint64_t offloaded = 0;   // bytes that went to where they wait, and that came back
  AxisBytes sent, sent_forward;  // without the few numbers of loss and norm
  double communication_share() const {
    return (tensor_seconds + pipeline_seconds + exposed_seconds) / seconds;
  }
};

template <class T>
class Trainer {
 public:
  // Every rank of the world makes the same. Throws UsageError for options that cannot be, also
  // where ranks differ in them or the text is too short; the text must outlive it.
  Trainer(World& world, const TrainOptions& options, const Text& text);
  ~Trainer();

  StepReport step();
  int steps_done() const { return step_; }
  void set_steps_done(int step) { step_ = step; }
  Mesh& mesh() { return *mesh_; }
  int micro_batches() const { return micro_batches_; }  // of a replica
  LossScaler& scaler() { return scaler_; }              // goes on with it: restore()
  const PipelineRuntime<T>& pipeline() const { return *runtime_; }

  // Weights and optimizer state of this rank, for checkpoints; after they were read: restored().
  std::vector<Piece<HostOf<T>>> pieces();
  void restored();
  // On rank 0 every logical tensor, whole; on the others nothing. Like a collective.
  std::map<std::string, std::vector<HostOf<T>>> collect();

 private:
  void load_batches();
  double exact_squares();
  World& world_;
  const TrainOptions options_;
  const Text& text_;
  std::unique_ptr<Mesh> mesh_;
  int micro_batches_;                                     // of a replica
  std::vector<std::unique_ptr<GptStage<T>>> stages_;      // one, or `chunks`
  std::vector<std::unique_ptr<DataParallel<T>>> stores_;  // of each
  std::unique_ptr<PipelineRuntime<T>> runtime_;
  AxisBytes forward_bytes_, before_forward_;
  double pipeline_seconds_ = 0;
  std::uint64_t offloaded_ = 0;  // bytes, since the start
  int step_ = 0;
  int lost_ = 0;
  LossScaler scaler_;
  double loss_scale() const { return options_.loss_scale > 0 ? scaler_.scale() : 1; }
};

// Text that a model goes on with after `prompt` (empty: a new line), by its whole weights
// (Trainer::collect).
template <class T>
std::string generate(const GptShape& shape, const std::map<std::string, std::vector<T>>& weights,
                     const std::string& prompt, int bytes, double temperature, std::uint64_t seed);

}  // namespace weft::train
