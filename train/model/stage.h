// Stage: consecutive layers of a model on one rank of the pipeline; what the pipeline's runtime
// drives and what checkpoints hold. Knows nothing of who is before and after it.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "train/operators/tensor.h"

namespace weft::train {

// How a rank's part of a logical tensor lies in it: block `index` of `of` along dimension `dim`.
// of == 1: the whole tensor, which then is the same on every rank of the axis.
struct Shard {
  int dim = 0;
  int index = 0, of = 1;
};

// A part of a logical tensor, `shape` without sharding.
struct Logical {
  std::string name;
  std::vector<std::size_t> shape;
  Shard shard;

  std::size_t logical_count() const {
    std::size_t n = 1;
    for (const std::size_t s : shape) n *= s;
    return n;
  }
  std::size_t count() const { return logical_count() / static_cast<std::size_t>(shard.of); }
  // Where element i of this part lies in the logical tensor (both in row-major order).
  std::size_t logical_index(std::size_t i) const {
    std::size_t inner = 1;  // elements of one index of the sharded dimension
    for (std::size_t d = static_cast<std::size_t>(shard.dim) + 1; d < shape.size(); ++d)
      inner *= shape[d];
    const std::size_t whole = shape[static_cast<std::size_t>(shard.dim)] * inner;
    const std::size_t mine = whole / static_cast<std::size_t>(shard.of);
    return i / mine * whole + static_cast<std::size_t>(shard.index) * mine + i % mine;
  }
};

// A parameter of this rank. The pointers change where weights are gathered layer by layer.
template <class T>
struct Parameter {
  Logical logical;
  double deviation = 0;  // of its initial values: 0 and not `ones`: zeros
  bool ones = false;
  bool decays = false;     // weight decay: matrices only
  bool tied_copy = false;  // a second copy of a tensor that another stage owns
  bool early = false;      // its gradient is made by backward_input(), not by backward_weight()
  std::size_t offset = 0;  // in the stage's flat weights
  T* value = nullptr;      // logical.count() elements
  T* gradient = nullptr;
};

// What a checkpoint writes and reads: elements [begin, begin + count) of a part of a logical
// tensor. Weights, and the optimizer's state under names like "h0.qkv.weight/m".
template <class T>
struct Piece {
  Logical logical;
  std::size_t begin = 0, count = 0;
  T* data = nullptr;
  // Of a tensor that others have too, cut in other places: it is read, and they write it. Equal
  // pieces of several ranks need no such mark.
  bool duplicate = false;
};

template <class T>
class Stage {
 public:
  virtual ~Stage() = default;
  // Elements of the tensor that arrives per micro-batch, and of the one that leaves. 0: the first
  // stage (its input is the samples, which it has by other ways); the last (its output is a loss).
  virtual std::size_t input_count() const = 0;
  virtual std::size_t output_count() const = 0;
  // Micro-batches are numbered from 0; each is forwarded once, then backward_input, then
  // backward_weight, each in this order; different micro-batches in any order. Buffers are only
  // used during the call. input and output may be null where their count is 0.
  virtual void forward(int microbatch, const T* input, T* output) = 0;
  virtual void backward_input(int microbatch, const T* grad_output, T* grad_input) = 0;
  // Adds to the gradients of the parameters. Frees what was kept for this micro-batch.
  virtual void backward_weight(int microbatch) = 0;
  // Both, layer by layer, which needs less memory than one after the other.
  virtual void backward(int microbatch, const T* grad_output, T* grad_input) {
    backward_input(microbatch, grad_output, grad_input);
    backward_weight(microbatch);
  }
  virtual std::vector<Parameter<T>>& parameters() = 0;
  // What it keeps now for this micro-batch, in bytes.
  virtual std::size_t activation_bytes(int microbatch) const = 0;
};

}  // namespace weft::train
