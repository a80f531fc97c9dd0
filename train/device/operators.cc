// Operators built from kernels and products: on a GPU, and for 16-bit elements on the CPU (slow, to
// demonstrate mixed precision). Does not depend on layers.
#include "train/operators/operators.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>
#include <vector>

#include "topo/base/status.h"
#include "train/device/gemm.h"
#include "train/device/launch.h"

namespace weft::train {

// ---- launching -------------------------------------------------------------------------------

namespace {

// Makes values in host memory readable by kernels of T: on a device they are copied, unless the
// caller already has a device copy.
template <class T, class V>
class ForKernels {
  static_assert(sizeof(V) == sizeof(float));

 public:
  ForKernels(const V* host, Index count, const V* brought = nullptr)
      : at_(kOnDevice<T> ? brought : host) {
    if (!kOnDevice<T> || brought != nullptr) return;
    memory_ = Tensor<WideOnDevice<float>>(count, Use::kWorkspace);
    rank_device().upload(memory_.data(), host, count * sizeof(V));
    at_ = reinterpret_cast<const V*>(memory_.data());
  }
  explicit ForKernels(const std::vector<V>& from) : ForKernels(from.data(), from.size()) {}
  ForKernels(Tokens tokens, Index count) : ForKernels(tokens.host, count, tokens.device) {}
  const V* data() const { return at_; }

