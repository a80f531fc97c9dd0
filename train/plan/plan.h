// The planner: predicts which layouts of a model fit a cluster, and each layout's step time and
// known mistakes. It uses formulas and the pipeline simulator, and measures nothing.
#pragma once

#include <string>
#include <vector>

#include "coll/machine.h"
#include "train/plan/model_facts.h"

namespace weft::train {

// Bytes of a gradient bucket; smaller ones need more messages, larger ones overlap less.
inline constexpr double kBucket = 25e6;

// Rates are per GPU and direction. GB = 10^9 bytes.
struct Cluster {
  int gpus = 8;
  int gpus_per_host = 8;    // GPUs of a high-speed domain (NVLink), each with one rail
  double efficiency = 0.5;  // share of the peak tflops that matrix products reach
  double headroom = 0.08;   // share of memory reserved for allocators, kernels and buffers
  Machine machine = machine_named(kDefaultMachine);

  double gpu_memory() const { return machine.memory_bytes; }
  double gpu_tflops() const { return machine.tflops; }
  double host_GBps() const { return machine.host.gbps / 8; }
  double rail_GBps() const { return machine.rail.gbps * machine.payload_share / 8; }
  // Returns the time of a message from call to arrival: latency plus core time at both ends.
  double host_us() const { return machine.host.us + 2 * machine.core_us; }
  double rail_us() const { return machine.rail.us + 2 * (machine.core_us + machine.rail_core_us); }
};

// The user's constraints; 0 (`zero`: -1) leaves the choice to the planner.
struct Wanted {
  int batch = 512;  // sequences per step, over all ranks
  int tp = 0, pp = 0, dp = 0, microbatch = 0, zero = -1;
  int ep = 0, cp = 1;    // see Layout
  std::string schedule;  // pipeline schedule; empty: any
  Precision precision;
  bool operator==(const Wanted&) const = default;
};

// Memory of one rank in bytes.
struct RankMemory {
  double weights = 0, gradients = 0, optimizer = 0;
  double activations = 0;  // saved from the forward to the backward pass
  double logits = 0;
  double working = 0;  // error tensors, messages, gathered weights, scratch memory
  double total() const { return weights + gradients + optimizer + activations + logits + working; }
};

struct Layout {
  int tp = 1, pp = 1, dp = 1, zero = 0;
  // ep: number of data-parallel ranks that shard the experts (expert parallelism, GShard). cp:
  // number of ranks that shard each sequence (ring attention, Liu et al., arXiv 2310.01889).
  int ep = 1, cp = 1;
  int microbatch = 1;    // sequences
  int microbatches = 1;  // micro-batches per step and pipeline
  int chunks = 1;        // number of stages per rank
  std::string schedule = "1f1b";
  bool recompute = false;
  Precision precision;

  RankMemory memory;  // memory of the rank with the highest peak
  bool fits = false;
  // Of the rank that sends the most: blocks, parameters, and bytes sent per step and axis;
  // dp_rail_bytes: the dp bytes that leave the host.
  int blocks = 0;
  double parameters = 0;
  double tp_bytes = 0, pp_bytes = 0, dp_bytes = 0, dp_rail_bytes = 0, ep_bytes = 0, cp_bytes = 0;

  // Seconds. step_s includes only the exposed part of transfers, not the overlapped part.
  double step_s = 0, compute_s = 0, tp_s = 0, dp_s = 0, dp_exposed_s = 0, ep_s = 0, cp_s = 0;
  // The part of tp_s and dp_s that is message latency, independent of size.
  double tp_latency_s = 0, dp_latency_s = 0;
  double bubble = 0;  // idle fraction of the pipeline's time
  double pace = 1;    // work of the slowest pipeline rank / mean work
  double mfu = 0;     // train/model/mfu.h, without recomputation
  double tokens_per_s = 0;

  int replicas() const { return dp * cp; }  // ranks with the same weights, except experts
  int ranks() const { return tp * pp * dp * cp; }
};

// Computes a layout's memory and time. Rank order is tp, dp, pp: tensor parallelism inside the
// host, then data parallelism, then the pipeline. Memory and bytes equal weft train's.
Layout predict(const ModelShape& model, const Cluster& cluster, Layout layout);

struct Plan {
  ModelShape model;
  Cluster cluster;
  Wanted wanted;
  std::vector<Layout> layouts;  // the best fitting layout of each tp x pp x dp, fastest first
  std::vector<Layout> closest;  // if no layout fits: the layout with the least memory
  int considered = 0, fitting = 0;
  std::string advice;                 // the recommended strategy and its reason
  std::vector<std::string> warnings;  // warnings, with numbers
};

// Ranks all layouts. Throws Error if batch or ranks are not divisible in any layout.
Plan make_plan(const ModelShape& model, const Cluster& cluster, const Wanted& wanted);
// Returns one sentence per known mistake of the best layout, or of the user's choices.
std::vector<std::string> find_mistakes(const Plan& plan);

std::string to_text(const Plan& plan, int rows);
std::string to_json(const Plan& plan, int rows);

}  // namespace weft::train
