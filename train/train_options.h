// TrainOptions: the options of a trainer, and the text that must be equal on all ranks.
#pragma once

#include <string>
#include <vector>

#include "train/model/learning_rate.h"
#include "train/parallel/data_parallel.h"

namespace weft::train {

// Names of TrainOptions::embed, in the order of Embed.
inline const std::vector<std::string> kEmbeds = {"vocab-parallel", "owner"};

struct TrainOptions {
  GptShape model;
  MeshShape mesh;
  OptimizerOptions optimizer;
  RateSchedule rate;
  Index batch = 8;        // samples per step, over all replicas
  Index micro_batch = 1;  // samples of one forward pass
  std::string schedule = "1f1b";
  int chunks = 1;  // stages per rank (interleaved schedules)
  int zero = 0;
  std::size_t bucket_bytes = 4u << 20;
  bool overlap = true, deterministic = false, recompute = false, sequence_parallel = false;
  std::string compress = "none";  // codec of gradients between replicas: none, int8, fp8
  // Use a parameter server instead of the all-reduce of gradients.
  bool parameter_server = false;
  bool seed_style = false;               // GptParallel::seed_style
  std::string embed = "vocab-parallel";  // one of kEmbeds
  // Folder to which activations and optimizer state are offloaded, or "host": pinned host memory,
  // for a device. Empty: no offload.
  std::string offload;
  double clip = 1;        // largest norm of the gradients; 0: no clipping
  double loss_scale = 0;  // initial scale of dynamic loss scaling; 0: no scaling
  std::uint64_t seed = 1;
  int straggler_us = 0;     // for tests: delay of the last rank in each step
  bool count_bytes = true;  // fill StepReport::sent, which takes time with many ranks
};

// Calls visit(name, value) for every option that must be equal on all ranks, in the order of
// describe(). `straggler_us` and `count_bytes` are excluded. `offload` is reduced to its kind,
// because each rank may have its own folder.
template <class Options, class Visit>
void for_each_option(Options& o, Visit visit) {
  std::string offload =
      o.offload.empty() || o.offload == DeviceOffload::kHost ? o.offload : "folder";
  if (offload.empty()) offload = "nowhere";
  visit("vocabulary", o.model.vocabulary);
  visit("positions", o.model.positions);
  visit("width", o.model.width);
  visit("heads", o.model.heads);
  visit("layers", o.model.layers);
  visit("tied", o.model.tied);
  visit("dp", o.mesh.data);
  visit("tp", o.mesh.tensor);
  visit("pp", o.mesh.pipeline);
  visit("shard", o.mesh.shard);
  visit("batch", o.batch);
  visit("micro-batch", o.micro_batch);
  visit("schedule", o.schedule);
  visit("chunks", o.chunks);
  visit("zero", o.zero);
  visit("bucket", o.bucket_bytes);
  visit("overlap", o.overlap);
  visit("deterministic", o.deterministic);
  visit("recompute", o.recompute);
  visit("sequence", o.sequence_parallel);
  visit("embed", o.embed);
  visit("seed-style", o.seed_style);
  visit("adam", o.optimizer.adam);
  visit("decay", o.optimizer.decay);
  visit("clip", o.clip);
  visit("seed", o.seed);
  visit("server", o.parameter_server);
  visit("lr", o.rate.peak);
  visit("warm-up", o.rate.warm_up);
  visit("start", o.rate.start);
  visit("steps", o.rate.steps);
  visit("floor", o.rate.floor);
  visit("loss-scale", o.loss_scale);
  visit("offload", offload);
  visit("algo", o.mesh.algorithm);
  visit("beta1", o.optimizer.beta1);
  visit("beta2", o.optimizer.beta2);
  visit("epsilon", o.optimizer.epsilon);
  visit("momentum", o.optimizer.momentum);
  visit("compress", o.compress);
}

// Returns the options as text: "name value name value ...". Checkpoints contain this text.
std::string describe(const TrainOptions& options);

// Returns `options` with the values that a text of describe() contains, except `offload`.
TrainOptions with_described(TrainOptions options, const std::string& text);

// Collective. `mine` is a text of describe(). Throws UsageError on every rank if texts differ;
// the message names the first value in which a rank differs from rank 0.
void agree(World& world, const std::string& mine);

// Returns the tensor parallelism of the options, without a communicator.
GptParallel parallel_of(const TrainOptions& options);

// Throws UsageError if options contradict each other.
void check(const TrainOptions& options);

}  // namespace weft::train
