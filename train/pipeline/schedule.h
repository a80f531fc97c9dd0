// Pipeline schedules as data: for each rank the list of what it does, in order. No tensors, no
// clock, no communicator in here. The same list is executed (pipeline/runtime.h), proved
// (pipeline/checker.h), timed (pipeline/simulator.h) and explained (pipeline/explain.h).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "topo/base/status.h"

namespace weft::train {

// F: the forward pass of a micro-batch through a stage. B: its backward pass as far as the gradient
// of its input. W: the gradients of its weights. B directly followed by its W is one backward pass.
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

// `stage` is the one that computes, makes what is sent, or needs what is received.
struct PipelineAction {
  PipeOp op;
  int microbatch;
  int stage;
  bool operator==(const PipelineAction&) const = default;
};

// Stage s is on rank s % ranks: with chunks > 1 a rank has several that do not follow each other
// ("virtual stages").
struct PipelineShape {
  int ranks = 1, microbatches = 1, chunks = 1;
  int stages() const { return ranks * chunks; }
  Rank rank_of(int stage) const { return stage % ranks; }
  bool operator==(const PipelineShape&) const = default;
};

struct PipelineSchedule {
  std::string name;
  PipelineShape shape;
  // A step of this schedule's time is one of data flow: a rank may do an F and a B in it.
  bool dataflow_steps = false;
  std::vector<std::vector<PipelineAction>> of_rank;

  // The other rank of a message: who gets what is sent, who made what is received.
  Rank peer(const PipelineAction& a) const;
};

// "F2", "B0.3": the micro-batch, and the stage where a rank has several. "send F2", "recv B2".
std::string describe(const PipelineAction& action, const PipelineShape& shape);

// sequential   one micro-batch at a time: model parallelism without pipelining
// dataflow     F(i, s) in step i + s, B(i, s) in step i + 2p - 1 - s; m + 2p - 1 steps
// gpipe        all F, then all B
// 1f1b         as many F as there are stages behind, then F and B in turn
// interleaved  1f1b over several stages per rank (Megatron-LM's order); m a multiple of p
// zero-bubble  1f1b with the W put off into what would be the bubble (ZB-H1: no more memory than
//              1f1b on rank 0 needs)
//
// In all of them the gradients of a stage are added up in the order of micro-batches, so that they
// are the same bits. Messages between two ranks are received in the order they are sent, as late as
// that permits. Throws Error that lists the names, or says what the shape lacks.
PipelineSchedule make_pipeline_schedule(std::string_view name, const PipelineShape& shape);
const std::vector<std::string>& pipeline_schedule_names();

// The share of time that ranks wait, as the literature has it for F, B, W of equal length on every
// stage and messages that take no time: 1 - 1/p, (p-1)/(m+p-1), (p-1)/(vm+p-1), and for zero-bubble
// (m >= p, F = B = W) (p-1)/(3m+p-1). -1 where there is no formula.
double bubble_formula(const PipelineSchedule& schedule);

}  // namespace weft::train
