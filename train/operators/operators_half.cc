// Operators on 16-bit elements of the processor: each makes its operands fp32, computes, and rounds
// the result. They show what mixed precision keeps and sends; they are not fast.
#include <cstring>
#include <vector>

#include "train/device/kernel.h"
#include "train/operators/operators.h"

namespace weft::train {
namespace {

constexpr Index kPiece = 16384;  // elements that a thread converts

// An operand in fp32 while a call runs; null stays null.
template <class T>
class In {
 public:
  In(const T* x, Index count) {
    if (x == nullptr) return;
    wide_ = Tensor<float>(count, Use::kWorkspace);
    widen(wide_.data(), x, count);
  }
  operator const float*() const { return wide_.data(); }

 private:
  Tensor<float> wide_;
};
// A result in fp32, rounded to its elements when the call is over. The second adds to what is
// there.
template <class T>
class Out {
 public:
  Out(T* x, Index count) : to_(x), wide_(count, Use::kWorkspace) {}
  ~Out() { narrow(to_, wide_.data(), wide_.count()); }
  Out(const Out&) = delete;
  Out& operator=(const Out&) = delete;
  operator float*() { return wide_.data(); }

 protected:
  T* to_;
  Tensor<float> wide_;
};
template <class T>
class InOut : public Out<T> {
 public:
  InOut(T* x, Index count) : Out<T>(x, count) { widen(this->wide_.data(), x, count); }
};

}  // namespace

template <HalfElement T>
void narrow(T* to, const float* from, Index count) {
  in_ranges(count, kPiece, [=](Index begin, Index end) {
    for (Index i = begin; i < end; ++i)
      to[i].stored = kernels::Codec<typename T::Element>::narrow(from[i]);
  });
}
template <HalfElement T>
void widen(float* to, const T* from, Index count) {
  in_ranges(count, kPiece, [=](Index begin, Index end) {
    for (Index i = begin; i < end; ++i)
      to[i] = kernels::Codec<typename T::Element>::widen(from[i].stored);
  });
}

template <HalfElement T>
void linear(T* y, const T* x, const T* w, const T* bias, Index rows, Index in, Index out) {
  linear<float>(Out(y, rows * out), In(x, rows * in), In(w, in * out), In(bias, out), rows, in,
                out);
}
template <HalfElement T>
void linear_grad_input(T* grad_x, const T* grad_y, const T* w, Index rows, Index in, Index out) {
  linear_grad_input<float>(Out(grad_x, rows * in), In(grad_y, rows * out), In(w, in * out), rows,
                           in, out);
}
template <HalfElement T>
void linear_grad_weight(T* grad_w, T* grad_bias, const T* grad_y, const T* x, Index rows, Index in,
                        Index out) {
  linear_grad_weight<float>(InOut(grad_w, in * out), nullptr, In(grad_y, rows * out),
                            In(x, rows * in), rows, in, out);
  if (grad_bias != nullptr) add_columns(grad_bias, grad_y, rows, out);
}

template <HalfElement T>
void layer_norm(T* y, Wide<T>* mean, Wide<T>* rstd, const T* x, const T* gain, const T* bias,
                Index rows, Index width) {
  layer_norm<float>(Out(y, rows * width), mean, rstd, In(x, rows * width), In(gain, width),
                    In(bias, width), rows, width);
}
template <HalfElement T>
void layer_norm_grad(T* grad_x, T* grad_gain, T* grad_bias, const T* grad_y, const T* x,
                     const Wide<T>* mean, const Wide<T>* rstd, const T* gain, Index rows,
                     Index width) {
  const Index n = rows * width;
  layer_norm_grad<float>(InOut(grad_x, n), InOut(grad_gain, width), InOut(grad_bias, width),
                         In(grad_y, n), In(x, n), mean, rstd, In(gain, width), rows, width);
}

template <HalfElement T>
void attention(T* out, Wide<T>* log_sum, const T* qkv, const AttentionShape& s) {
  const Index n = s.rows() * s.width();
  attention<float>(Out(out, n), log_sum, In(qkv, 3 * n), s);
}
template <HalfElement T>
void attention_grad(T* grad_qkv, const T* grad_out, const T* out, const Wide<T>* log_sum,
                    const T* qkv, const AttentionShape& s) {
  const Index n = s.rows() * s.width();
  attention_grad<float>(Out(grad_qkv, 3 * n), In(grad_out, n), In(out, n), log_sum, In(qkv, 3 * n),
                        s);
}

template <HalfElement T>
void gelu(T* y, const T* x, Index count) {
  gelu<float>(Out(y, count), In(x, count), count);
}
template <HalfElement T>
void gelu_grad(T* grad_x, const T* grad_y, const T* x, Index count) {
  gelu_grad<float>(Out(grad_x, count), In(grad_y, count), In(x, count), count);
}

template <HalfElement T>
void embed(T* out, const T* table, Tokens tokens, Index first, Index n, Index rows, Index width) {
  embed<float>(Out(out, rows * width), In(table, n * width), tokens, first, n, rows, width);
}
template <HalfElement T>
void embed_grad(T* grad_table, const T* grad_out, const Token* tokens, Index first, Index n,
                Index rows, Index width) {
  embed_grad<float>(InOut(grad_table, n * width), In(grad_out, rows * width), tokens, first, n,
                    rows, width);
}
template <HalfElement T>
void add_positions(T* x, const T* table, Index first, Index positions, Index rows, Index width) {
  add_positions<float>(InOut(x, rows * width), In(table, positions * width), first, positions, rows,
                       width);
}
template <HalfElement T>
void add_positions_grad(T* grad_table, const T* grad, Index first, Index positions, Index rows,
                        Index width) {
  add_positions_grad<float>(InOut(grad_table, positions * width), In(grad, rows * width), first,
                            positions, rows, width);
}

template <HalfElement T>
void add(T* to, const T* from, Index count) {
  add<float>(InOut(to, count), In(from, count), count);
}
template <HalfElement T>
void scale(T* x, HostOf<T> factor, Index count) {
  scale<float>(InOut(x, count), factor, count);
}
template <HalfElement T>
void add_residual(T* out, const T* x, const T* y, const T* bias, Index rows, Index width) {
  const Index n = rows * width;
  add_residual<float>(Out(out, n), In(x, n), In(y, n), In(bias, width), rows, width);
}
template <HalfElement T>
void add_columns(T* to, const T* x, Index rows, Index width) {
  add_columns<float>(InOut(to, width), In(x, rows * width), rows, width);
}
template <HalfElement T>
void copy_columns(T* to, Index to_stride, const T* from, Index from_stride, Index rows,
                  Index columns) {
  for (Index r = 0; r < rows; ++r)
    std::memcpy(to + r * to_stride, from + r * from_stride, columns * sizeof(T));
}

template <HalfElement T>
void row_maximum(Wide<T>* maximum, const T* logits, Index rows, Index n) {
  row_maximum<float>(maximum, In(logits, rows * n), rows, n);
}
// The logits stay: 16 bits would lose digits of the exponentials.
template <HalfElement T>
void row_exp(T* logits, Wide<T>* sum, Wide<T>* target, const Wide<T>* maximum, Tokens targets,
             Index first, Index n, Index rows) {
  Tensor<float> wide(rows * n, Use::kWorkspace);
  widen(wide.data(), logits, wide.count());
  row_exp(wide.data(), sum, target, maximum, targets, first, n, rows);
}
template <HalfElement T>
void cross_entropy_grad(T* logits, const Wide<T>* maximum, const Wide<T>* sum, Tokens targets,
                        Index first, Index n, Index rows, HostOf<T> scale) {
  std::vector<float> ignored(2 * rows);
  InOut wide(logits, rows * n);
  float* const numbers = wide;
  row_exp(numbers, ignored.data(), ignored.data() + rows, maximum, targets, first, n, rows);
  cross_entropy_grad(numbers, maximum, sum, targets, first, n, rows, scale);
}
template <HalfElement T>
void whole_cross_entropy(T* logits, Wide<T>* sum, Wide<T>* target, Tokens targets, Index n,
                         Index rows, HostOf<T> scale) {
  whole_cross_entropy<float>(InOut(logits, rows * n), sum, target, targets, n, rows, scale);
}

template <HalfElement T>
void add_squares(Beside<T, double>* total, const T* x, Index count) {
  add_squares<float>(total, In(x, count), count);
}
template <HalfElement T>
void see_largest(Beside<T, double>* parts, const T* x, Index count) {
  see_largest<float>(parts, In(x, count), count);
}
template <HalfElement T>
void add_exact_squares(Beside<T, std::int64_t>* parts, const T* x, Index count, int shift) {
  add_exact_squares<float>(parts, In(x, count), count, shift);
}

#define WEFT_HALF(T)                             \
  template void narrow(T*, const float*, Index); \
  template void widen(float*, const T*, Index);  \
  WEFT_PRODUCTS(template, T)                     \
  WEFT_OPERATORS(template, T)
WEFT_HALF(OnProcessor<Bf16>)
WEFT_HALF(OnProcessor<Fp16>)

}  // namespace weft::train
