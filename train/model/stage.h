// Stage: consecutive layers of a model on one rank of the pipeline. The pipeline's runtime drives
// stages, and checkpoints hold their parameters. A stage does not know its neighbours.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "train/operators/tensor.h"

namespace weft::train {

// The part of a logical tensor that a rank has: block `index` of `of` along dimension `dim`.
// of == 1: the whole tensor, the same on every rank of the axis.
struct Shard {
  int dim = 0;
  int index = 0, of = 1;
};

// A part of a logical tensor; `shape` is the shape of the whole tensor.
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
  // Index in the logical tensor of this part's element i (both in row-major order).
  std::size_t logical_index(std::size_t i) const {
    std::size_t inner = 1;  // elements of one index of the sharded dimension
    for (std::size_t d = static_cast<std::size_t>(shard.dim) + 1; d < shape.size(); ++d)
      inner *= shape[d];
    const std::size_t whole = shape[static_cast<std::size_t>(shard.dim)] * inner;
    const std::size_t mine = whole / static_cast<std::size_t>(shard.of);
    return i / mine * whole + static_cast<std::size_t>(shard.index) * mine + i % mine;
  }
};

// A parameter of this rank. Its pointers change where ZeRO gathers weights unit by unit.
template <class T>
struct Parameter {
  Logical logical;
  double deviation = 0;  // standard deviation of the initial values; 0: zeros, or `ones`
  bool ones = false;
  bool decays = false;     // weight decay: matrices only
  bool tied_copy = false;  // a second copy of a tensor that another stage owns
  bool early = false;      // backward_input() makes the gradient, not backward_weight()
  std::size_t offset = 0;  // index in the stage's flat weights
  T* value = nullptr;      // logical.count() elements
  T* gradient = nullptr;
};

// The unit that checkpoints write and read: elements [begin, begin + count) of a part of a logical
// tensor. The optimizer's state has names like "h0.qkv.weight/m".
template <class T>
struct TensorPart {
  Logical logical;
  std::size_t begin = 0, count = 0;
  T* data = nullptr;
  // Another stage has the same tensor, cut in other places, and writes it: checkpoints only read
  // this part. Equal parts of several ranks need no such mark.
  bool duplicate = false;
};

template <class T>
class Stage {
 public:
  virtual ~Stage() = default;
  // Elements of the input tensor per micro-batch; 0 for the first stage, which has the samples.
  virtual std::size_t input_count() const = 0;
  // Elements of the output tensor per micro-batch; 0 for the last stage, whose output is a loss.
  virtual std::size_t output_count() const = 0;
  // Every micro-batch, numbered from 0, passes forward(), backward_input() and backward_weight()
  // once, in this order; different micro-batches interleave in any order. A stage takes the tensor
  // that arrived and returns the one that is sent, so that no message is copied. A tensor is empty
  // where its count is 0. forward() returns the output, the others the gradient of the input.
  virtual Tensor<T> forward(int microbatch, Tensor<T> input) = 0;
  virtual Tensor<T> backward_input(int microbatch, Tensor<T> grad_output) = 0;
  // Adds to the gradients of the parameters. Frees the tensors saved for this micro-batch.
  virtual void backward_weight(int microbatch) = 0;
  // backward_input() and backward_weight() in one pass; a stage may go layer by layer, which needs
  // less memory.
  virtual Tensor<T> backward(int microbatch, Tensor<T> grad_output) {
    Tensor<T> grad_input = backward_input(microbatch, std::move(grad_output));
    backward_weight(microbatch);
    return grad_input;
  }
  virtual std::vector<Parameter<T>>& parameters() = 0;
};

}  // namespace weft::train
