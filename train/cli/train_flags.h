// The flags of `weft train`.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "train/cli/train_restart.h"
#include "train/trainer.h"
#include "transport/launch/local_job.h"

namespace weft {

struct TrainFlags {
  std::string save;
  int save_every = 100, keep = 2;
  bool resume = false;
  RestartFlags restart;
  JobFlags job;
  train::TrainOptions options;
  std::string sync = "allreduce", network = "gpt", data, backend = "cpu", type, optimizer = "adamw";
  std::string tp_style = "megatron";
  std::string eval_data;  // text to evaluate; empty: the last 5 % of `data`
  int eval_every = -1;    // steps between evaluations; 0: none. -1: see evaluates_every()
  std::string log, trace, prompt = "\n";
  int steps = 300, sample = 0, staleness = 4;
  double temperature = 0.8;
  bool cache = true;       // generate the sample with a KV cache
  double lr_per_256 = 0;   // --lr-per-256; 0: not given
  double peak_tflops = 0;  // peak rate per GPU; 0: looked up by the GPU's name
  // Values outside TrainOptions that must be equal on all ranks, as text for train::agree(), since
  // saving, sampling and tracing are collective. Set by check_train_flags().
  std::string agreed;
};

// Adds the flags to the command. `flags` must outlive the command.
void add_train_flags(CLI::App& command, TrainFlags& flags);

// Returns the steps between evaluations; 0: none. The default is 20 steps or 10 % of the run, since
// an evaluation costs a third of a step. A run of fewer than 20 steps is evaluated only with
// --eval-data, at its end.
int evaluates_every(const TrainFlags& flags);

// Throws UsageError, with a remedy, if the user gave a flag that this training would ignore or does
// not support. `command` has the options of add_train_flags(); `flags` has all axis sizes, the
// backend and the type.
void check_train_flags(CLI::App& command, TrainFlags& flags);

}  // namespace weft
