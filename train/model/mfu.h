// Model FLOPs utilization (MFU) of a training step (PaLM, arXiv 2204.02311, appendix B): counts the
// model's operations without recomputation.
//
//   FLOPs per token = 6 N + 12 L d T     N parameters, L layers, d width, T positions
//   MFU = tokens/s x FLOPs per token / (GPUs x peak)
//
// 12 L d T counts attention without the causal mask; 6 L d T would give a lower MFU. The peak is
// the rate of dense bf16 matrix products. The trainer, the planner and the balance of stages use
// these functions.
#pragma once

#include "train/model/gpt_layers.h"

namespace weft::train {

inline double flops_per_token(const GptShape& s) {
  return 6.0 * static_cast<double>(parameter_count(s)) +
         12.0 * static_cast<double>(s.layers * s.width * s.positions);
}

// Returns the FLOPs per token of one block. The next function returns the head's FLOPs in units of
// one block.
inline double block_flops_per_token(const GptShape& s) {
  return 6.0 * static_cast<double>(block_parameters(s)) +
         12.0 * static_cast<double>(s.width * s.positions);
}
inline double head_in_blocks(const GptShape& s) {
  return 6.0 * static_cast<double>(s.vocabulary * s.width) / block_flops_per_token(s);
}

}  // namespace weft::train
