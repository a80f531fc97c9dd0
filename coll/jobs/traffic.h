// What the ranks of a training job send each other in one step: plain numbers, which the trainer's
// planner knows and the fabric tester plays. Neither of the two includes the other: the program
// that joins their commands hands the planner's function over. Knows no model and no fabric.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "coll/types.h"

namespace weft {

// The job that a user asks for: tp x pp x dp ranks, numbered in the order tp, dp, pp.
struct TrafficAsked {
  std::string model;  // of the planner: "gpt3"
  int tp = 1, pp = 1, dp = 1;
  int batch = 512;  // sequences per step, over all ranks
};

// The ranks that a message is among: those of a layer, of a pipeline, or with the same weights.
enum class TrafficAxis { kTensor, kPipeline, kData };

// Calls that every rank of such a group makes one after the other.
struct TrafficPart {
  TrafficAxis axis = TrafficAxis::kTensor;
  Collective collective = Collective::kAllReduce;  // kSendRecv: to the next stage
  bool back = false;                               // of kSendRecv: to the stage before
  std::uint64_t bytes = 0;                         // of the whole message of a call
  std::uint64_t calls = 0;
};

// Parts that follow each other, so many times.
struct TrafficBeat {
  std::uint64_t times = 1;
  std::vector<TrafficPart> parts;
};

struct JobTraffic {
  TrafficAsked job;
  std::vector<TrafficBeat> beats;  // of a step, in order
};

using TrafficPlanner = std::function<JobTraffic(const TrafficAsked&)>;

}  // namespace weft
