// `weft train` without a GPT: the spiral (--model spiral) and measured bubbles (--bubbles).
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "coll/jobs/session.h"
#include "train/cli/train_restart.h"
#include "train/pipeline/bubble.h"
#include "train/spiral/spiral.h"

namespace weft {

struct SpiralFlags {
  train::SpiralOptions options;
  bool threads = false;  // the ranks are threads of one process
  bool bubbles = false;
  train::BubbleOptions bubble;
};

void add_spiral_flags(CLI::App& command, SpiralFlags& flags);

// Runs the spiral, on every rank; returns the exit code. log: a file to which rank 0 adds a JSON
// line for each point of the curve and one for the end; empty: no log.
int run_spiral_command(const JobFlags& job, const SpiralFlags& flags, const RestartFlags& restart,
                       const std::string& log);
int run_bubbles_command(JobFlags job, const SpiralFlags& flags);

}  // namespace weft
