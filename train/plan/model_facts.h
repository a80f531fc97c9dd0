// Formulas for a transformer's parameters, operations and bytes, each with its source, for the
// planner and the trainer's reports. Nothing is measured.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "train/model/gpt_layers.h"

namespace weft::train {

// Attention with fewer key/value heads (grouped-query attention, Ainslie et al., arXiv 2305.13245),
// or with keys and values projected from a latent vector of kv_rank numbers (multi-head latent
// attention, DeepSeek-V2, arXiv 2405.04434: head_size is then the size of q and k, rope_size its
// part with rotary positions, and value_size the size of v).
struct AttentionParts {
  int kv_heads = 0;   // 0: equal to heads
  int head_size = 0;  // 0: hidden / heads
  int q_rank = 0, kv_rank = 0, rope_size = 0, value_size = 0;
};
// Mixture of experts (GShard, Lepikhin et al., arXiv 2006.16668): each token uses `active` experts
// and the shared ones. The first `dense_layers` blocks have a dense network.
struct ExpertParts {
  int experts = 0, active = 0, shared = 0, width = 0, dense_layers = 0;
  bool bias = false;  // the router has one number per expert for load balancing (DeepSeek-V3)
};

// A decoder. Either like GPT-2 and GPT-3 (`ffn` 0), as in weft train: learned positions, biases,
// GELU with width 4 hidden, tied embedding. Or like Llama, in the planner only: rotary positions,
// no biases, RMSNorm, SwiGLU of width `ffn`, untied head (arXiv 2407.21783).
struct ModelShape {
  std::string name;
  int layers = 12, hidden = 768, heads = 12;
  int vocabulary = 50257, sequence = 1024;
  int ffn = 0;
  AttentionParts attention = {};
  ExpertParts moe = {};

  bool gpt() const { return ffn == 0; }  // true: weft train supports the model
  GptShape shape() const;                // the shape for the trainer
  std::int64_t h() const { return hidden; }
  // Size of q and k of a head; of v of a head; width of q, and of k and v together, of all heads.
  std::int64_t key_size() const;
  std::int64_t value_size() const;
  std::int64_t q_width() const { return heads * key_size(); }
  std::int64_t kv_width() const;
  // Returns the number of elements per token and block in a KV cache.
  std::int64_t cached() const;
  // Parameters of a block: of attention; of the FFN (dense, or all experts and the router); of the
  // FFN, active per token.
  std::int64_t attention_parameters() const;
  std::int64_t ffn_parameters() const;
  std::int64_t active_ffn_parameters() const;
  // Parameters of one expert.
  std::int64_t expert_parameters() const { return 3 * h() * moe.width; }
  int moe_layers() const { return moe.experts > 0 ? layers - moe.dense_layers : 0; }
  // Parameters of all blocks, without norms; of the model, with the final norm; of the model,
  // active per token.
  std::int64_t blocks() const;
  std::int64_t parameters() const;
  std::int64_t active_parameters() const;
  // FLOPs per token of the model and of its mean block; the head in units of blocks (mfu.h).
  double flops() const;
  double block_flops() const;
  double head_blocks() const { return 6.0 * vocabulary * hidden / block_flops(); }
  // The number of parameters that the user requested; 0: a known model.
  double asked = 0;
  // Returns the requested number, otherwise parameters().
  double stated() const { return asked > 0 ? asked : static_cast<double>(parameters()); }
};

// Throws Error with the list of known_models().
ModelShape known_model(std::string_view name);
const std::vector<std::string>& known_models();

// Returns a shape of about `parameters` parameters. layers, hidden, heads: 0 leaves the choice;
// hidden is then about 128 per layer and a multiple of 128, and the head size is 128.
ModelShape model_of_size(double parameters, int layers, int hidden, int heads, int sequence);

// Bytes per element of a run, as in weft train.
struct Precision {
  double element = 2;  // weights, activations and gradients of a micro-batch
  double wide = 4;     // moments, statistics, gradient sums and, with 16 bits, master weights
  bool has_master() const { return element < wide; }
  bool operator==(const Precision&) const = default;
};
// type: bf16, fp16, float or double. Throws Error with this list.
Precision precision_of(std::string_view type);

// Rule of thumb for bytes of model state per parameter with mixed precision and Adam: 2 weight, 2
// gradient, 8 moments, 4 fp32 weight, 4 fp32 gradient = 20. ZeRO-1 shards 16 of them over d ranks,
// ZeRO-2 also the gradient's 2, ZeRO-3 all: 4 + 16/d, 2 + 18/d, 20/d. rank_facts.h has the exact
// bytes of weft train.
inline constexpr double kStateBytes = 20;
double state_bytes_per_parameter(int zero, int d);

// "174,604,259,328"
std::string with_commas(std::int64_t value);
// Parses "80G", "1.5T", "400M", "80GiB", "10e9": K, M, G, T are powers of 1000, KiB .. TiB of 1024.
// Throws Error with the flag.
double parse_amount(std::string_view flag, std::string_view text);

}  // namespace weft::train
