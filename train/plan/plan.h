// The planner: which layouts of a model fit a cluster, how long a step takes in each, and what is
// known to go wrong. Predicts by formulas and by the pipeline's simulator; measures nothing.
#pragma once

#include <string>
#include <vector>

#include "train/plan/model_facts.h"

namespace weft::train {

// Rates are per GPU and direction. GB = 10^9 bytes.
struct Cluster {
  int gpus = 8;
  int gpus_per_host = 8;     // a high-speed domain; one rail each
  double gpu_memory = 80e9;  // bytes
  double gpu_tflops = 989;   // dense bf16
  double efficiency = 0.5;   // of that, which matrix products reach
  double domain_GBps = 450;  // within the host
  double rail_GBps = 50;     // to another host
  double domain_us = 2;      // of a message within the host, from call to arrival
  double rail_us = 5;        // of one to another host
  double headroom = 0.08;    // of the memory: what allocators, kernels and buffers take
};

// What the user has fixed; 0 (zero: -1): the planner's choice.
struct Wanted {
  int batch = 512;  // sequences per step, over all ranks
  int tp = 0, pp = 0, dp = 0, microbatch = 0, zero = -1;
  std::string schedule;  // empty: any
  bool operator==(const Wanted&) const = default;
};

struct Layout {
  int tp = 1, pp = 1, dp = 1, zero = 0;
  int microbatch = 1;    // sequences
  int microbatches = 1;  // per step and pipeline
  int chunks = 1;        // stages per rank
  std::string schedule = "1f1b";
  bool recompute = false;

  // Bytes per GPU, on the rank that holds most.
  double weights = 0, gradients = 0, optimizer = 0, activations = 0, logits = 0;
  double memory() const { return weights + gradients + optimizer + activations + logits; }
  bool fits = false;

  // Seconds. What of a transfer is hidden behind computing is not in step_s.
  double step_s = 0, compute_s = 0, tp_s = 0, dp_s = 0, dp_exposed_s = 0;
  // Of tp_s and dp_s: messages that wait for each other, whatever their size.
  double tp_latency_s = 0, dp_latency_s = 0;
  double bubble = 0;  // share of the pipeline's time
  double mfu = 0;     // 6N + 6Lhs per token against the peak; recomputed work does not count
  double tokens_per_s = 0;
  // Bytes that one GPU sends per step, by axis; of dp, those that leave the host.
  double tp_bytes = 0, pp_bytes = 0, dp_bytes = 0, dp_rail_bytes = 0;
};

// tp, dp, pp is the order of ranks: tensor parallelism inside the host, then data parallelism,
// then the pipeline. Sharded gradients and weights (ZeRO 2, 3) only without a pipeline, which would
// have to reduce them once per micro-batch.
Layout predict(const ModelShape& model, const Cluster& cluster, Layout layout);

struct Plan {
  ModelShape model;
  Cluster cluster;
  Wanted wanted;
  std::vector<Layout> layouts;  // that fit, the fastest first; the best of each tp x pp x dp
  std::vector<Layout> closest;  // where none fits: the one with the least memory
  int considered = 0, fitting = 0;
  std::string advice;                 // which strategy, and why
  std::vector<std::string> warnings;  // with numbers
};

// Throws Error where nothing can be tried: the batch or the ranks do not divide.
Plan make_plan(const ModelShape& model, const Cluster& cluster, const Wanted& wanted);
// Of the best layout, or of what the user wants.
std::vector<std::string> find_mistakes(const Plan& plan);

std::string to_text(const Plan& plan, int rows);
std::string to_json(const Plan& plan, int rows);

}  // namespace weft::train
