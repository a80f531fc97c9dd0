// The two ends of the model: the embedding, and the head with its loss, on the ranks that Embed
// names. This file does not know the blocks between.
#include <fmt/format.h>

#include <cmath>

#include "topo/base/status.h"
#include "train/model/gpt_regions.h"
#include "train/operators/operators.h"

namespace weft::train {
namespace {

// Declares this rank's part of a table over the vocabulary.
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
class Embedding : public Layer<T> {
 public:
  Embedding(const GptShape& shape, GptParallel parallel, std::vector<Parameter<T>>& list)
      : shape_(shape), regions_{parallel}, list_(list) {
    this->first = list.size();
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
    const Index rows = batch.samples * shape_.positions, h = shape_.width;
    const auto [first, n] = vocabulary_range(shape_, regions_.parallel);
    Tensor<T> whole(rows * h, Use::kActivations);
    if (!regions_.parallel.has_tables()) {
      regions_.parallel.tensor->broadcast(whole.data(), whole.count());
      return whole;
    }
    embed(whole.data(), list_[this->first].value, batch.tokens.data(), first, n, rows, h);
    if (regions_.parallel.embed == Embed::kVocabParallel) regions_.sum(whole.data(), whole.count());
    const Index local = local_rows(shape_, regions_.parallel, batch.samples);
    const Index begin = regions_.offset(local);
    add_positions(whole.data() + begin * h, list_[this->first + 1].value, begin, shape_.positions,
                  local, h);
    if (regions_.parallel.embed == Embed::kOwner)
      regions_.parallel.tensor->broadcast(whole.data(), whole.count());
    if (local == rows) return whole;
    Tensor<T> mine(local * h, Use::kActivations);
    copy(mine.data(), whole.data() + begin * h, mine.count());
    return mine;
  }
  Tensor<T> backward_input(Tensor<T> grad, const Batch& batch, SavedForBackward<T>& kept) override {
    if (!regions_.parallel.has_tables()) return {};
    kept.resize(1);
    const Index rows = batch.samples * shape_.positions, h = shape_.width;
    const Index local = grad.count() / h, begin = regions_.offset(local);
    add_positions_grad(list_[this->first + 1].gradient, grad.data(), begin, shape_.positions, local,
                       h);
    kept[0] = local == rows ? std::move(grad) : regions_.gathered(grad, rows * h);
    return {};
  }
  void backward_weight(const Batch& batch, SavedForBackward<T>& kept) override {
    if (!regions_.parallel.has_tables()) return;
    const Index rows = batch.samples * shape_.positions;
    const auto [first, n] = vocabulary_range(shape_, regions_.parallel);
    embed_grad(list_[this->first].gradient, kept[0].data(), batch.tokens.data(), first, n, rows,
               shape_.width);
    kept.clear();
  }

 private:
  const GptShape shape_;
  Regions regions_;
  std::vector<Parameter<T>>& list_;
};

template <class T>
class Head : public Layer<T> {
 public:
  Head(const GptShape& shape, GptParallel parallel, int tied_to, std::vector<Parameter<T>>& list,
       Tensor<LossSum<T>>& losses)
      : shape_(shape), regions_{parallel}, list_(list), losses_(losses) {
    this->first = list.size();
    table_ = static_cast<Index>(tied_to);
    const auto add_table = [&](const char* name) {
      if (!parallel.has_tables()) return;
      table_ = list.size();
      list.push_back(vocabulary_table<T>(name, shape, parallel));
    };
    if (shape.tied && tied_to < 0) {  // the tied copy comes first, as in the embedding
      add_table("wte");
      if (parallel.has_tables()) list.back().tied_copy = true;
    }
    norm_ = list.size();
    list.push_back({.logical = {"norm.gain", {shape.width}, {}}, .ones = true, .early = true});
    list.push_back({.logical = {"norm.bias", {shape.width}, {}}, .early = true});
    if (!shape.tied) add_table("head");
    this->last = list.size();
  }

