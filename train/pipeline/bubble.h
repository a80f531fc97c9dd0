// Measures the bubble of every schedule over stages that take a fixed time, for comparison with the
// simulator and the formulas.
#pragma once

#include <string>
#include <vector>

#include "coll/api/communicator.h"
#include "train/pipeline/schedule.h"

namespace weft::train {

struct BubbleRow {
  std::string schedule;
  int microbatches;
  double measured, simulated;
  double formula;  // -1: no formula for this shape
};

// Runs every schedule with 1, 2, 4 ... 32 micro-batches where the schedule allows that
// (interleaved: multiples of the number of ranks). op_us: sleep of each F, B and W, split among the
// two stages of interleaved ranks. A collective call; returns the same rows on every rank.
std::vector<BubbleRow> measure_bubbles(Communicator comm, int op_us);

// The rows as a table.
std::string to_text(const std::vector<BubbleRow>& rows);

}  // namespace weft::train
