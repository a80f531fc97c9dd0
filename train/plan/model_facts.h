// Formulas for a transformer's parameters, operations and bytes, each with its source. The planner
// and the trainer's reports use them; they measure nothing.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "train/model/gpt_layers.h"

namespace weft::train {

// A decoder like GPT-2 and GPT-3: learned positions, biases everywhere, a head tied to the
// embedding.
struct ModelShape {
  std::string name;
  int layers = 12, hidden = 768, heads = 12;
  int vocabulary = 50257, sequence = 1024;

  GptShape shape() const;  // of the trainer
  std::int64_t h() const { return hidden; }
  // Of a block: attention, FFN.
  std::int64_t attention_parameters() const { return 4 * h() * h() + 4 * h(); }
  std::int64_t ffn_parameters() const { return 8 * h() * h() + 5 * h(); }
  // Of all blocks, without norms; of the model, with the last norm.
  std::int64_t blocks() const { return layers * (attention_parameters() + ffn_parameters()); }
  std::int64_t parameters() const { return static_cast<std::int64_t>(parameter_count(shape())); }
  // The number of parameters that the user asked for; 0: the shape is a known model's.
  double asked = 0;
  // The number asked for, else parameters().
  double stated() const { return asked > 0 ? asked : static_cast<double>(parameters()); }
};

// name: gpt2, gpt2-medium, gpt2-large, gpt2-xl or gpt3. Throws Error that lists these names.
ModelShape known_model(std::string_view name);
const std::vector<std::string>& known_models();

// Returns a shape of about `parameters` parameters. layers, hidden, heads: 0 leaves the choice;
// hidden is then about 128 per layer and a multiple of 128, and a head has 128.
ModelShape model_of_size(double parameters, int layers, int hidden, int heads, int sequence);

// Bytes of the numbers of a run, as weft train has them.
struct Precision {
  double element = 2;      // of weights, activations and the gradients of a micro-batch
  double wide = 4;         // of moments, statistics and, with 16-bit elements, master weights
  bool half_sums = false;  // --half-sums: 16-bit gradients are summed in 16 bits
  bool has_master() const { return element < wide; }
  double sum() const { return half_sums ? element : wide; }  // of a sum of gradients, as it travels
  bool operator==(const Precision&) const = default;
};
// type: bf16, fp16, float or double. Throws Error that lists these.
Precision precision_of(std::string_view type, bool half_sums);

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
