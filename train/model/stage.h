// Stage: consecutive layers of a model on one pipeline rank. The pipeline runtime executes stages,
// and checkpoints contain their parameters. A stage does not depend on its neighbors.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "train/operators/tensor.h"

namespace weft::train {

// A rank's shard of a logical tensor: block `index` of `of` along dimension `dim`. of == 1: the
// whole tensor, replicated on the axis.
struct Shard {
  int dim = 0;
  int index = 0, of = 1;
};

// A shard of a logical tensor; `shape` is the shape of the whole tensor.
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
  // Maps this shard's element i to its index in the logical tensor (both row-major).
  std::size_t logical_index(std::size_t i) const {
    std::size_t inner = 1;  // elements of one index of the sharded dimension
    for (std::size_t d = static_cast<std::size_t>(shard.dim) + 1; d < shape.size(); ++d)
      inner *= shape[d];
    const std::size_t whole = shape[static_cast<std::size_t>(shard.dim)] * inner;
    const std::size_t mine = whole / static_cast<std::size_t>(shard.of);
    return i / mine * whole + static_cast<std::size_t>(shard.index) * mine + i % mine;
  }
};

// A parameter of this rank. Its pointers change when ZeRO 3 gathers weights.
template <class T>
struct Parameter {
  Logical logical;
  // Standard deviation of the initial values; 0: all zero or, with `ones`, all one.
  double deviation = 0;
  bool ones = false;
  bool decays = false;     // true for matrices: weight decay applies
  bool tied_copy = false;  // a second copy of a tensor that another stage owns
  bool early = false;      // backward_input(), not backward_weight(), computes the gradient
  std::size_t offset = 0;  // index in the stage's flat weights
  T* value = nullptr;      // logical.count() elements
  T* gradient = nullptr;
};

// The unit of checkpoints: elements [begin, begin + count) of a shard of a logical tensor.
// Optimizer state has names like "h0.qkv.weight/m".
template <class T>
struct TensorPart {
  Logical logical;
  std::size_t begin = 0, count = 0;
  T* data = nullptr;
  // Another stage has the same tensor, sharded differently, and writes it, so checkpoints only read
  // this part. False for replicated parts.
  bool duplicate = false;
};

template <class T>
class Stage {
 public:
  virtual ~Stage() = default;
  // Returns the number of elements of the input tensor per micro-batch; 0 for the first stage,
  // which reads samples.
  virtual std::size_t input_count() const = 0;
  // Returns the number of elements of the output tensor per micro-batch; 0 for the last stage,
  // whose output is a loss.
  virtual std::size_t output_count() const = 0;
  // Every micro-batch, numbered from 0, runs forward(), backward_input() and backward_weight()
  // once, in this order; micro-batches may interleave. A stage consumes the received tensor and
  // returns the tensor to send, to avoid copies. Tensors with count 0 are empty. forward() returns
  // the output, the others return the gradient of the input.
  virtual Tensor<T> forward(int microbatch, Tensor<T> input) = 0;
  virtual Tensor<T> backward_input(int microbatch, Tensor<T> grad_output) = 0;
  // Accumulates parameter gradients. Frees the tensors saved for this micro-batch.
  virtual void backward_weight(int microbatch) = 0;
  // backward_input() and backward_weight() in one pass; a stage may do both layer by layer, which
  // needs less memory.
  virtual Tensor<T> backward(int microbatch, Tensor<T> grad_output) {
    Tensor<T> grad_input = backward_input(microbatch, std::move(grad_output));
    backward_weight(microbatch);
    return grad_input;
  }
  virtual std::vector<Parameter<T>>& parameters() = 0;
};

}  // namespace weft::train
