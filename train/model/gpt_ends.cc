// The embedding, and the head with its loss, on the ranks that Embed selects. Does not depend on
// the blocks.
#include <fmt/format.h>

#include <cmath>

#include "topo/base/status.h"
#include "train/model/gpt_regions.h"
#include "train/operators/operators.h"

namespace weft::train {
namespace {

// Declares this rank's shard of a table over the vocabulary.
template <class T>
Parameter<T> vocabulary_table(std::string name, const GptShape& shape, const GptParallel& p) {
  Parameter<T> table{.logical = {std::move(name), {shape.vocabulary, shape.width}, {}},
                     .deviation = 0.02,
                     .decays = true};
  if (p.embed == Embed::kVocabParallel)
    table.logical.shard = {0, p.tensor->rank(), p.tensor->size()};
  return table;
}
struct VocabularyRange {
  Index first, count;
};
VocabularyRange vocabulary_range(const GptShape& shape, const GptParallel& p) {
  if (p.embed != Embed::kVocabParallel) return {0, shape.vocabulary};
  const Index n = shape.vocabulary / static_cast<Index>(p.tensor->size());
  return {n * static_cast<Index>(p.tensor->rank()), n};
}

template <class T>
class Embedding : public RegionLayer<T> {
  using Base = RegionLayer<T>;
  using Base::h, Base::regions_, Base::rows_of, Base::shape_;

 public:
  Embedding(const GptShape& shape, GptParallel parallel, std::vector<Parameter<T>>& list)
      : Base(shape, parallel, list) {
    if (parallel.has_tables()) {
      list.push_back(vocabulary_table<T>("wte", shape, parallel));
      list.push_back({.logical = {"wpe", {shape.positions, shape.width}, {}},
                      .deviation = 0.02,
                      .decays = true,
                      .early = true});
    }
    this->last = list.size();
  }

  Tensor<T> forward(Tensor<T>, Batch& batch, SavedForBackward<T>&) override {
    const Index rows = rows_of(batch);
    const auto [first, n] = vocabulary_range(shape_, regions_.parallel);
    Tensor<T> whole(rows * h(), Use::kActivations);
    if (!regions_.parallel.has_tables()) {
      regions_.parallel.tensor->broadcast(whole.data(), whole.count());
      return whole;
    }
    embed(whole.data(), this->value(0), {batch.tokens.data(), batch.device_tokens}, first, n, rows,
          h());
    const bool owner = regions_.parallel.embed == Embed::kOwner;
    if (!owner) regions_.sum(whole.data(), whole.count());
    const Index local = regions_.local(rows), begin = regions_.offset(local);
    add_positions(whole.data() + begin * h(), this->value(1), batch.begin + begin, shape_.positions,
                  local, h());
    if (owner) regions_.parallel.tensor->broadcast(whole.data(), whole.count());
    if (local == rows) return whole;
    Tensor<T> mine(local * h(), Use::kActivations);
    copy(mine.data(), whole.data() + begin * h(), mine.count());
    return mine;
  }
  Tensor<T> backward_input(Tensor<T> grad, const Batch& batch, SavedForBackward<T>& kept) override {
    if (!regions_.parallel.has_tables()) return {};
    kept.resize(1);
    const Index rows = rows_of(batch);
    const Index local = grad.count() / h(), begin = regions_.offset(local);
    add_positions_grad(this->gradient(1), grad.data(), begin, shape_.positions, local, h());
    kept[0] = local == rows ? std::move(grad) : regions_.gathered(grad, rows * h());
    return {};
  }
  void backward_weight(const Batch& batch, SavedForBackward<T>& kept) override {
    if (!regions_.parallel.has_tables()) return;
    const Index rows = rows_of(batch);
    const auto [first, n] = vocabulary_range(shape_, regions_.parallel);
    embed_grad(this->gradient(0), kept[0].data(), batch.tokens.data(), first, n, rows, h());
    kept.clear();
  }
};

template <class T>
class Head : public RegionLayer<T> {
  using Base = RegionLayer<T>;
  using Base::h, Base::list_, Base::regions_, Base::rows_of, Base::shape_, Base::value;

