// Losses and samples of a trained model. This file knows neither training nor other ranks.
#include "train/model/inference.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace weft::train {

template <class T>
Inference<T>::Inference(const GptShape& shape)
    : model_(shape, {&alone_}, {}), weights_(model_.flat_count(), Use::kWeights) {
  model_.set_store(&here_);
  model_.evaluate(true);
  for (int u = 0; u < static_cast<int>(model_.units().size()); ++u)
    model_.bind(u, weights_.data() + model_.units()[static_cast<std::size_t>(u)].begin, nullptr);
}

template <class T>
std::vector<TensorPart<T>> Inference<T>::pieces() {
  std::vector<TensorPart<T>> all;
  for (Parameter<T>& p : model_.parameters())
    all.push_back({p.logical, 0, p.logical.count(), p.value});
  return all;
}

template <class T>
void Inference<T>::set(const std::map<std::string, std::vector<T>>& weights) {
  for (Parameter<T>& p : model_.parameters())
    std::ranges::copy(weights.at(p.logical.name), p.value);
}

template <class T>
double Inference<T>::loss(const Text& text, std::uint64_t seed, Index samples) {
  const Index n = model_.shape().positions;
  text.require_sample(n);
  Batch& batch = model_.batch(0);
  batch.tokens.resize(n);
  batch.targets.resize(n);
  double sum = 0;
  for (Index s = 0; s < samples; ++s) {
    text.sample(seed, s, n, batch.tokens.data(), batch.targets.data());
    model_.forward(0, nullptr, nullptr);
    sum += model_.take_losses()[0];
  }
  return sum / static_cast<double>(samples);
}

template <class T>
std::string Inference<T>::generate(const std::string& prompt, int bytes, double temperature,
                                   std::uint64_t seed) {
  const GptShape& shape = model_.shape();
  std::mt19937_64 dice(seed);
  // Something has to come before the first byte.
  std::string text = prompt.empty() ? "\n" : prompt;
  for (int b = 0; b < bytes; ++b) {
    const std::size_t seen = std::min<std::size_t>(text.size(), shape.positions);
    std::vector<Token> tokens;
    for (std::size_t i = text.size() - seen; i < text.size(); ++i)
      tokens.push_back(static_cast<unsigned char>(text[i]));
    const Tensor<T> logits = model_.logits(tokens);
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

template class Inference<float>;
template class Inference<double>;

}  // namespace weft::train
