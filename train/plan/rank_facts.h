// RankFacts: what a rank of a layout has, keeps and sends in a step, to the byte as weft train does
// it (tests/train/plan/plan_and_run_test.cc compares them). Formulas of a layout's sizes; no time.
#pragma once

#include <vector>

#include "train/plan/plan.h"

namespace weft::train {

// Figures of the ranks at one place of the pipeline.
struct RankFacts {
  bool first = false, last = false;  // has the embedding, the head
  int blocks = 0;                    // of all its stages
  double parameters = 0;             // elements
  RankMemory memory;                 // at its peak
  // Bytes sent per step, by axis: the mean over the ranks at this place.
  double tp_bytes = 0, pp_bytes = 0, dp_bytes = 0, ep_bytes = 0, cp_bytes = 0;
};

// Returns the facts by place in the pipeline.
std::vector<RankFacts> rank_facts(const ModelShape& model, const Layout& layout);

// Returns what each stage of the layout computes in a step, in blocks: its blocks, and the head.
std::vector<double> stage_weights(const ModelShape& model, const Layout& layout);

}  // namespace weft::train