 public:
  Head(const GptShape& shape, GptParallel parallel, int tied_to, std::vector<Parameter<T>>& list,
       Tensor<LossSum<T>>& losses)
      : Base(shape, parallel, list), losses_(losses) {
    table_ = static_cast<Index>(tied_to);
    const auto add_table = [&](const char* name) {
      if (!parallel.has_tables()) return;
      table_ = list.size();
      list.push_back(vocabulary_table<T>(name, shape, parallel));
    };
    if (shape.tied && tied_to < 0) {  // the tied copy is first, as in the embedding
      add_table("wte");
      if (parallel.has_tables()) list.back().tied_copy = true;
    }
    norm_ = static_cast<int>(list.size() - this->first);
    list.push_back({.logical = {"norm.gain", {shape.width}, {}}, .ones = true, .early = true});
    list.push_back({.logical = {"norm.bias", {shape.width}, {}}, .early = true});
    if (!shape.tied) add_table("head");
    this->last = list.size();
  }

  Tensor<T> forward(Tensor<T> x, Batch& batch, SavedForBackward<T>& kept) override {
    kept.resize(kPlaces);
    const Index rows = rows_of(batch);
    const auto [first, n] = vocabulary_range(shape_, regions_.parallel);
    Tensor<T> normal = this->norm(x, rows, kMean, norm_, kept);
    kept[kX] = std::move(x);
    if (!regions_.parallel.has_tables()) return {};
    Tensor<T> logits(rows * n, Use::kWeightedSums);
    linear<T>(logits.data(), normal.data(), list_[table_].value, nullptr, rows, h(), n);

    // With a sharded vocabulary, all-reduces three numbers per row: maximum, sum, target's logit.
    cross_entropy(logits.data(), {batch.targets.data(), batch.device_targets}, first, n, rows,
                  !spread() || regions_.size() == 1,
                  batch.gradient_scale / static_cast<double>(rows), losses_.data() + batch.number,
                  [&](auto* numbers, Index count, RedOp op) {
                    regions_.parallel.tensor->all_reduce(numbers, count, op);
                  });
    kept[kNormal] = std::move(normal);
    kept[kGradLogits] = std::move(logits);
    return {};
  }

  Tensor<T> backward_input(Tensor<T>, const Batch& batch, SavedForBackward<T>& kept) override {
    const Index rows = rows_of(batch);
    const Index n = vocabulary_range(shape_, regions_.parallel).count;
    Tensor<T> whole(rows * h(), Use::kErrors);
    if (regions_.parallel.has_tables())
      linear_grad_input(whole.data(), kept[kGradLogits].data(), list_[table_].value, rows, h(), n);
    if (spread())
      regions_.sum(whole.data(), whole.count());
    else
      regions_.parallel.tensor->broadcast(whole.data(), whole.count());
    Tensor<T> grad = Tensor<T>::zeros(kept[kX].count(), Use::kErrors);
    this->norm_grad(grad, whole, kX, kMean, norm_, kept);
    kept[kX] = {};
    return grad;
  }

  void backward_weight(const Batch& batch, SavedForBackward<T>& kept) override {
    const Index rows = rows_of(batch);
    if (regions_.parallel.has_tables())
      linear_grad_weight<T>(list_[table_].gradient, nullptr, kept[kGradLogits].data(),
                            kept[kNormal].data(), rows, h(),
                            vocabulary_range(shape_, regions_.parallel).count);
    kept.clear();
  }

