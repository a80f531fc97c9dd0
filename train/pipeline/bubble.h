// Measures bubbles: every schedule run over stages that take a fixed time, whose figures can be
// compared with the formulas.
#pragma once

#include <string>
#include <vector>

#include "coll/api/communicator.h"
#include "train/pipeline/schedule.h"

namespace weft::train {

struct BubbleOptions {
  std::vector<std::string> schedules = pipeline_schedule_names();
  std::vector<int> microbatches = {1, 2, 4, 8, 16, 32};
  int chunks = 2;       // stages per rank, of interleaved
  int op_us = 3000;     // of F, B and W each (the rank sleeps so long); split among the chunks
  int elements = 1024;  // of a message
};

struct BubbleRow {
  std::string schedule;
  int microbatches;
  double measured, simulated;
  double formula;  // -1: none for this shape
  // From the first rank's begin to the last one's end, and what that takes at least: by the
  // simulator, where no F, B or W is longer than its fixed time.
  double seconds, least_seconds;
};

// Runs every schedule for every number of micro-batches that it takes (interleaved: multiples of
// the number of ranks). A collective call; the rows are the same on every rank.
std::vector<BubbleRow> measure_bubbles(Communicator comm, const BubbleOptions& options);

// The rows as a table.
std::string to_text(const std::vector<BubbleRow>& rows);

}  // namespace weft::train
