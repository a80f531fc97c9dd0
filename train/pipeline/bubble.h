// Measures the bubble of every schedule with stages of a fixed time, for comparison with the
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

// Collective. Runs every schedule with 1, 2, 4 ... 32 micro-batches, if the schedule supports the
// number (interleaved: multiples of the ranks). op_us: time of each F, B and W, halved for the two
// model chunks of interleaved ranks. Returns the same rows on every rank.
std::vector<BubbleRow> measure_bubbles(Communicator comm, int op_us);

// Formats the rows as a table.
std::string to_text(const std::vector<BubbleRow>& rows);

}  // namespace weft::train
