// Loss and text generation of a trained model. Does not depend on training.
#include "train/model/inference.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace weft::train {

template <class T>
Inference<T>::Inference(const GptShape& shape, GptParallel p)
    : group_(p.tensor != nullptr ? p.tensor : &alone_),
      model_(shape, {group_, false, p.seed_style, p.embed}, {}),
      weights_(model_.flat_count(), Use::kWeights) {
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
  Axis alone;
  GptStage<T> names(model_.shape(), {&alone}, {});  // all names, in one order for all ranks
  for (const Parameter<T>& whole : names.parameters()) {
    std::vector<T> all(whole.logical.count());
    if (group_->rank() == 0) all = weights.at(whole.logical.name);
    group_->broadcast(all.data(), all.size());
    for (Parameter<T>& mine : model_.parameters())
      if (mine.logical.name == whole.logical.name)
        for (Index i = 0; i < mine.logical.count(); ++i)
          mine.value[i] = all[mine.logical.logical_index(i)];
  }
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
    model_.forward(0, {});
    sum += model_.take_losses()[0];
  }
  return sum / static_cast<double>(samples);
}

template <class T>
std::string Inference<T>::generate(const std::string& prompt, int bytes, double temperature,
                                   std::uint64_t seed, bool cached) {
  const GptShape& shape = model_.shape();
  std::mt19937_64 dice(seed);
  // The model needs at least one byte of context.
  std::string text = prompt.empty() ? "\n" : prompt;
  Index known = 0;  // positions whose keys and values are cached
  for (int b = 0; b < bytes; ++b) {
    const std::size_t seen = std::min<std::size_t>(text.size(), shape.positions);
    if (!cached || seen < text.size()) known = 0;  // the positions of all bytes changed
    std::vector<Token> tokens;
    for (std::size_t i = text.size() - seen + known; i < text.size(); ++i)
      tokens.push_back(static_cast<unsigned char>(text[i]));
    const Tensor<T> logits = model_.logits(std::move(tokens), known);
    const T* row = logits.data() + logits.count() - shape.vocabulary;
    known = seen;
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
