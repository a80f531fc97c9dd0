// Inference: a whole GPT on one rank, or sharded over a tensor-parallel group. Has only weights and
// a KV cache: no gradients, no optimizer state.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "train/model/gpt_stage.h"
#include "train/model/text.h"

namespace weft::train {

template <class T>
class Inference {
 public:
  // parallel.tensor: a group, which must outlive this object (all calls are then collective); null:
  // this rank alone.
  explicit Inference(const GptShape& shape, GptParallel parallel = {nullptr});
  // Returns the weights, for load_checkpoint().
  std::vector<TensorPart<T>> pieces();
  // Sets the weights that Trainer::collect() returned on rank 0 of the group.
  void set(const std::map<std::string, std::vector<T>>& weights);

  // Returns the mean loss of the text's samples 0 to `samples` - 1, in nats per byte. Equals
  // Trainer::evaluate() for a batch of that size.
  double loss(const Text& text, std::uint64_t seed, Index samples);
  // Samples `bytes` bytes of text after `prompt` (empty: a new line). With the cache, each byte
  // costs a forward pass of one position, as long as the text fits the model's context (positions).
  // Without the cache, or with a longer text, each byte costs a forward pass of all positions.
  std::string generate(const std::string& prompt, int bytes, double temperature, std::uint64_t seed,
                       bool cached = true);

 private:
  Axis alone_, *group_;
  WeightStore here_;
  GptStage<T> model_;
  Tensor<T> weights_;
};

}  // namespace weft::train