  Tensor<T> forward(Tensor<T> x, Batch& batch, SavedForBackward<T>& kept) override {
    kept.resize(kPlaces);
    const Index rows = batch.samples * shape_.positions, h = shape_.width, local = x.count() / h;
    const auto [first, n] = vocabulary_range(shape_, regions_.parallel);
    const auto tensor = [](Index count) { return Tensor<T>(count, Use::kActivations); };
    Tensor<T> normal = tensor(rows * h);
    kept[kMean] = tensor(wide_room<T>(local));
    kept[kRstd] = tensor(wide_room<T>(local));
    layer_norm(normal.data() + regions_.offset(local * h), as_wide(kept[kMean].data()),
               as_wide(kept[kRstd].data()), x.data(), list_[norm_].value, list_[norm_ + 1].value,
               local, h);
    kept[kX] = std::move(x);
    if (!regions_.parallel.has_tables()) return {};
    regions_.gather(normal.data(), normal.count());
    Tensor<T> logits(rows * n, Use::kWeightedSums);
    linear<T>(logits.data(), normal.data(), list_[table_].value, nullptr, rows, h, n);

    // Where it is spread, three reductions of one number per row: maximum, sum, target's logit.
    cross_entropy(logits.data(), batch.targets.data(), first, n, rows,
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
    const Index rows = batch.samples * shape_.positions, h = shape_.width;
    const Index n = vocabulary_range(shape_, regions_.parallel).count;
    Tensor<T> whole(rows * h, Use::kErrors);
    if (regions_.parallel.has_tables())
      linear_grad_input(whole.data(), kept[kGradLogits].data(), list_[table_].value, rows, h, n);
    if (spread())
      regions_.sum(whole.data(), whole.count());
    else if (regions_.parallel.embed == Embed::kOwner)
      regions_.parallel.tensor->broadcast(whole.data(), whole.count());
    Tensor<T> grad = Tensor<T>::zeros(kept[kX].count(), Use::kErrors);
    layer_norm_grad(grad.data(), list_[norm_].gradient, list_[norm_ + 1].gradient,
                    whole.data() + regions_.offset(grad.count()), kept[kX].data(),
                    as_wide(kept[kMean].data()), as_wide(kept[kRstd].data()), list_[norm_].value,
                    grad.count() / h, h);
    kept[kX] = {};
    return grad;
  }

  void backward_weight(const Batch& batch, SavedForBackward<T>& kept) override {
    const Index rows = batch.samples * shape_.positions;
    if (regions_.parallel.has_tables())
      linear_grad_weight<T>(list_[table_].gradient, nullptr, kept[kGradLogits].data(),
                            kept[kNormal].data(), rows, shape_.width,
                            vocabulary_range(shape_, regions_.parallel).count);
    kept.clear();
  }

  Tensor<T> logits(const Tensor<T>& x, Index rows) {
    Tensor<T> normal(rows * shape_.width, Use::kWorkspace);
    Tensor<Wide<T>> numbers(2 * rows, Use::kWorkspace);
    layer_norm(normal.data(), numbers.data(), numbers.data() + rows, x.data(), list_[norm_].value,
               list_[norm_ + 1].value, rows, shape_.width);
    Tensor<T> out(rows * shape_.vocabulary, Use::kWorkspace);
    linear<T>(out.data(), normal.data(), list_[table_].value, nullptr, rows, shape_.width,
              shape_.vocabulary);
    return out;
  }

 private:
  enum { kX, kMean, kRstd, kNormal, kGradLogits, kPlaces };
  bool spread() const { return regions_.parallel.embed == Embed::kVocabParallel; }

  const GptShape shape_;
  Regions regions_;
  std::vector<Parameter<T>>& list_;
  Tensor<LossSum<T>>& losses_;
  Index table_, norm_;
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
    if (parallel.embed != Embed::kVocabParallel && t > 1)
      throw Error(fmt::format("--sequence-parallel with --embed {}: not together; leave one out",
                              parallel.embed == Embed::kOwner ? "owner" : "replicated"));
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
