// Inference: a whole GPT on one rank, or split over the ranks of a tensor-parallel group in any of
// its forms, with its weights and a KV cache and nothing else: no gradients, no optimizer state.
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
  // parallel.tensor: the group, which must outlive this object; null: this rank alone. With a group
  // all calls are collective.
  explicit Inference(const GptShape& shape, GptParallel parallel = {nullptr});
  // The weights, for load_checkpoint().
  std::vector<TensorPart<T>> pieces();
  // Takes the weights that Trainer::collect() returned, which the group's rank 0 has.
  void set(const std::map<std::string, std::vector<T>>& weights);

  // Returns the mean loss of the text's samples 0 to `samples` - 1, in nats per byte: that of
  // Trainer::evaluate() for a batch of that size.
  double loss(const Text& text, std::uint64_t seed, Index samples);
  // Samples `bytes` bytes of text after `prompt` (empty: a new line). Each is a forward pass of one
  // position while the text is no longer than the model's positions: keys and values of those
  // before are cached; without the cache, and where the text is longer, of all positions.
  std::string generate(const std::string& prompt, int bytes, double temperature, std::uint64_t seed,
                       bool cached = true);

 private:
  // Has all weights at all times.
  struct Here : WeightStore {
    void want_weights(int) override {}
    void release_weights(int) override {}
    void want_gradients(int) override {}
    void gradients_done(int) override {}
  };
  Axis alone_, *group_;
  Here here_;
  GptStage<T> model_;
  Tensor<T> weights_;
};

}  // namespace weft::train
