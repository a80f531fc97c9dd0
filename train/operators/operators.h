// The operators of the CPU backend, in fp32 and fp64: matrix products by OpenBLAS, loops for the
// rest, on the threads of parallel.h. They know shapes only; which rank holds which part is for
// layers.h.
//
// Matrices are row-major. Weights are [outputs][inputs], so that a layer is y = x w^T. "Adds"
// means that the result is added to what is there. rows = samples x positions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "train/parallel/parallel.h"

namespace weft::train {

using Token = std::int32_t;
using Index = std::size_t;

// c[m][n] = alpha a b + beta c, with a or b transposed. A stride is the distance of two rows.
template <class T>
void gemm(bool transpose_a, bool transpose_b, Index m, Index n, Index k, T alpha, const T* a,
          Index a_stride, const T* b, Index b_stride, T beta, T* c, Index c_stride);

// y[rows][out] = x[rows][in] w[out][in]^T + bias[out]; bias may be null.
template <class T>
void linear(T* y, const T* x, const T* w, const T* bias, Index rows, Index in, Index out);
// grad_x = grad_y w
template <class T>
void linear_grad_input(T* grad_x, const T* grad_y, const T* w, Index rows, Index in, Index out);
// Adds to grad_w and to grad_bias (unless that is null).
template <class T>
void linear_grad_weight(T* grad_w, T* grad_bias, const T* grad_y, const T* x, Index rows, Index in,
                        Index out);

// y = (x - mean) rstd gain + bias in each row; keeps mean and rstd, rows each.
template <class T>
void layer_norm(T* y, T* mean, T* rstd, const T* x, const T* gain, const T* bias, Index rows,
                Index width);
// Adds to all three gradients.
template <class T>
void layer_norm_grad(T* grad_x, T* grad_gain, T* grad_bias, const T* grad_y, const T* x,
                     const T* mean, const T* rstd, const T* gain, Index rows, Index width);

struct AttentionShape {
  Index batch, positions, heads, head_width;
  Index width() const { return heads * head_width; }
  Index rows() const { return batch * positions; }
};
// out[rows][heads x head_width] from qkv[rows][3][heads x head_width]; causal, scaled by
// 1 / sqrt(head_width). Keeps the probabilities: [batch][heads][positions][positions].
template <class T>
void attention(T* out, T* probabilities, const T* qkv, const AttentionShape& s);
template <class T>
void attention_grad(T* grad_qkv, const T* grad_out, const T* probabilities, const T* qkv,
                    const AttentionShape& s);

// GPT-2's approximation by tanh.
template <class T>
void gelu(T* y, const T* x, Index count);
template <class T>
void gelu_grad(T* grad_x, const T* grad_y, const T* x, Index count);  // grad_x may be grad_y

// out[row] = table[tokens[row] - first], zeros for a token that is not in [first, first + n).
template <class T>
void embed(T* out, const T* table, const Token* tokens, Index first, Index n, Index rows,
           Index width);
template <class T>  // adds
void embed_grad(T* grad_table, const T* grad_out, const Token* tokens, Index first, Index n,
                Index rows, Index width);

// Cross-entropy in steps, as the vocabulary may be spread over ranks: each has columns
// [first, first + n). Between the steps maximum, sum and target are reduced over the ranks.
template <class T>
void row_maximum(T* maximum, const T* logits, Index rows, Index n);
// logits = exp(logits - maximum); sum = of the row; target = logit of the target - maximum, or 0
// where it is not here.
template <class T>
void row_exp(T* logits, T* sum, T* target, const T* maximum, const Token* targets, Index first,
             Index n, Index rows);
// logits = scale (softmax - one_hot(target)) from what row_exp() left.
template <class T>
void cross_entropy_grad(T* logits, const T* sum, const Token* targets, Index first, Index n,
                        Index rows, T scale);

template <class T>
void add(T* to, const T* from, Index count);
template <class T>  // the rows of from[rows][width], in their order
void add_rows(T* to, const T* from, Index rows, Index width);
template <class T>
void scale(T* x, T factor, Index count);
template <class T>
double sum_of_squares(const T* x, Index count);

struct AdamW {
  double rate, beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, decay = 0.1;
  int step = 1;  // from 1
};
// gradient_scale: for clipping and averages.
template <class T>
void adamw(T* w, T* m, T* v, const T* gradient, Index count, const AdamW& how, T gradient_scale);
// momentum = 0: none is read or written.
template <class T>
void sgd(T* w, T* moment, const T* gradient, Index count, double rate, double momentum,
         double decay, T gradient_scale);

}  // namespace weft::train
