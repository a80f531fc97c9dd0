// The operators of the CPU backend, in fp32 and fp64: OpenBLAS computes matrix products, loops do
// the rest, on the threads of parallel.h. Operators know shapes only; gpt_layers.h knows which rank
// holds which part.
//
// Matrices are row-major. Weights are [outputs][inputs], so that a layer is y = x w^T. An operator
// that "adds" adds its result to the destination. rows = samples x positions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "train/parallel/parallel.h"

namespace weft::train {

using Token = std::int32_t;
using Index = std::size_t;

// c[m][n] = alpha a b + beta c, with a or b transposed. Strides are elements from row to row.
template <class T>
void gemm(bool transpose_a, bool transpose_b, Index m, Index n, Index k, T alpha, const T* a,
          Index a_stride, const T* b, Index b_stride, T beta, T* c, Index c_stride);

// y[rows][out] = x[rows][in] w[out][in]^T + bias[out]; bias may be null.
template <class T>
void linear(T* y, const T* x, const T* w, const T* bias, Index rows, Index in, Index out);
// grad_x = grad_y w
template <class T>
void linear_grad_input(T* grad_x, const T* grad_y, const T* w, Index rows, Index in, Index out);
// Adds to grad_w and, unless null, to grad_bias.
template <class T>
void linear_grad_weight(T* grad_w, T* grad_bias, const T* grad_y, const T* x, Index rows, Index in,
                        Index out);

// y = (x - mean) rstd gain + bias in each row; also writes mean[rows] and rstd[rows].
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
  Index numbers() const { return batch * heads * positions; }
};
// out[rows][heads x head_width] from qkv[rows][3][heads x head_width]; causal, scores scaled by
// 1 / sqrt(head_width). Also writes the logarithm of each row's sum of exp(score),
// log_sum[batch][heads][positions]: all that attention_grad() needs of the scores.
template <class T>
void attention(T* out, T* log_sum, const T* qkv, const AttentionShape& s);
template <class T>
void attention_grad(T* grad_qkv, const T* grad_out, const T* out, const T* log_sum, const T* qkv,
                    const AttentionShape& s);

// y = gelu(x), by GPT-2's approximation with tanh.
template <class T>
void gelu(T* y, const T* x, Index count);
template <class T>
void gelu_grad(T* grad_x, const T* grad_y, const T* x, Index count);  // grad_x may be grad_y

// out[row] = table[tokens[row] - first], zeros for a token that is not in [first, first + n).
template <class T>
void embed(T* out, const T* table, const Token* tokens, Index first, Index n, Index rows,
           Index width);
// Adds each row of grad_out to its token's row of grad_table.
template <class T>
void embed_grad(T* grad_table, const T* grad_out, const Token* tokens, Index first, Index n,
                Index rows, Index width);

// Cross-entropy has three steps, since the vocabulary may be split over ranks: a rank has columns
// [first, first + n). The caller reduces maximum, sum and target over the ranks between the steps.
// This first step writes the maximum of each row.
template <class T>
void row_maximum(T* maximum, const T* logits, Index rows, Index n);
// logits = exp(logits - maximum); sum = the row's sum; target = the target's logit - maximum, or 0
// where another rank has the target's column.
template <class T>
void row_exp(T* logits, T* sum, T* target, const T* maximum, const Token* targets, Index first,
             Index n, Index rows);
// logits = scale (softmax - one_hot(target)), from the logits and sums of row_exp().
template <class T>
void cross_entropy_grad(T* logits, const T* sum, const Token* targets, Index first, Index n,
                        Index rows, T scale);

template <class T>
void add(T* to, const T* from, Index count);
// Adds the rows of from[rows][width] to `to`, in their order.
template <class T>
void add_rows(T* to, const T* from, Index rows, Index width);
template <class T>
void scale(T* x, T factor, Index count);
template <class T>
double sum_of_squares(const T* x, Index count);

struct AdamW {
  double rate, beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, decay = 0.1;
  int step = 1;  // from 1
};
// One AdamW step on weights w and moments m, v. gradient_scale multiplies the gradient (clipping).
template <class T>
void adamw(T* w, T* m, T* v, const T* gradient, Index count, const AdamW& how, T gradient_scale);
// One SGD step. momentum = 0: the step neither reads nor writes `moment`.
template <class T>
void sgd(T* w, T* moment, const T* gradient, Index count, double rate, double momentum,
         double decay, T gradient_scale);

}  // namespace weft::train
