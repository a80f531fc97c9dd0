// Measures the bubble of every schedule over stages that take a fixed time, for comparison with the
// simulator and the formulas.
#pragma once

#include <string>
#include <vector>

#include "coll/api/communicator.h"
#include "train/pipeline/schedule.h"

namespace weft::train {

struct BubbleOptions {
  std::vector<std::string> schedules = pipeline_schedule_names();
  std::vector<int> microbatches = {1, 2, 4, 8, 16, 32};
  int chunks = 2;       // stages per rank (interleaved schedules)
  int op_us = 3000;     // sleep of each F, B and W, split among the chunks
  int elements = 1024;  // elements of a message
};

struct BubbleRow {
  std::string schedule;
  int microbatches;
  double measured, simulated;
  double formula;  // -1: no formula for this shape
  // seconds: from the first rank's begin to the last rank's end. least_seconds: the simulator's
  // time for F, B and W of exactly their fixed time.
  double seconds, least_seconds;
};

// Runs every schedule with every number of micro-batches that the schedule allows (interleaved:
// multiples of the number of ranks). A collective call; returns the same rows on every rank.
std::vector<BubbleRow> measure_bubbles(Communicator comm, const BubbleOptions& options);

// The rows as a table.
std::string to_text(const std::vector<BubbleRow>& rows);

}  // namespace weft::train
