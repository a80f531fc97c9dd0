// The layers of a byte-level GPT on one rank of a tensor-parallel group: embedding, blocks, head.
// (Shoeybi et al., Megatron-LM, arXiv 1909.08053; sequence parallel: arXiv 2205.05198.)
//
//   block:  x + proj(attention(qkv(norm(x)))),  then  x + shrink(gelu(grow(norm(x))))
//
// qkv and grow are split by outputs ("column parallel"), attention by heads, proj and shrink by
// inputs ("row parallel"): one all-reduce after proj and shrink, and one in the backward pass
// before each norm. Sequence parallel: rows between those regions are split too, and the
// all-reduce becomes a reduce-scatter and an all-gather: the same bytes, less memory.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "train/model/stage.h"
#include "train/operators/operators.h"
#include "train/parallel/axis.h"

namespace weft::train {

struct GptShape {
  Index vocabulary = 256, positions = 64, width = 64, heads = 4, layers = 4;
  bool tied = true;  // the head's weight is the embedding's
};

struct GptParallel {
  Axis* tensor;                // must outlive the layers
  bool sequence = false;       // sequence parallel
  bool seed_style = false;     // gather Q, K and every result (gpt_block_seed.cc)
  bool vocab_parallel = true;  // else every rank has the whole embedding and head
};

// One micro-batch: `samples` rows of positions, and what becomes of it.
struct Batch {
  Index samples = 1;
  std::vector<Token> tokens, targets;  // samples x positions; tokens for the first stage, targets
                                       // for the last
  double gradient_scale = 1;           // of the mean loss of this micro-batch
  double loss = 0;                     // its mean, set by the head
};

// What a layer keeps of one micro-batch; each layer names the places.
template <class T>
using Kept = std::vector<Tensor<T>>;

template <class T>
class Layer {
 public:
  virtual ~Layer() = default;
  // x: [local rows][width], empty for the embedding. Returns the same, empty for the head.
  virtual Tensor<T> forward(Tensor<T> x, Batch& batch, Kept<T>& kept) = 0;
  // Frees what only it needs; keeps what backward_weight() needs.
  virtual Tensor<T> backward_input(Tensor<T> grad, const Batch& batch, Kept<T>& kept) = 0;
  virtual void backward_weight(const Batch& batch, Kept<T>& kept) = 0;
  // Its parameters: [first, last) of the stage's list.
  std::size_t first = 0, last = 0;
};

// They declare their parameters at the end of `list`, which must outlive them.
template <class T>
std::unique_ptr<Layer<T>> make_embedding(const GptShape& shape, GptParallel parallel,
                                         std::vector<Parameter<T>>& list);
template <class T>
std::unique_ptr<Layer<T>> make_block(const GptShape& shape, GptParallel parallel, Index number,
                                     std::vector<Parameter<T>>& list);
template <class T>
std::unique_ptr<Layer<T>> make_seed_block(const GptShape& shape, GptParallel parallel, Index number,
                                          std::vector<Parameter<T>>& list);
// Final norm, logits, loss. tied_to: where the embedding is in the list, -1 if it is elsewhere.
template <class T>
std::unique_ptr<Layer<T>> make_head(const GptShape& shape, GptParallel parallel, int tied_to,
                                    std::vector<Parameter<T>>& list);
// Logits of all rows (no tensor parallelism), [rows][vocabulary]. x as in forward().
template <class T>
Tensor<T> head_logits(Layer<T>& head, const Tensor<T>& x, Index rows);

// Rows that this rank has between the parallel regions.
inline Index local_rows(const GptShape& s, const GptParallel& p, Index samples) {
  const Index rows = samples * s.positions;
  return p.sequence ? rows / static_cast<Index>(p.tensor->size()) : rows;
}

// Throws Error, naming the number, where the shape does not divide.
void check_shape(const GptShape& shape, int tensor_ranks, int pipeline_ranks, Index samples,
                 bool sequence, bool vocab_parallel);

// The logical name, shape and count of everything that a layer declares.
std::size_t parameter_count(const GptShape& shape);

}  // namespace weft::train
