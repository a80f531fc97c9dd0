// RankFacts: the memory and traffic of a rank of a layout per step, exact to the byte for weft
// train (tests/train/plan/plan_and_run_test.cc compares them). Formulas of sizes only, no times.
#pragma once

#include <vector>

#include "train/plan/plan.h"

namespace weft::train {

// Facts of the ranks of one pipeline stage.
struct RankFacts {
  bool first = false, last = false;  // the stage has the embedding; the head
  int blocks = 0;                    // blocks of all stages of a rank
  double parameters = 0;             // number of parameters
  RankMemory memory;                 // memory at the peak
  // Bytes sent per step and axis: the mean over the ranks of this stage.
  double tp_bytes = 0, pp_bytes = 0, dp_bytes = 0, ep_bytes = 0, cp_bytes = 0;
};

// Returns the facts by pipeline rank.
std::vector<RankFacts> rank_facts(const ModelShape& model, const Layout& layout);

// Returns the work of each stage per step, in blocks: its blocks, and the head.
std::vector<double> stage_weights(const ModelShape& model, const Layout& layout);

}  // namespace weft::train
