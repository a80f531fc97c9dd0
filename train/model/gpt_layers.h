// The layers of a byte-level GPT on one rank of a tensor-parallel group: embedding, blocks, head.
// (Shoeybi et al., Megatron-LM, arXiv 1909.08053; sequence parallel: arXiv 2205.05198.)
//
//   block:  x + proj(attention(qkv(norm(x)))),  then  x + shrink(gelu(grow(norm(x))))
//
// qkv and grow are sharded by outputs ("column parallel"), attention by heads, proj and shrink by
// inputs ("row parallel"): an all-reduce follows proj and shrink, and precedes each norm in the
// backward pass. Sequence parallelism also shards the rows between these regions and replaces the
// all-reduce by a reduce-scatter and an all-gather: equal bytes, less memory.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "train/mesh/axis.h"
#include "train/model/stage.h"
#include "train/operators/operators.h"

namespace weft::train {

struct GptShape {
  Index vocabulary = 256, positions = 64, width = 64, heads = 4, layers = 4;
  bool tied = true;  // true: the head and the embedding share a weight
};

// Placement of embedding and head on tensor-parallel ranks: each rank has a block of the
// vocabulary, or the first rank has all of it and broadcasts its results.
enum class Embed { kVocabParallel, kOwner };

struct GptParallel {
  Axis* tensor;             // must outlive the layers
  bool sequence = false;    // sequence parallel
  bool seed_style = false;  // gather Q, K and every result (gpt_block_seed.cc)
  Embed embed = Embed::kVocabParallel;

  bool has_tables() const { return embed != Embed::kOwner || tensor->rank() == 0; }
};

// One micro-batch of a step.
struct Batch {
  Index samples = 1;
  std::vector<Token> tokens, targets;  // samples x positions; tokens in the first stage,
                                       // targets in the last
  // Device copies of tokens and targets, or null.
  const Token *device_tokens = nullptr, *device_targets = nullptr;
  double gradient_scale = 1;  // factor applied to the gradient of the mean loss
  Index number = 0;           // index among this rank's micro-batches of the step
  // Inference with a KV cache: the tokens are rows [begin, begin + rows) of one sample, and the
  // keys and values of earlier rows are cached. rows 0: all rows, as in training.
  Index begin = 0, rows = 0;
};

// The tensors that a layer saves per micro-batch; each layer defines the indices.
template <class T>
using SavedForBackward = std::vector<Tensor<T>>;

template <class T>
class Layer {
 public:
  virtual ~Layer() = default;
  // x: [local rows][width], empty for the embedding. Returns an output of the same shape, empty for
  // the head.
  virtual Tensor<T> forward(Tensor<T> x, Batch& batch, SavedForBackward<T>& kept) = 0;
  // Returns the gradient of x. Frees the saved tensors that backward_weight() does not need.
  virtual Tensor<T> backward_input(Tensor<T> grad, const Batch& batch,
                                   SavedForBackward<T>& kept) = 0;
  virtual void backward_weight(const Batch& batch, SavedForBackward<T>& kept) = 0;
  // The layer's parameters are [first, last) of the stage's list.
  std::size_t first = 0, last = 0;
};

// Each layer declares its parameters at the end of `list`, which must outlive the layer.
template <class T>
std::unique_ptr<Layer<T>> make_embedding(const GptShape& shape, GptParallel parallel,
                                         std::vector<Parameter<T>>& list);
template <class T>
std::unique_ptr<Layer<T>> make_block(const GptShape& shape, GptParallel parallel, Index number,
                                     std::vector<Parameter<T>>& list);
template <class T>
std::unique_ptr<Layer<T>> make_seed_block(const GptShape& shape, GptParallel parallel, Index number,
                                          std::vector<Parameter<T>>& list);
// Final norm, logits, loss. tied_to: the embedding's index in the list; -1: not in this list.
// forward() writes the summed loss of a micro-batch to `losses` at Batch::number; `losses` must
// outlive the layer.
template <class T>
std::unique_ptr<Layer<T>> make_head(const GptShape& shape, GptParallel parallel, int tied_to,
                                    std::vector<Parameter<T>>& list, Tensor<LossSum<T>>& losses);
// Returns the logits of `rows` rows, [rows][vocabulary], on every rank; x as in forward().
template <class T>
Tensor<T> head_logits(Layer<T>& head, const Tensor<T>& x, Index rows);

// Returns the number of rows on this rank outside the tensor-parallel regions.
inline Index local_rows(const GptShape& s, const GptParallel& p, Index samples) {
  const Index rows = samples * s.positions;
  return p.sequence ? rows / static_cast<Index>(p.tensor->size()) : rows;
}

// Throws Error with the size that is not divisible by the ranks. Ignores parallel.tensor.
void check_shape(const GptShape& shape, int tensor_ranks, int pipeline_ranks, Index samples,
                 const GptParallel& parallel);

// Returns the number of parameters of a block. The next function returns the parameters of the
// model.
inline std::size_t block_parameters(const GptShape& shape) {
  return 12 * shape.width * shape.width + 13 * shape.width;
}
std::size_t parameter_count(const GptShape& shape);

}  // namespace weft::train
