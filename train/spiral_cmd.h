// What `weft train` does besides training a GPT: the spiral (--model spiral) and measured bubbles
// (--bubbles).
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "perf/session.h"
#include "train/pipeline_bubble.h"
#include "train/spiral.h"

namespace weft {

struct SpiralFlags {
  train::SpiralOptions options;
  bool bubbles = false;
  train::BubbleOptions bubble;
};

void add_spiral_flags(CLI::App& command, SpiralFlags& flags);

// On every rank; returns the exit code. log: a file to which rank 0 adds a JSON line, or empty.
int run_spiral_command(JobFlags job, const SpiralFlags& flags, const std::string& log);
int run_bubbles_command(JobFlags job, const SpiralFlags& flags);

}  // namespace weft