  Tensor<T> logits(const Tensor<T>& x, Index rows) {
    SavedForBackward<T> forgotten(kPlaces);
    const Tensor<T> normal = this->norm(x, rows, kMean, norm_, forgotten);
    const Index n = vocabulary_range(shape_, regions_.parallel).count,
                ranks = shape_.vocabulary / n;
    Tensor<T> blocks(rows * shape_.vocabulary, Use::kWorkspace);  // one per rank: its columns
    T* mine = blocks.data() +
              (ranks > 1 ? static_cast<Index>(regions_.parallel.tensor->rank()) : 0) * rows * n;
    if (regions_.parallel.has_tables())
      linear<T>(mine, normal.data(), list_[table_].value, nullptr, rows, h(), n);
    if (!spread()) regions_.parallel.tensor->broadcast(blocks.data(), blocks.count());
    if (ranks == 1) return blocks;
    regions_.parallel.tensor->all_gather(blocks.data(), rows * n);
    Tensor<T> out(blocks.count(), Use::kWorkspace);
    for (Index b = 0; b < ranks; ++b)
      copy_columns(out.data() + b * n, shape_.vocabulary, blocks.data() + b * rows * n, n, rows, n);
    return out;
  }

 private:
  enum { kX, kMean, kRstd, kNormal, kGradLogits, kPlaces };
  bool spread() const { return regions_.parallel.embed == Embed::kVocabParallel; }

  Tensor<LossSum<T>>& losses_;
  Index table_;  // index in list_
  int norm_;     // index of the gain among the head's parameters
};

}  // namespace

template <class T>
std::unique_ptr<Layer<T>> make_embedding(const GptShape& shape, GptParallel parallel,
                                         std::vector<Parameter<T>>& list) {
  return std::make_unique<Embedding<T>>(shape, parallel, list);
}
template <class T>
std::unique_ptr<Layer<T>> make_head(const GptShape& shape, GptParallel parallel, int tied_to,
                                    std::vector<Parameter<T>>& list, Tensor<LossSum<T>>& losses) {
  return std::make_unique<Head<T>>(shape, parallel, tied_to, list, losses);
}
template <class T>
Tensor<T> head_logits(Layer<T>& head, const Tensor<T>& x, Index rows) {
  return dynamic_cast<Head<T>&>(head).logits(x, rows);
}

#define WEFT_ENDS(T)                                                                             \
  template std::unique_ptr<Layer<T>> make_embedding(const GptShape&, GptParallel,                \
                                                    std::vector<Parameter<T>>&);                 \
  template std::unique_ptr<Layer<T>> make_head(const GptShape&, GptParallel, int,                \
                                               std::vector<Parameter<T>>&, Tensor<LossSum<T>>&); \
  template Tensor<T> head_logits(Layer<T>&, const Tensor<T>&, Index);
WEFT_TYPES(WEFT_ENDS)

void check_shape(const GptShape& s, int tensor_ranks, int pipeline_ranks, Index samples,
                 const GptParallel& parallel) {
  const auto t = static_cast<Index>(tensor_ranks);
  const auto divides = [&](const char* flag, Index value, const char* why) {
    if (value % t != 0)
      throw Error(
          fmt::format("{} {} with --tp {}: {}; choose a multiple of {}", flag, value, t, why, t));
  };
  if (s.width % s.heads != 0)
    throw Error(
        fmt::format("--width {} with --heads {}: a head needs a whole width; choose a "
                    "multiple of {}",
                    s.width, s.heads, s.heads));
  if (parallel.seed_style)
    divides("--width / --heads =", s.width / s.heads,
            "every head is split over the ranks (--tp-style seed)");
  else
    divides("--heads", s.heads, "heads are split over the ranks");
  if (parallel.embed == Embed::kVocabParallel)
    divides("--vocabulary", s.vocabulary, "its rows are split over the ranks");
  if (parallel.sequence) {
    divides("--micro-batch x --positions =", samples * s.positions,
            "rows are split over the ranks");
    if (parallel.embed == Embed::kOwner && t > 1)
      throw Error("--sequence-parallel with --embed owner: not together; leave one out");
  }
  if (s.layers < static_cast<Index>(pipeline_ranks))
    throw Error(fmt::format("--layers {} with {} stages: each stage needs a layer", s.layers,
                            pipeline_ranks));
}

std::size_t parameter_count(const GptShape& s) {
  const Index h = s.width;
  return s.vocabulary * h * (s.tied ? 1 : 2) + s.positions * h + s.layers * block_parameters(s) +
         2 * h;
}

}  // namespace weft::train
