// Sampling from a trained model on one rank. This file knows neither training nor other ranks.
#include <cmath>
#include <random>

#include "train/trainer.h"

namespace weft::train {
namespace {

// A WeightStore of one rank that always has all weights.
class Here : public WeightStore {
 public:
  void expect_weights(int) override {}
  void want_weights(int) override {}
  void release_weights(int) override {}
  void want_gradients(int) override {}
  void gradients_done(int) override {}
};

}  // namespace

template <class T>
std::string generate(const GptShape& shape, const std::map<std::string, std::vector<T>>& weights,
                     const std::string& prompt, int bytes, double temperature, std::uint64_t seed) {
  Axis alone;
  Here here;
  GptStage<T> model(shape, {&alone}, {});
  model.set_store(&here);
  auto copy = weights;
  for (Parameter<T>& p : model.parameters()) p.value = copy.at(p.logical.name).data();

  std::mt19937_64 dice(seed);
  // Something has to come before the first byte.
  std::string text = prompt.empty() ? "\n" : prompt;
  for (int b = 0; b < bytes; ++b) {
    const std::size_t seen = std::min<std::size_t>(text.size(), shape.positions);
    std::vector<Token> tokens;
    for (std::size_t i = text.size() - seen; i < text.size(); ++i)
      tokens.push_back(static_cast<unsigned char>(text[i]));
    const Tensor<T> logits = model.logits(tokens);
    const T* row = logits.data() + (seen - 1) * shape.vocabulary;
    std::vector<double> weight(std::min<Index>(shape.vocabulary, 256));
    const double most = *std::max_element(row, row + weight.size());
    for (std::size_t i = 0; i < weight.size(); ++i)
      weight[i] = std::exp((static_cast<double>(row[i]) - most) / temperature);
    std::discrete_distribution<int> pick(weight.begin(), weight.end());
    text += static_cast<char>(pick(dice));
  }
  return text;
}

template std::string generate(const GptShape&, const std::map<std::string, std::vector<float>>&,
                              const std::string&, int, double, std::uint64_t);
template std::string generate(const GptShape&, const std::map<std::string, std::vector<double>>&,
                              const std::string&, int, double, std::uint64_t);

}  // namespace weft::train
