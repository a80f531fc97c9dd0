// Inference: a whole GPT on one rank with its weights and nothing else: no gradients, no optimizer
// state, no other ranks.
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
  explicit Inference(const GptShape& shape);
  // The weights, for load_checkpoint().
  std::vector<TensorPart<T>> pieces();
  // Takes the weights that Trainer::collect() returned.
  void set(const std::map<std::string, std::vector<T>>& weights);

  // Returns the mean loss of the text's samples 0 to `samples` - 1, in nats per byte: that of
  // Trainer::evaluate() for a batch of so many.
  double loss(const Text& text, std::uint64_t seed, Index samples);
  // Samples `bytes` bytes of text after `prompt` (empty: a new line).
  std::string generate(const std::string& prompt, int bytes, double temperature,
                       std::uint64_t seed);

 private:
  // Has all weights at all times.
  struct Here : WeightStore {
    void want_weights(int) override {}
    void release_weights(int) override {}
    void want_gradients(int) override {}
    void gradients_done(int) override {}
  };
  Axis alone_;
  Here here_;
  GptStage<T> model_;
  Tensor<T> weights_;
};

}  // namespace weft::train