 private:
  Tensor<WideOnDevice<float>> memory_;
  const V* at_;
};

template <class T>
void product(bool transpose_a, bool transpose_b, Index m, Index n, Index k, const T* a,
             Index a_stride, const T* b, Index b_stride, double beta, T* c, Index c_stride,
             const T* bias = nullptr) {
  if (m == 0 || n == 0) return;
  DeviceGemm g{kDType<T>, transpose_a, transpose_b, m,        n,        k,        beta,   a,
               b,         c,           bias,        a_stride, b_stride, c_stride, nullptr};
  if constexpr (!kOnDevice<T>) return multiply_on_host(g);
  DeviceContext& context = DeviceContext::of_this_rank();
  g.scratch = context.product_scratch();
  const bool bias_after = bias != nullptr && !gemm_adds_bias(g);
  if (bias_after) g.bias = nullptr;
  static thread_local std::set<ProductKey> loaded;
  if (loaded.insert(key_of(g)).second) context.settle();
  context.launch(device_work(g));
  if (bias_after) launch_of<kernels::AddRows, T>(c, nullptr, c, bias, m, n);
}

template <class T>
void add_column_sums(T* to, T* to_products, const T* y, const T* x, const Wide<T>* mean,
                     const Wide<T>* rstd, Index rows, Index width) {
  if (rows == 0) return;
  const Index slab = std::max<Index>(16, (rows + kernels::kSlabs - 1) / kernels::kSlabs);
  const Index slabs = (rows + slab - 1) / slab;
  Tensor<Wide<T>> sums((x != nullptr ? 2 : 1) * slabs * width, Use::kWorkspace);
  ValueOf<T>* first = raw(sums.data());
  ValueOf<T>* second = x != nullptr ? first + slabs * width : nullptr;
  launch_of<kernels::ColumnSlabs, T>(first, second, y, x, mean, rstd, rows, width, slab);
  launch_of<kernels::AddSlabs, T>(to, first, slabs, width);
  if (x != nullptr) launch_of<kernels::AddSlabs, T>(to_products, second, slabs, width);
}

}  // namespace

void zero_on_device(void* to, std::size_t bytes) {  // sizes of all elements are even
  launch<OnDevice<Bf16>>(kernels::SetZero<Bf16>{static_cast<std::uint16_t*>(to), bytes / 2});
}

// ---- products --------------------------------------------------------------------------------

template <KernelElement T>
void linear(T* y, const T* x, const T* w, const T* bias, Index rows, Index in, Index out) {
  product<T>(false, true, rows, out, in, x, in, w, in, 0, y, out, bias);
}
template <KernelElement T>
void linear_grad_input(T* grad_x, const T* grad_y, const T* w, Index rows, Index in, Index out) {
  product<T>(false, false, rows, in, out, grad_y, out, w, in, 0, grad_x, in);
}
template <KernelElement T>
void linear_grad_weight(T* grad_w, T* grad_bias, const T* grad_y, const T* x, Index rows, Index in,
                        Index out) {
  product<T>(true, false, out, in, rows, grad_y, out, x, in, 1, grad_w, in);
  if (grad_bias != nullptr) add_columns(grad_bias, grad_y, rows, out);
}

namespace {

// Calls f with the attention kernels for this head width.
template <class F>
void with_attention(const AttentionShape& s, F f) {
  if (s.head_width > kernels::kWidestHead)
    throw Error(
        fmt::format("attention on a GPU: a head of {} numbers; at most {}: take more --heads",
                    s.head_width, kernels::kWidestHead));
  if (s.head_width <= 64)
    f(kernels::Attention<64>());
  else
    f(kernels::Attention<128>());
}
kernels::Heads heads_of(const AttentionShape& s) {
  return {s.batch, s.positions, s.heads, s.head_width};
}
template <class T>
ValueOf<T> factor_of(const AttentionShape& s) {
  return static_cast<ValueOf<T>>(1 / std::sqrt(static_cast<double>(s.head_width)));
}

}  // namespace

template <DeviceElement T>
void attention(T* out, Wide<T>* log_sum, const T* qkv, const AttentionShape& s) {
  with_attention(s, [&]<class A>(A) {
    launch_of<A::template Of, T>(out, log_sum, qkv, heads_of(s), factor_of<T>(s));
  });
}
template <DeviceElement T>
void attention_grad(T* grad_qkv, const T* grad_out, const T* out, const Wide<T>* log_sum,
                    const T* qkv, const AttentionShape& s) {
  Tensor<Wide<T>> inner(s.numbers(), Use::kWorkspace);
  with_attention(s, [&]<class A>(A) {
    launch_of<A::template GradQueries, T>(grad_qkv, inner.data(), grad_out, out, log_sum, qkv,
                                          heads_of(s), factor_of<T>(s));
    launch_of<A::template GradKeys, T>(grad_qkv, inner.data(), grad_out, log_sum, qkv, heads_of(s),
                                       factor_of<T>(s));
  });
}

// On the CPU: converts to fp32 and uses the fp32 attention, for heads of any width.
template <HalfElement T>
void attention(T* out, Wide<T>* log_sum, const T* qkv, const AttentionShape& s) {
  const Index n = s.rows() * s.width();
  Tensor<float> wide(4 * n, Use::kWorkspace);
  float* const result = wide.data() + 3 * n;
  widen(wide.data(), qkv, 3 * n);
  attention(result, log_sum, wide.data(), s);
  narrow(out, result, n);
}
template <HalfElement T>
void attention_grad(T* grad_qkv, const T* grad_out, const T* out, const Wide<T>* log_sum,
                    const T* qkv, const AttentionShape& s) {
  const Index n = s.rows() * s.width();
  Tensor<float> wide(8 * n, Use::kWorkspace);
  float *const inputs = wide.data(), *const grad = inputs + 3 * n, *const result = grad + n,
               *const to = result + n;
  widen(inputs, qkv, 3 * n);
  widen(grad, grad_out, n);
  widen(result, out, n);
  attention_grad(to, grad, result, log_sum, inputs, s);
  narrow(grad_qkv, to, 3 * n);
}

// ---- element by element ----------------------------------------------------------------------

template <KernelElement T>
void gelu(T* y, const T* x, Index count) {
  launch_of<kernels::Gelu, T>(y, x, count);
}
template <KernelElement T>
void gelu_grad(T* grad_x, const T* grad_y, const T* x, Index count) {
  launch_of<kernels::GeluGrad, T>(grad_x, grad_y, x, count);
}
template <KernelElement T>
void add(T* to, const T* from, Index count) {
  launch_of<kernels::Add, T>(to, from, count);
}
template <KernelElement T>
void scale(T* x, HostOf<T> factor, Index count) {
  launch_of<kernels::Scale, T>(x, factor, count);
}
template <KernelElement T>
void narrow(T* to, const Wide<T>* from, Index count) {
  launch_of<kernels::Narrow, T>(to, from, count);
}
template <KernelElement T>
void widen(Wide<T>* to, const T* from, Index count) {
  launch_of<kernels::Widen, T>(to, from, count);
}
template <KernelElement T>
void add_residual(T* out, const T* x, const T* y, const T* bias, Index rows, Index width) {
  launch_of<kernels::AddRows, T>(out, x, y, bias, rows, width);
}
template <KernelElement T>
void copy_columns(T* to, Index to_stride, const T* from, Index from_stride, Index rows,
                  Index columns) {
  launch_of<kernels::CopyColumns, T>(to, from, to_stride, from_stride, rows, columns);
}
template <KernelElement T>
void add_columns(T* to, const T* x, Index rows, Index width) {
  add_column_sums<T>(to, nullptr, x, nullptr, nullptr, nullptr, rows, width);
}

// ---- norm ------------------------------------------------------------------------------------

template <KernelElement T>
void layer_norm(T* y, Wide<T>* mean, Wide<T>* rstd, const T* x, const T* gain, const T* bias,
                Index rows, Index width) {
  launch_of<kernels::LayerNorm, T>(y, mean, rstd, x, gain, bias, rows, width);
}
template <KernelElement T>
void layer_norm_grad(T* grad_x, T* grad_gain, T* grad_bias, const T* grad_y, const T* x,
                     const Wide<T>* mean, const Wide<T>* rstd, const T* gain, Index rows,
                     Index width) {
  launch_of<kernels::LayerNormGrad, T>(grad_x, grad_y, x, mean, rstd, gain, rows, width);
  add_column_sums(grad_bias, grad_gain, grad_y, x, mean, rstd, rows, width);
}

// ---- embedding -------------------------------------------------------------------------------

template <KernelElement T>
void embed(T* out, const T* table, Tokens tokens, Index first, Index n, Index rows, Index width) {
  const ForKernels<T, Token> here(tokens, rows);
  launch_of<kernels::Embed, T>(out, table, here.data(), first, n, rows, width);
}

// Sorts rows by token on the host, so that two threads never add to the same number.
template <KernelElement T>
void embed_grad(T* grad_table, const T* grad_out, const Token* tokens, Index first, Index n,
                Index rows, Index width) {
  std::vector<std::uint32_t> order;
  const auto row_of_table = [&](Index r) { return static_cast<Index>(tokens[r]) - first; };
  for (Index r = 0; r < rows; ++r)
    if (row_of_table(r) < n) order.push_back(static_cast<std::uint32_t>(r));
  if (order.empty()) return;
  std::stable_sort(order.begin(), order.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return tokens[a] < tokens[b]; });
  std::vector<std::uint32_t> segments, token, first_segment;
  for (std::uint32_t at = 0, last = 0; at < order.size(); ++at) {
    const auto here = static_cast<std::uint32_t>(row_of_table(order[at]));
    const bool another = token.empty() || token.back() != here;
    if (another) {
      token.push_back(here);
      first_segment.push_back(static_cast<std::uint32_t>(segments.size()));
    }
    if (another || at - last == kernels::kSegment) {
      segments.push_back(at);
      last = at;
    }
  }
  const Index nsegments = segments.size(), ntokens = token.size();
  segments.push_back(static_cast<std::uint32_t>(order.size()));
  first_segment.push_back(static_cast<std::uint32_t>(nsegments));
  const ForKernels<T, std::uint32_t> d_order(order), d_segments(segments), d_token(token),
      d_first(first_segment);
  Tensor<Wide<T>> sums(nsegments * width, Use::kWorkspace);
  launch_of<kernels::EmbedSegments, T>(sums.data(), grad_out, d_order.data(), d_segments.data(),
                                       nsegments, width);
  launch_of<kernels::EmbedGrad, T>(grad_table, sums.data(), d_token.data(), d_first.data(), ntokens,
                                   width);
}
template <KernelElement T>
void add_positions(T* x, const T* table, Index first, Index positions, Index rows, Index width) {
  launch_of<kernels::AddRows, T>(x, nullptr, x, table, rows, width, first, positions);
}
template <KernelElement T>
void add_positions_grad(T* grad_table, const T* grad, Index first, Index positions, Index rows,
                        Index width) {
  launch_of<kernels::PositionsGrad, T>(grad_table, grad, first, positions, rows, width);
}

