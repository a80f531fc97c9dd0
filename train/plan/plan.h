// The planner: predicts which layouts of a model fit a cluster, how long a step takes in each, and
// which known mistakes a layout makes. It uses formulas and the pipeline's simulator, and measures
// nothing.
#pragma once

#include <string>
#include <vector>

#include "coll/machine.h"
#include "train/plan/model_facts.h"

namespace weft::train {

// Bytes of gradients that travel together; less makes more messages, more hides less.
inline constexpr double kBucket = 25e6;

// Rates are per GPU and direction. GB = 10^9 bytes.
struct Cluster {
  int gpus = 8;
  int gpus_per_host = 8;    // GPUs of a high-speed domain, each with one rail
  double efficiency = 0.5;  // share of the machine's tflops that matrix products reach
  double headroom = 0.08;   // share of the memory that allocators, kernels and buffers take
  Machine machine = machine_named(kDefaultMachine);

  double gpu_memory() const { return machine.memory_bytes; }
  double gpu_tflops() const { return machine.tflops; }
  double host_GBps() const { return machine.host.gbps / 8; }
  double rail_GBps() const { return machine.rail.gbps * machine.payload_share / 8; }
  // Of a message, from call to arrival: latency and the work of the cores at both ends.
  double host_us() const { return machine.host.us + 2 * machine.core_us; }
  double rail_us() const { return machine.rail.us + 2 * (machine.core_us + machine.rail_core_us); }
};

// The user's choices; 0 (of `zero`: -1) leaves the choice to the planner.
struct Wanted {
  int batch = 512;  // sequences per step, over all ranks
  int tp = 0, pp = 0, dp = 0, microbatch = 0, zero = -1;
  int ep = 0, cp = 1;    // as in Layout
  std::string schedule;  // empty: any
  Precision precision;
  bool operator==(const Wanted&) const = default;
};

// Bytes of one rank.
struct RankMemory {
  double weights = 0, gradients = 0, optimizer = 0;
  double activations = 0;  // kept from the forward to the backward pass
  double logits = 0;
  double working = 0;  // errors, messages, gathered weights, scratch memory
  double total() const { return weights + gradients + optimizer + activations + logits + working; }
};

struct Layout {
  int tp = 1, pp = 1, dp = 1, zero = 0;
  // ep: the number of data-parallel ranks that share the experts (expert parallelism, GShard). cp:
  // the number of ranks that share each sequence (ring attention, Liu et al., arXiv 2310.01889).
  int ep = 1, cp = 1;
  int microbatch = 1;    // sequences
  int microbatches = 1;  // per step and pipeline
  int chunks = 1;        // stages per rank
  std::string schedule = "1f1b";
  bool recompute = false;
  Precision precision;

  RankMemory memory;  // of the rank that needs the most
  bool fits = false;
  // Of the rank that sends the most: its blocks and parameters, and the bytes that it sends per
  // step, by axis; dp_rail_bytes: the dp bytes that leave the host.
  int blocks = 0;
  double parameters = 0;
  double tp_bytes = 0, pp_bytes = 0, dp_bytes = 0, dp_rail_bytes = 0, ep_bytes = 0, cp_bytes = 0;

  // Seconds. step_s counts only the exposed part of transfers, not the part hidden by computing.
  double step_s = 0, compute_s = 0, tp_s = 0, dp_s = 0, dp_exposed_s = 0, ep_s = 0, cp_s = 0;
  // The part of tp_s and dp_s that is latency of messages, independent of their size.
  double tp_latency_s = 0, dp_latency_s = 0;
  double bubble = 0;  // share of the pipeline's time
  double pace = 1;    // work of the pipeline's slowest rank over the mean
  double mfu = 0;     // train/model/mfu.h, without recomputed work
  double tokens_per_s = 0;

  int replicas() const { return dp * cp; }  // ranks with the same weights, but for experts
  int ranks() const { return tp * pp * dp * cp; }
};

// Fills in a layout's memory and time. Ranks are in the order tp, dp, pp: tensor parallelism inside
// the host, then data parallelism, then the pipeline. Memory and bytes are those of weft train.
Layout predict(const ModelShape& model, const Cluster& cluster, Layout layout);

struct Plan {
  ModelShape model;
  Cluster cluster;
  Wanted wanted;
  std::vector<Layout> layouts;  // the best fitting layout of each tp x pp x dp, the fastest first
  std::vector<Layout> closest;  // where no layout fits: the one that needs the least memory
  int considered = 0, fitting = 0;
  std::string advice;                 // the recommended strategy and its reason
  std::vector<std::string> warnings;  // with numbers
};

// Ranks all layouts. Throws Error where the batch or the ranks do not divide in any layout.
Plan make_plan(const ModelShape& model, const Cluster& cluster, const Wanted& wanted);
// Returns a sentence for each known mistake of the best layout, or of the user's choices.
std::vector<std::string> find_mistakes(const Plan& plan);

std::string to_text(const Plan& plan, int rows);
std::string to_json(const Plan& plan, int rows);

}  // namespace weft::train
