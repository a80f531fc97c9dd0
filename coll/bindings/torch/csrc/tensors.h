// What weft is told of a tensor: memory, count, element type; and which tensors it refuses.
#pragma once

#include <ATen/ATen.h>
#include <weft.h>

#include <string>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

namespace weft_torch {

// How a tensor's elements travel: those that weft has no type for, as bytes.
struct Elements {
  void* data;
  std::size_t count;
  weft_dtype_t type;
};

// Both throw with the name of the call and the value that was wrong: the tensor must be dense,
// contiguous, and on the CPU or a CUDA GPU. What is reduced must have a type that weft computes
// with.
Elements moved(const char* call, const at::Tensor& tensor);
Elements reduced(const char* call, const at::Tensor& tensor);
void check(const char* call, const at::Tensor& tensor);

// The checks of what calls have in common; they throw.
const at::Tensor& only(const char* call, const std::vector<at::Tensor>& tensors);
void same_type(const char* call, const at::Tensor& a, const at::Tensor& b);
void has(const char* call, const char* what, const at::Tensor& t, std::int64_t numel);
// Counts of elements as weft counts them: those that travel as bytes count for several.
std::vector<std::size_t> scaled(std::vector<std::size_t> counts, const at::Tensor& t,
                                const Elements& e);

// The tensors of a list, one after the other in memory: where they are, if they lie so, else in a
// buffer of their own that is filled from them, or to be copied to them.
class Flat {
 public:
  enum class Use { kRead, kWrite };
  Flat(const char* call, const std::vector<at::Tensor>& tensors, Use use);
  const at::Tensor& tensor() const { return flat_; }
  bool copied() const { return copied_; }
  // Of a list that was to be written: from the buffer to the tensors.
  void copy_out() const;
  // The elements of each tensor; `even`: all the same.
  std::vector<std::size_t> counts;
  bool even = true;

 private:
  std::vector<at::Tensor> tensors_;
  at::Tensor flat_;
  bool copied_ = false;
};

// An operator of weft, for as long as the object lives.
class Operator {
 public:
  Operator(const char* call, const c10d::ReduceOp& op);
  ~Operator();
  Operator(const Operator&) = delete;
  Operator& operator=(const Operator&) = delete;
  operator weft_op_t() const { return op_; }

 private:
  weft_op_t op_ = WEFT_SUM;
  bool made_ = false;
};

}  // namespace weft_torch