// ---- cross-entropy ---------------------------------------------------------------------------

template <KernelElement T>
void row_maximum(Wide<T>* maximum, const T* logits, Index rows, Index n) {
  launch_of<kernels::RowMaximum, T>(maximum, logits, rows, n);
}
template <KernelElement T>
void row_exp(T* logits, Wide<T>* sum, Wide<T>* target, const Wide<T>* maximum, Tokens targets,
             Index first, Index n, Index rows) {
  const ForKernels<T, Token> here(targets, rows);
  launch_of<kernels::RowSum, T>(sum, target, logits, maximum, here.data(), first, rows, n);
}
template <KernelElement T>
void cross_entropy_grad(T* logits, const Wide<T>* maximum, const Wide<T>* sum, Tokens targets,
                        Index first, Index n, Index rows, HostOf<T> scale) {
  const ForKernels<T, Token> here(targets, rows);
  launch_of<kernels::CrossEntropyGrad, T>(logits, maximum, sum, here.data(), first, rows, n, scale);
}
template <KernelElement T>
void whole_cross_entropy(T* logits, Wide<T>* sum, Wide<T>* target, Tokens targets, Index n,
                         Index rows, HostOf<T> scale) {
  const ForKernels<T, Token> here(targets, rows);
  launch_of<kernels::FusedCrossEntropy, T>(logits, sum, target, here.data(), rows, n, scale);
}
template <DeviceElement T>
void sum_losses(LossSum<T>* loss, const Wide<T>* sum, const Wide<T>* target, Index rows) {
  Tensor<Beside<T, double>> parts(kernels::kParts, Use::kWorkspace);
  set_zero(loss, 1);
  launch_of<kernels::LossParts, T>(parts.data(), sum, target, rows);
  launch_of<kernels::AddParts, T>(loss, parts.data());
}

