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
  int chunks = 1;  // stages per rank (interleaved schedules)
  int zero = 0;
  std::size_t bucket_bytes = 4u << 20;
  bool overlap = true, deterministic = false, recompute = false, sequence_parallel = false;
  bool parameter_server = false;                   // in place of the all-reduce of gradients
  bool vocab_parallel = true, seed_style = false;  // forms of tensor parallelism (GptParallel)
  // Folder to which activations and optimizer state are offloaded, or "host": pinned memory, for a
  // device. Empty: no offload.
  std::string offload;
  double clip = 1;        // largest norm of the gradient; 0: no limit
  double loss_scale = 0;  // first scale of dynamic loss scaling; 0: no scaling
  std::uint64_t seed = 1;
  int straggler_us = 0;  // for tests: the last rank sleeps this long in each step
};

// The options that all ranks must agree on, as text: names and values in turn. The text leaves
// `straggler_us` out and says only the kind of `offload`: each rank may name a folder of its own.
std::string describe(const TrainOptions& options);

// A collective call; `mine` is such a text. Throws UsageError on every rank; its message names the
// first value in which a rank differs from rank 0.
void agree(World& world, const std::string& mine);

// The figures of one step. Seconds and bytes are this rank's.
struct StepReport {
  int step = 0;
  double loss = 0, norm = 0, rate = 0, seconds = 0;
  bool skipped = false;  // a gradient was infinite or NaN; the weights are unchanged
  // Number of consecutive skipped steps, up to this one, that a smaller scale cannot cure: the
  // unscaled loss is not finite either, or nothing is scaled. The weights may be ruined.
  int lost = 0;
  double loss_scale = 1;                             // the scale of this step
  double tensor_seconds = 0, pipeline_seconds = 0;   // waits for tensor peers, for stages
  double gradient_seconds = 0, exposed_seconds = 0;  // gradients in flight; waits for gradients
  // The rank that computed longest between its waits, and its time over the mean of all ranks.
  Rank straggler = 0;
  double straggler_ratio = 1;
  std::vector<double> busy_seconds;  // of each rank, without its waits
  double bubble = 0;  // share of time in which the ranks of this pipeline computed nothing
  std::uint64_t offloaded = 0;   // bytes written by offloads and read back
  AxisBytes sent, sent_forward;  // bytes sent, without the few of loss and norm
  double communication_share() const {
    return (tensor_seconds + pipeline_seconds + exposed_seconds) / seconds;
  }
};

template <class T>
class Trainer {
 public:
  // A collective call. Throws UsageError where options contradict each other or differ between
  // ranks, or the text is too short. `world` and `text` must outlive the trainer.
  Trainer(World& world, const TrainOptions& options, const Text& text);
  ~Trainer();

  StepReport step();
  int steps_done() const { return step_; }
  void set_steps_done(int step) { step_ = step; }
  Mesh& mesh() { return *mesh_; }
  int micro_batches() const { return micro_batches_; }  // per replica and step
  LossScaler& scaler() { return scaler_; }              // for restore() from a checkpoint
  const PipelineRuntime<T>& pipeline() const { return *runtime_; }

  // Weights and optimizer state of this rank, for checkpoints.
  std::vector<TensorPart<HostOf<T>>> pieces();
  // Must follow a load into pieces(): every rank gets the weights it needs. A collective call.
  void restored();
  // Returns every logical tensor, whole, on rank 0, and nothing elsewhere. A collective call.
  std::map<std::string, std::vector<HostOf<T>>> collect();

 private:
  void load_batches();
  double exact_squares();
  World& world_;
  const TrainOptions options_;
  const Text& text_;
  std::unique_ptr<Mesh> mesh_;
  int micro_batches_;                                     // per replica and step
  std::vector<std::unique_ptr<GptStage<T>>> stages_;      // `chunks` stages
  std::vector<std::unique_ptr<DataParallel<T>>> stores_;  // of each stage
  std::unique_ptr<PipelineRuntime<T>> runtime_;
  AxisBytes forward_bytes_, before_forward_;
  double pipeline_seconds_ = 0;
  std::uint64_t offloaded_ = 0;  // bytes, since the start
  int step_ = 0;
  int lost_ = 0;
  LossScaler scaler_;
  double loss_scale() const { return options_.loss_scale > 0 ? scaler_.scale() : 1; }
};

// Samples `bytes` bytes of text after `prompt` (empty: a new line) from the whole weights that
// Trainer::collect() returned.
template <class T>
std::string generate(const GptShape& shape, const std::map<std::string, std::vector<T>>& weights,
                     const std::string& prompt, int bytes, double temperature, std::uint64_t seed);

}  // namespace weft::train
