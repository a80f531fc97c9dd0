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
  std::string eval_data;  // text to evaluate; empty: the last twentieth of `data`
  int eval_every = -1;    // steps between evaluations; 0: none. -1: see evaluates_every()
  std::string log, trace, prompt = "\n";
  int steps = 300, sample = 0, staleness = 4;
  double temperature = 0.8;
  bool cache = true;       // the sample is written with a KV cache
  double lr_per_256 = 0;   // 0: not given
  double peak_tflops = 0;  // of a GPU; 0: by its name
  // What must be equal on all ranks besides TrainOptions, as text for train::agree(): saving,
  // sampling and tracing are collective calls. check_train_flags() writes it.
  std::string agreed;
};

// Adds the flags to the command. `flags` must outlive the command.
void add_train_flags(CLI::App& command, TrainFlags& flags);

// Returns the steps between evaluations; 0: none. Where the user does not say, these are 20 steps
// or a tenth of the run: an evaluation costs a third of a step. A shorter run is evaluated at its
// end, if there is --eval-data.
int evaluates_every(const TrainFlags& flags);

// Throws UsageError, with a remedy, where the user gave a flag that this training would ignore or
// cannot do. `command` has the options of add_train_flags(); `flags` has the sizes of all axes, and
// the backend and type that are chosen.
void check_train_flags(CLI::App& command, TrainFlags& flags);

}  // namespace weft