// ---- sums of squares -------------------------------------------------------------------------

template <DeviceElement T>
void add_squares(Beside<T, double>* total, const T* x, Index count) {
  Tensor<Beside<T, double>> parts(kernels::kParts, Use::kWorkspace);
  launch_of<kernels::SquareParts, T>(parts.data(), x, count);
  launch_of<kernels::AddParts, T>(total, parts.data());
}
template <DeviceElement T>
void see_largest(Beside<T, double>* parts, const T* x, Index count) {
  static_assert(kExactParts<T> == kernels::kParts);
  launch_of<kernels::LargestParts, T>(parts, x, count);
}
template <DeviceElement T>
void add_exact_squares(Beside<T, std::int64_t>* parts, const T* x, Index count, int shift) {
  launch_of<kernels::ExactSquareParts, T>(parts, x, count, shift);
}

// ---- optimizer -------------------------------------------------------------------------------

template <DeviceElement T>
void update_weights(T* w, Wide<T>* moment1, Wide<T>* moment2, const T* gradient, Index count,
                    const Update& u) {
  const auto v = [](double x) { return static_cast<ValueOf<T>>(x); };
  const AdamW& how = u.how;
  if (u.adam)
    launch_of<kernels::AdamW, T>(
        w, moment1, moment2, gradient, count, v(how.rate / (1 - std::pow(how.beta1, how.step))),
        v(how.beta1), v(how.beta2), v(how.epsilon), v(1 - how.rate * how.decay),
        v(1 / std::sqrt(1 - std::pow(how.beta2, how.step))), v(u.gradient_scale));
  else
    launch_of<kernels::Sgd, T>(w, u.momentum != 0 ? moment1 : nullptr, gradient, count, v(how.rate),
                               v(u.momentum), v(how.decay), v(u.gradient_scale));
}

#define WEFT_KERNELS(T)                            \
  WEFT_PRODUCTS(template, T)                       \
  WEFT_OPERATORS(template, T)                      \
  WEFT_ATTENTION(template, T)                      \
  template void narrow(T*, const Wide<T>*, Index); \
  template void widen(Wide<T>*, const T*, Index);
#define WEFT_ON_DEVICE(T)   \
  WEFT_KERNELS(T)           \
  WEFT_SQUARES(template, T) \
  template void sum_losses<T>(LossSum<T>*, const Wide<T>*, const Wide<T>*, Index);
WEFT_DEVICE_TYPES(WEFT_ON_DEVICE)
WEFT_KERNELS(OnProcessor<Bf16>)
WEFT_KERNELS(OnProcessor<Fp16>)
WEFT_OPTIMIZER(template, OnDevice<Fp32>)
WEFT_OPTIMIZER(template, OnDevice<Fp64>)
template void add(WideOnDevice<float>*, const WideOnDevice<float>*, Index);
template void add(WideOnDevice<double>*, const WideOnDevice<double>*, Index);

}  // namespace weft::train
