// Pipeline schedules as data: the ordered list of actions of each rank. Schedules do not depend on
// tensors, a clock or a communicator. runtime.h executes a schedule, checker.h verifies it,
// simulator.h times it, explain.h prints it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "topo/base/status.h"

namespace weft::train {

// F: forward pass of a micro-batch through a stage. B: gradient of the stage's input. W: gradients
// of the stage's weights. A B directly followed by its W is one backward pass.
enum class PipeOp : unsigned char {
  kForward,
  kBackwardInput,
  kBackwardWeight,
  kSendActivation,
  kRecvActivation,
  kSendGradient,
  kRecvGradient,
};
inline bool computes(PipeOp op) { return op <= PipeOp::kBackwardWeight; }
inline bool sends(PipeOp op) {
  return op == PipeOp::kSendActivation || op == PipeOp::kSendGradient;
}
inline bool receives(PipeOp op) {
  return op == PipeOp::kRecvActivation || op == PipeOp::kRecvGradient;
}

// `stage`: computes the action, sends its result, or needs the received tensor.
struct PipelineAction {
  PipeOp op;
  int microbatch;
  int stage;
  bool operator==(const PipelineAction&) const = default;
};

// Stage s is on rank s % ranks: with chunks > 1 a rank has several non-adjacent stages ("virtual
// stages", model chunks).
struct PipelineShape {
  int ranks = 1, microbatches = 1, chunks = 1;
  int stages() const { return ranks * chunks; }
  Rank rank_of(int stage) const { return stage % ranks; }
  bool operator==(const PipelineShape&) const = default;
};

struct PipelineSchedule {
  std::string name;
  PipelineShape shape;
  // A rank may do both an F and a B in one step of the logical clock (data flow).
  bool dataflow_steps = false;
  bool forward_only = false;  // evaluation: no B, no W
  std::vector<std::vector<PipelineAction>> of_rank;

  // Returns the receiver of a send, or the sender of a receive.
  Rank peer(const PipelineAction& a) const;
};

// Returns the receive action that matches this send.
PipelineAction receive_of(const PipelineAction& send);

// Returns "F2", "send F2" or, with several stages per rank, "B0.3": micro-batch and stage.
std::string describe(const PipelineAction& action, const PipelineShape& shape);

// Constructs the schedule `name`:
//
// sequential   one micro-batch at a time: model parallelism without pipelining
// dataflow     F(i, s) in step i + s, B(i, s) in step i + 2p - 1 - s; m + 2p - 1 steps
// gpipe        all F, then all B
// 1f1b         one F per stage that follows, then F and B alternate
// interleaved  1f1b over several stages per rank (Megatron-LM's order); m is a multiple of p
// zero-bubble  1f1b with W delayed into the bubble of 1f1b (ZB-H1: no rank needs more memory than
//              rank 0 of 1f1b)
//
// All schedules add a stage's gradients in micro-batch order, so that gradients have the same bits.
// A rank receives messages from another rank in send order, as late as that order permits. Throws
// Error with the list of names, or the requirement that the shape violates.
PipelineSchedule make_pipeline_schedule(std::string_view name, const PipelineShape& shape);
const std::vector<std::string>& pipeline_schedule_names();

// Constructs the schedule "forward", for any shape: each rank does F of one micro-batch after
// another, each through its stages in order.
PipelineSchedule make_forward_schedule(const PipelineShape& shape);

// Returns the bubble from the literature, for F, B, W of equal length on every stage and messages
// without delay: 1 - 1/p, (p-1)/(m+p-1), (p-1)/(vm+p-1), and for zero-bubble (m >= p, F = B = W)
// (p-1)/(3m+p-1). Returns -1 if there is no formula.
double bubble_formula(const PipelineSchedule& schedule);

}  // namespace weft::train
