// Formulas for a transformer's parameters, operations and bytes, each with its source. The planner
// and the trainer's reports use them; they measure nothing.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "train/model/gpt_layers.h"

namespace weft::train {

// Attention with fewer heads of keys and values (grouped-query attention, Ainslie et al., arXiv
// 2305.13245), or with both projected from a vector of kv_rank numbers (multi-head latent
// attention, DeepSeek-V2, arXiv 2405.04434: then head_size is that of q and k, rope_size of it with
// positions, and value_size that of v).
struct AttentionParts {
  int kv_heads = 0;   // 0: as many as heads
  int head_size = 0;  // 0: hidden / heads
  int q_rank = 0, kv_rank = 0, rope_size = 0, value_size = 0;
};
// Mixture of experts (GShard, Lepikhin et al., arXiv 2006.16668): a token passes `active` of them
// and the shared ones. The first `dense_layers` blocks have one dense network.
struct ExpertParts {
  int experts = 0, active = 0, shared = 0, width = 0, dense_layers = 0;
  bool bias = false;  // a number per expert that balances the load (DeepSeek-V3)
};

// A decoder. As GPT-2 and GPT-3 (`ffn` 0), which weft train has: learned positions, biases
// everywhere, GELU and a width of 4 hidden, a head tied to the embedding. Or as Llama, which only
// the planner has: rotary positions, no biases, RMSNorm, SwiGLU of width `ffn`, a head of its own
// (arXiv 2407.21783).
struct ModelShape {
  std::string name;
  int layers = 12, hidden = 768, heads = 12;
  int vocabulary = 50257, sequence = 1024;
  int ffn = 0;
  AttentionParts attention = {};
  ExpertParts moe = {};

  bool gpt() const { return ffn == 0; }  // weft train has it
  GptShape shape() const;                // of the trainer
  std::int64_t h() const { return hidden; }
  // Of a head: of q and k, of v; of all heads: of q, of k and v together.
  std::int64_t key_size() const;
  std::int64_t value_size() const;
  std::int64_t q_width() const { return heads * key_size(); }
  std::int64_t kv_width() const;
  // Numbers that a KV cache keeps per token and block.
  std::int64_t cached() const;
  // Of a block: attention; FFN, dense or all experts with their router; what a token passes of it.
  std::int64_t attention_parameters() const;
  std::int64_t ffn_parameters() const;
  std::int64_t active_ffn_parameters() const;
  std::int64_t expert_parameters() const { return 3 * h() * moe.width; }  // of one
  int moe_layers() const { return moe.experts > 0 ? layers - moe.dense_layers : 0; }
  // Of all blocks, without norms; of the model, with the last norm; those that a token passes.
  std::int64_t blocks() const;
  std::int64_t parameters() const;
  std::int64_t active_parameters() const;
  // FLOPs per token of the model, of its mean block, and the head in such blocks (mfu.h).
  double flops() const;
  double block_flops() const;
  double head_blocks() const { return 6.0 * vocabulary * hidden / block_flops(); }
  // The number of parameters that the user asked for; 0: the shape is a known model's.
  double asked = 0;
  // The number asked for, else parameters().
  double stated() const { return asked > 0 ? asked : static_cast<double>(parameters()); }
};

// Throws Error that lists the names of known_models().
ModelShape known_model(std::string_view name);
const std::vector<std::string>& known_models();

// Returns a shape of about `parameters` parameters. layers, hidden, heads: 0 leaves the choice;
// hidden is then about 128 per layer and a multiple of 128, and a head has 128.
ModelShape model_of_size(double parameters, int layers, int hidden, int heads, int sequence);

// Bytes of the numbers of a run, as weft train has them.
struct Precision {
  double element = 2;  // of weights, activations and the gradients of a micro-batch
  double wide = 4;  // of moments, statistics, sums of gradients and, with 16 bits, master weights
  bool has_master() const { return element < wide; }
  bool operator==(const Precision&) const = default;
};
// type: bf16, fp16, float or double. Throws Error that lists these.
Precision precision_of(std::string_view type);

// The rule of thumb for bytes of model state per parameter under mixed precision and Adam: 2
// weight, 2 gradient, 8 moments, 4 fp32 weight, 4 fp32 gradient = 20. ZeRO-1 shards 16 of them over
// d ranks, ZeRO-2 the gradient's 2 too, ZeRO-3 all: 4 + 16/d, 2 + 18/d, 20/d. rank_facts.h says
// what weft train holds.
inline constexpr double kStateBytes = 20;
double state_bytes_per_parameter(int zero, int d);

// "174,604,259,328"
std::string with_commas(std::int64_t value);
// Reads "80G", "1.5T", "400M", "80GiB", "10e9": K, M, G, T are powers of 1000, KiB .. TiB of
// 1024. Throws Error that names the flag.
double parse_amount(std::string_view flag, std::string_view text);

}  // namespace weft::train
