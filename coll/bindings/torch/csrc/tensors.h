// How tensors are passed to weft: memory, count, element type; and which tensors are rejected.
#pragma once

#include <ATen/ATen.h>
#include <weft.h>

#include <string>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

namespace weft_torch {

// A tensor's elements as weft moves them: types that weft lacks travel as bytes.
struct Elements {
  void* data;
  std::size_t count;
  weft_dtype_t type;
};

// Both throw, naming the call and the wrong value: the tensor must be dense, contiguous, and on the
// CPU or a CUDA GPU. reduced() needs a type that weft can reduce.
Elements moved(const char* call, const at::Tensor& tensor);
Elements reduced(const char* call, const at::Tensor& tensor);
void check(const char* call, const at::Tensor& tensor);

// Checks that calls have in common; they throw.
const at::Tensor& only(const char* call, const std::vector<at::Tensor>& tensors);
void same_type(const char* call, const at::Tensor& a, const at::Tensor& b);
void has(const char* call, const char* what, const at::Tensor& t, std::int64_t numel);
// Element counts in weft's units: an element that travels as bytes counts several times.
std::vector<std::size_t> scaled(std::vector<std::size_t> counts, const at::Tensor& t,
                                const Elements& e);

// The tensors of a list in contiguous memory: the tensors' own memory if that is contiguous,
// otherwise a buffer. With Use::kRead the constructor fills the buffer from the tensors; with
// Use::kWrite copy_out() copies the buffer to the tensors.
class Flat {
 public:
  enum class Use { kRead, kWrite };
  Flat(const char* call, const std::vector<at::Tensor>& tensors, Use use);
  const at::Tensor& tensor() const { return flat_; }
  bool copied() const { return copied_; }
  // For a list to be written: copies the buffer to the tensors.
  void copy_out() const;
  // The elements of each tensor; `even`: all equal.
  std::vector<std::size_t> counts;
  bool even = true;

 private:
  std::vector<at::Tensor> tensors_;
  at::Tensor flat_;
  bool copied_ = false;
};

// A weft operator, freed with this object.
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
