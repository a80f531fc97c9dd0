// Checks of tensors, and lists of tensors as one buffer. This file does not depend on which call is
// made.
#include "tensors.h"

#include <c10/util/StringUtil.h>

namespace weft_torch {
namespace {

// -1: weft has no such type.
int type_of(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return WEFT_FLOAT32;
    case at::kDouble:
      return WEFT_FLOAT64;
    case at::kHalf:
      return WEFT_FLOAT16;
    case at::kBFloat16:
      return WEFT_BFLOAT16;
    case at::kChar:
      return WEFT_INT8;
    case at::kByte:
      return WEFT_UINT8;
    case at::kShort:
      return WEFT_INT16;
    case at::kUInt16:
      return WEFT_UINT16;
    case at::kInt:
      return WEFT_INT32;
    case at::kUInt32:
      return WEFT_UINT32;
    case at::kLong:
      return WEFT_INT64;
    case at::kUInt64:
      return WEFT_UINT64;
    case at::kBool:
      return WEFT_BOOL;
    default:
      return -1;
  }
}

}  // namespace

void check(const char* call, const at::Tensor& t) {
  TORCH_CHECK(t.defined(), "weft: ", call, ": a tensor is undefined");
  TORCH_CHECK(t.layout() == at::kStrided, "weft: ", call, ": the tensor is sparse (", t.layout(),
              "); pass tensor.to_dense(). all_reduce takes sparse COO tensors with SUM");
  TORCH_CHECK(t.device().is_cpu() || t.device().is_cuda(), "weft: ", call, ": the tensor is on ",
              t.device(),
              ", and this backend takes tensors of the CPU and of CUDA: pass "
              "tensor.cpu()");
  TORCH_CHECK(t.is_contiguous(), "weft: ", call, ": the tensor is not contiguous (sizes ",
              t.sizes(), ", strides ", t.strides(), "); pass tensor.contiguous()");
}

Elements moved(const char* call, const at::Tensor& t) {
  check(call, t);
  const int type = type_of(t.scalar_type());
  if (type >= 0)
    return {t.data_ptr(), static_cast<std::size_t>(t.numel()), static_cast<weft_dtype_t>(type)};
  return {t.data_ptr(), static_cast<std::size_t>(t.nbytes()), WEFT_UINT8};
}

Elements reduced(const char* call, const at::Tensor& t) {
  TORCH_CHECK(!t.is_complex(), "weft: ", call, ": weft does not reduce complex numbers (",
              t.scalar_type(), "); pass torch.view_as_real(tensor), with SUM or AVG");
  TORCH_CHECK(type_of(t.scalar_type()) >= 0, "weft: ", call, ": weft does not reduce ",
              t.scalar_type(), "; pass another type, such as tensor.float()");
  return moved(call, t);
}

const at::Tensor& only(const char* call, const std::vector<at::Tensor>& tensors) {
  TORCH_CHECK(tensors.size() == 1, "weft: ", call, " takes one tensor, not ", tensors.size());
  return tensors.front();
}

void same_type(const char* call, const at::Tensor& a, const at::Tensor& b) {
  TORCH_CHECK(a.scalar_type() == b.scalar_type(), "weft: ", call,
              ": input and output have the types ", a.scalar_type(), " and ", b.scalar_type());
}

void has(const char* call, const char* what, const at::Tensor& t, std::int64_t numel) {
  TORCH_CHECK(t.numel() == numel, "weft: ", call, ": the ", what, " has ", t.numel(),
              " elements, and ", numel, " are needed");
}

std::vector<std::size_t> scaled(std::vector<std::size_t> counts, const at::Tensor& t,
                                const Elements& e) {
  const std::size_t by = t.numel() > 0 ? e.count / static_cast<std::size_t>(t.numel()) : 1;
  for (std::size_t& c : counts) c *= by;
  return counts;
}

Flat::Flat(const char* call, const std::vector<at::Tensor>& tensors, Use use) : tensors_(tensors) {
  TORCH_CHECK(!tensors.empty(), "weft: ", call, ": the list of tensors is empty");
  const at::Tensor& first = tensors.front();
  std::int64_t total = 0;
  bool in_a_row = true;
  for (const at::Tensor& t : tensors) {
    check(call, t);
    TORCH_CHECK(t.scalar_type() == first.scalar_type(), "weft: ", call,
                ": the tensors of a list have the types ", first.scalar_type(), " and ",
                t.scalar_type());
    in_a_row = in_a_row && static_cast<char*>(t.data_ptr()) ==
                               static_cast<char*>(first.data_ptr()) +
                                   static_cast<std::size_t>(total) * t.element_size();
    in_a_row = in_a_row && t.storage().is_alias_of(first.storage());
    total += t.numel();
    even = even && t.numel() == first.numel();
    counts.push_back(static_cast<std::size_t>(t.numel()));
  }
  copied_ = !in_a_row;
  if (in_a_row)
    flat_ = first.as_strided({total}, {1});
  else if (use == Use::kWrite)
    flat_ = at::empty({total}, first.options());
  else {
    std::vector<at::Tensor> views;
    for (const at::Tensor& t : tensors) views.push_back(t.view(-1));
    flat_ = at::cat(views);
  }
}

void Flat::copy_out() const {
  if (!copied_) return;
  std::int64_t at = 0;
  for (const at::Tensor& t : tensors_) {
    t.copy_(flat_.narrow(0, at, t.numel()).view(t.sizes()));
    at += t.numel();
  }
}

Operator::Operator(const char* call, const c10d::ReduceOp& op) {
  switch (op.op_) {
    case c10d::ReduceOp::SUM:
      op_ = WEFT_SUM;
      return;
    case c10d::ReduceOp::AVG:
      op_ = WEFT_AVG;
      return;
    case c10d::ReduceOp::PRODUCT:
      op_ = WEFT_PROD;
      return;
    case c10d::ReduceOp::MIN:
      op_ = WEFT_MIN;
      return;
    case c10d::ReduceOp::MAX:
      op_ = WEFT_MAX;
      return;
    case c10d::ReduceOp::BAND:
      op_ = WEFT_BIT_AND;
      return;
    case c10d::ReduceOp::BOR:
      op_ = WEFT_BIT_OR;
      return;
    case c10d::ReduceOp::BXOR:
      op_ = WEFT_BIT_XOR;
      return;
    case c10d::ReduceOp::PREMUL_SUM: {
      const auto* with = dynamic_cast<const c10d::PreMulSumSupplement*>(op.supplement_.get());
      TORCH_CHECK(with, "weft: ", call, ": PREMUL_SUM without a factor");
      const double factor =
          with->tensor_factor.defined() ? with->tensor_factor.item<double>() : with->double_factor;
      TORCH_CHECK(weft_op_create_premul_sum(factor, &op_) == WEFT_OK, "weft: ", call, ": ",
                  weft_last_error());
      made_ = true;
      return;
    }
    default:
      TORCH_CHECK(false, "weft: ", call, ": ReduceOp ", static_cast<int>(op.op_),
                  " is not supported");
  }
}

Operator::~Operator() {
  if (made_) (void)weft_op_free(op_);
}

}  // namespace weft_torch
