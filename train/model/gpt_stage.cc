// GptStage: layers, units, offload, recomputation. Does not depend on the storage of weights.
#include "train/model/gpt_stage.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "train/model/balance.h"
#include "train/model/mfu.h"
#include "train/operators/operators.h"

namespace weft::train {

std::vector<Index> blocks_of_stages(const GptShape& shape, int stages, double heads) {
  std::vector<double> beside(static_cast<std::size_t>(stages), 0.0);
  beside.back() = head_in_blocks(shape) * heads;
  return balance_blocks(shape.layers, std::move(beside));
}

template <class T>
GptStage<T>::GptStage(const GptShape& shape, GptParallel parallel, const Options& options)
    : shape_(shape),
      options_(options),
      boundary_(local_rows(shape, parallel, options.samples) * shape.width) {
  if (!options.offload.empty()) offload_ = std::make_unique<Offload<T>>(options.offload);
  const std::vector<Index> counts = blocks_of_stages(
      shape, options.stages, parallel.embed == Embed::kVocabParallel ? 1 : parallel.tensor->size());
  const auto mine = counts.begin() + options.stage;
  const Index begin = std::accumulate(counts.begin(), mine, Index{0});
  if (first()) layers_.push_back(make_embedding<T>(shape, parallel, parameters_));
  for (Index b = begin; b < begin + *mine; ++b)
    layers_.push_back(parallel.seed_style ? make_seed_block<T>(shape, parallel, b, parameters_)
                                          : make_block<T>(shape, parallel, b, parameters_));
  const int tied_to = shape.tied && first() ? 0 : -1;
  if (last()) layers_.push_back(make_head<T>(shape, parallel, tied_to, parameters_, losses_));
  if (shape.tied && options.stages > 1 && (first() || last()) && parallel.has_tables())
    shared_unit_ = first() ? 0 : static_cast<int>(layers_.size()) - 1;

  // On a device, every parameter starts at an aligned address: products of equal shape then run the
  // same kernel, with the same bits, in every layout.
  const std::size_t aligned = kOnDevice<T> ? 256 / sizeof(T) : 1;
  const auto rounded = [](std::size_t n, std::size_t to) { return (n + to - 1) / to * to; };
  // A tied embedding is first in its unit in both stages, and both units have equal length, so that
  // ranks that shard a unit have the same part of the tensor in both stages.
  const std::size_t beside_embedding =
      std::max(rounded(shape.positions * shape.width, aligned), 2 * rounded(shape.width, aligned));
  std::size_t offset = 0;
  for (const auto& layer : layers_) {
    Unit unit{layer->first, layer->last, offset, 0};
    for (std::size_t i = layer->first; i < layer->last; ++i) {
      parameters_[i].offset = offset;
      offset += rounded(parameters_[i].logical.count(), aligned);
    }
    if (static_cast<int>(units_.size()) == shared_unit_ && options.multiple > 1)
      offset =
          unit.begin + rounded(parameters_[unit.first].logical.count(), aligned) + beside_embedding;
    // A unit without parameters (Embed::kOwner) has one block: collectives need an element.
    offset = rounded(std::max(offset, unit.begin + 1), std::lcm(options.multiple, aligned));
    unit.end = offset;
    units_.push_back(unit);
  }
}

template <class T>
void GptStage<T>::bind(int unit, T* weights, T* gradients) {
  const Unit& u = units_[static_cast<std::size_t>(unit)];
  for (std::size_t i = u.first; i < u.last; ++i) {
    Parameter<T>& p = parameters_[i];
    if (weights != nullptr) p.value = weights + (p.offset - u.begin);
    if (gradients != nullptr) p.gradient = gradients + (p.offset - u.begin);
  }
}

template <class T>
typename GptStage<T>::MicroBatch& GptStage<T>::at(int microbatch) {
  const auto m = static_cast<std::size_t>(microbatch);
  while (micro_batches_.size() <= m) {
    micro_batches_.push_back(std::make_unique<MicroBatch>());
    micro_batches_.back()->batch.samples = options_.samples;
    micro_batches_.back()->batch.number = micro_batches_.size() - 1;
    micro_batches_.back()->kept.resize(layers_.size());
    micro_batches_.back()->inputs.resize(layers_.size());
    micro_batches_.back()->early.resize(layers_.size());
  }
  return *micro_batches_[m];
}

template <class T>
Batch& GptStage<T>::batch(int microbatch) {
  return at(microbatch).batch;
}

template <class T>
std::vector<double> GptStage<T>::take_losses() {
  const Tensor<LossSum<T>> sums = std::move(losses_);
  std::vector<double> means(sums.count());
  to_host(means.data(), sums.data(), sums.count());
  for (double& loss : means) loss /= static_cast<double>(options_.samples * shape_.positions);
  return means;
}

template <class T>
bool GptStage<T>::recomputes(int unit) const {
  const int n = static_cast<int>(layers_.size());
  return options_.recompute && !(first() && unit == 0) && !(last() && unit == n - 1);
}
template <class T>
bool GptStage<T>::ties(int unit) const {
  return shape_.tied && first() && last() && unit == static_cast<int>(layers_.size()) - 1;
}

// Prefetches the weights for the next unit of the pass. The head keeps its weights from forward to
// backward; the embedding's backward pass needs none.
template <class T>
void GptStage<T>::expect_after(int unit, bool backward) {
  const int next = backward ? unit - 1 : unit + 1, end = static_cast<int>(layers_.size());
  if (next < 0 || next >= end || (backward && first() && next == 0)) return;
  store_->expect_weights(next);
  if (!backward && ties(next)) store_->expect_weights(0);
}

template <class T>
Tensor<T> GptStage<T>::forward(int microbatch, Tensor<T> x) {
  MicroBatch& m = at(microbatch);
  if (on_forward) on_forward(microbatch, true);
  if (last() && losses_.empty())
    losses_ = Tensor<LossSum<T>>(micro_batches_.size(), Use::kWorkspace);
  for (int unit = 0; unit < static_cast<int>(layers_.size()); ++unit) {
    const auto u = static_cast<std::size_t>(unit);
    store_->want_weights(unit);
    if (ties(unit)) store_->want_weights(0);
    expect_after(unit, false);
    if (evaluates_ || recomputes(unit)) {
      if (!evaluates_) {
        m.inputs[u] = Tensor<T>(x.count(), Use::kActivations);
        copy(m.inputs[u].data(), x.data(), x.count());
      }
      SavedForBackward<T> forgotten;
      x = layers_[u]->forward(std::move(x), m.batch, forgotten);
    } else {
      x = layers_[u]->forward(std::move(x), m.batch, m.kept[u]);
    }
    // The head keeps its weights: its backward pass follows, at least in the last stage of 1F1B.
    if (!evaluates_ && last() && u + 1 == layers_.size()) continue;
    store_->release_weights(unit);
    if (evaluates_ && ties(unit)) store_->release_weights(0);
    if (!evaluates_) send_away(microbatch, unit);
  }
  if (on_forward) on_forward(microbatch, false);
  return x;
}

// Offloads the saved tensors of a unit, or its input if the unit is recomputed.
template <class T>
void GptStage<T>::send_away(int microbatch, int unit) {
  if (!offload_) return;
  MicroBatch& m = at(microbatch);
  const auto u = static_cast<std::size_t>(unit);
  const auto key = static_cast<std::uint64_t>(microbatch) * layers_.size() + u;
  if (recomputes(unit)) m.kept[u].push_back(std::move(m.inputs[u]));
  offload_->put(key, m.kept[u]);
}

template <class T>
void GptStage<T>::bring_back(int microbatch, int unit) {
  if (!offload_) return;
  MicroBatch& m = at(microbatch);
  const auto u = static_cast<std::size_t>(unit);
  offload_->get(static_cast<std::uint64_t>(microbatch) * layers_.size() + u, m.kept[u]);
  if (recomputes(unit)) {
    m.inputs[u] = std::move(m.kept[u].front());
    m.kept[u].clear();
  }
}

// W adds all gradients of a micro-batch. Parameter::early gradients wait from B to W, since the
// number of micro-batches between B and W depends on the number of replicas.
template <class T>
Tensor<T> GptStage<T>::unit_backward_input(int unit, MicroBatch& m, Tensor<T> grad,
                                           bool with_weights) {
  const auto u = static_cast<std::size_t>(unit);
  const bool is_head = last() && u + 1 == layers_.size(), is_embedding = first() && unit == 0;
  if (!is_head && !is_embedding) store_->want_weights(unit);
  expect_after(unit, true);
  store_->want_gradients(unit);
  if (ties(unit)) store_->want_gradients(0);
  if (recomputes(unit)) layers_[u]->forward(std::move(m.inputs[u]), m.batch, m.kept[u]);
  std::vector<std::pair<Parameter<T>*, T*>> sums;
  for (std::size_t i = units_[u].first; i < units_[u].last; ++i) {
    Parameter<T>& p = parameters_[i];
    if (with_weights || !p.early) continue;
    m.early[u].push_back(Tensor<T>::zeros(p.logical.count(), Use::kGradients));
    sums.emplace_back(&p, std::exchange(p.gradient, m.early[u].back().data()));
  }
  grad = layers_[u]->backward_input(std::move(grad), m.batch, m.kept[u]);
  for (const auto& [p, sum] : sums) p->gradient = sum;
  if (!is_embedding) store_->release_weights(unit);
  if (ties(unit)) store_->release_weights(0);
  return grad;
}

template <class T>
void GptStage<T>::unit_backward_weight(int unit, MicroBatch& m) {
  const auto u = static_cast<std::size_t>(unit);
  store_->want_gradients(unit);
  if (ties(unit)) store_->want_gradients(0);
  layers_[u]->backward_weight(m.batch, m.kept[u]);
  auto early = m.early[u].begin();
  for (std::size_t i = units_[u].first; early != m.early[u].end(); ++i)
    if (parameters_[i].early) {
      add(parameters_[i].gradient, early->data(), early->count());
      ++early;
    }
  m.early[u].clear();
  store_->gradients_done(unit);
}

template <class T>
Tensor<T> GptStage<T>::pass_back(int microbatch, Tensor<T> grad, bool with_weights) {
  MicroBatch& m = at(microbatch);
  for (int unit = static_cast<int>(layers_.size()) - 1; unit >= 0; --unit) {
    bring_back(microbatch, unit);
    grad = unit_backward_input(unit, m, std::move(grad), with_weights);
    if (with_weights) unit_backward_weight(unit, m);
  }
  return grad;
}

template <class T>
void GptStage<T>::backward_weight(int microbatch) {
  MicroBatch& m = at(microbatch);
  for (int unit = static_cast<int>(layers_.size()) - 1; unit >= 0; --unit)
    unit_backward_weight(unit, m);
}

template <class T>
Tensor<T> GptStage<T>::logits(std::vector<Token> tokens, Index begin) {
  Batch batch{.tokens = std::move(tokens), .targets = {}, .begin = begin};
  batch.rows = batch.tokens.size();
  cached_.resize(layers_.size());
  Tensor<T> x;
  for (std::size_t u = 0; u + 1 < layers_.size(); ++u)
    x = layers_[u]->forward(std::move(x), batch, cached_[u]);
  return head_logits(*layers_.back(), x, batch.rows);
}

WEFT_INSTANTIATE(GptStage);

}  // namespace weft::train
