// Times kernels and products, and prints the table. Does not depend on models.
#include "train/device/bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "topo/base/clock.h"
#include "train/device/context.h"
#include "train/operators/operators.h"

namespace weft::train {
namespace {

using T = OnDevice<Bf16>;
using W = Wide<T>;

template <class X>
Tensor<X> filled(Index n) {
  Tensor<X> t(n, Use::kWorkspace);
  std::vector<float> numbers(n);
  for (Index i = 0; i < n; ++i)  // neighbors differ; values of about 1
    numbers[i] =
        static_cast<float>(static_cast<int>(i * 2654435761u >> 16 & 0xffff) - 32768) / 32768;
  from_host(t.data(), numbers.data(), n);
  return t;
}

class Table {
 public:
  Table(int repeat, const GpuPeaks& peaks) : repeat_(repeat), peaks_(peaks) {
    fmt::print("{:<24} {:>12} {:>10} {:>10} {:>8}\n", "kernel", "moved or done", "us", "rate",
               "of peak");
  }
  // bytes: minimum traffic, each operand read or written once. flops: of a product; otherwise 0.
  void row(const char* name, double bytes, double flops, const std::function<void()>& run) {
    run();
    rank_device().wait();
    const double start = now_s();
    for (int i = 0; i < repeat_; ++i) run();
    rank_device().wait();
    const double s = (now_s() - start) / repeat_;
    const bool product = flops > 0;
    const double rate = product ? flops / s / 1e12 : bytes / s / 1e9;
    const double peak = product ? peaks_.tflops : peaks_.gb_per_s;
    fmt::print("{:<24} {:>9.1f} {:<3} {:>9.1f} {:>6.0f} {:<6} {:>4}\n", name,
               product ? flops / 1e9 : bytes / 1e6, product ? "GF" : "MB", s * 1e6, rate,
               product ? "TF/s" : "GB/s",
               peak > 0 ? fmt::format("{:.0f} %", 100 * rate / peak) : "?");
    std::fflush(stdout);
  }

 private:
  int repeat_;
  GpuPeaks peaks_;
};

}  // namespace

void bench_kernels(const KernelBench& b) {
  DeviceContext& context = DeviceContext::of_this_rank();
  const std::string gpu = context.device().describe(context.gpu());
  GpuPeaks peaks = gpu_peaks(gpu);
  if (b.peaks.tflops > 0) peaks.tflops = b.peaks.tflops;
  if (b.peaks.gb_per_s > 0) peaks.gb_per_s = b.peaks.gb_per_s;
  fmt::print("# {}, bf16, {} rows of {}; peak {} GB/s and {} TFLOP/s{}\n", gpu, b.rows, b.width,
             peaks.gb_per_s, peaks.tflops,
             peaks.gb_per_s > 0 ? "" : " (not known: --peak-gbs, --peak-tflops)");
  const Index n = b.rows * b.width, positions = std::min(b.positions, b.rows);
  const auto mb = [](Index elements) { return 2.0 * static_cast<double>(elements); };
  auto x = filled<T>(4 * n), y = filled<T>(4 * n), z = filled<T>(4 * n);
  auto gain = filled<T>(4 * b.width), bias = filled<T>(4 * b.width);
  auto w = filled<T>(4 * b.width * b.width);
  auto mean = filled<W>(b.rows), rstd = filled<W>(b.rows);
  Table table(b.repeat, peaks);

  table.row("copy", 2 * mb(4 * n), 0, [&] { copy(y.data(), x.data(), 4 * n); });
  table.row("layer_norm", mb(2 * n), 0, [&] {
    layer_norm(y.data(), mean.data(), rstd.data(), x.data(), gain.data(), bias.data(), b.rows,
               b.width);
  });
  table.row("layer_norm_grad", mb(4 * n), 0, [&] {
    layer_norm_grad(z.data(), gain.data(), bias.data(), y.data(), x.data(), mean.data(),
                    rstd.data(), gain.data(), b.rows, b.width);
  });
  table.row("gelu", mb(8 * n), 0, [&] { gelu(y.data(), x.data(), 4 * n); });
  table.row("gelu_grad", mb(12 * n), 0, [&] { gelu_grad(z.data(), y.data(), x.data(), 4 * n); });
  table.row("add_residual", mb(3 * n), 0,
            [&] { add_residual(z.data(), x.data(), y.data(), bias.data(), b.rows, b.width); });
  table.row("bias gradient", mb(4 * n), 0,
            [&] { add_columns(bias.data(), x.data(), b.rows, 4 * b.width); });
  std::vector<Token> tokens(b.rows);
  for (Index r = 0; r < b.rows; ++r) tokens[r] = static_cast<Token>(r * 2654435761u % b.vocabulary);
  {
    auto wte = filled<T>(b.vocabulary * b.width);
    table.row("embed", mb(2 * n), 0, [&] {
      embed(y.data(), wte.data(), tokens.data(), 0, b.vocabulary, b.rows, b.width);
    });
    table.row("embed_grad", mb(3 * n), 0, [&] {  // including the host's sort
      embed_grad(wte.data(), y.data(), tokens.data(), 0, b.vocabulary, b.rows, b.width);
    });
  }
  {
    auto logits = filled<T>(b.rows * b.vocabulary);
    table.row("cross_entropy", mb(2 * b.rows * b.vocabulary), 0, [&] {  // with the targets' upload
      whole_cross_entropy(logits.data(), mean.data(), rstd.data(), tokens.data(), b.vocabulary,
                          b.rows, 1e-4f);
    });
  }
  {
    const Index parameters = b.rows * 5184;  // default: the blocks of the 124M model
    auto weights = filled<T>(parameters);
    auto gradient = filled<OnDevice<Fp32>>(parameters);
    auto master = filled<W>(parameters), m = filled<W>(parameters);
    auto v = Tensor<W>::zeros(parameters, Use::kWorkspace);
    const Update u{true, {.rate = 1e-4}, 0, 1};
    table.row("adamw", static_cast<double>(parameters) * (7 * 4 + 4 + 2), 0, [&] {  // + rounding
      update_weights(reinterpret_cast<OnDevice<Fp32>*>(master.data()), m.data(), v.data(),
                     gradient.data(), parameters, u);
      narrow(weights.data(), master.data(), parameters);
    });
    SquareSum<OnDevice<Fp32>> sum;
    table.row("sum of squares", 2 * mb(parameters), 0,
              [&] { sum.add(gradient.data(), parameters); });
  }
  {
    const AttentionShape s{b.rows / positions, positions, b.heads, b.width / b.heads};
    Tensor<W> kept(s.numbers(), Use::kWorkspace);
    // Two products of 2 T T d FLOPs, five for the gradient, each halved by the causal mask.
    const double flops = 2.0 * static_cast<double>(s.numbers() * s.positions * s.head_width);
    table.row("attention", 0, flops, [&] { attention(y.data(), kept.data(), x.data(), s); });
    table.row("attention_grad", 0, 2.5 * flops,
              [&] { attention_grad(z.data(), w.data(), y.data(), kept.data(), x.data(), s); });
  }
  const auto products = [&](const char* name, Index in, Index out) {
    const double flops = 2.0 * static_cast<double>(b.rows * in * out);
    table.row(name, 0, flops,
              [&] { linear(y.data(), x.data(), w.data(), bias.data(), b.rows, in, out); });
  };
  products("product h -> 3h", b.width, 3 * b.width);
  products("product h -> h", b.width, b.width);
  products("product h -> 4h", b.width, 4 * b.width);
  products("product 4h -> h", 4 * b.width, b.width);
  const double flops = 8.0 * static_cast<double>(b.rows * b.width * b.width);
  table.row("its input's gradient", 0, flops,
            [&] { linear_grad_input(y.data(), x.data(), w.data(), b.rows, 4 * b.width, b.width); });
  table.row("its weight's gradient", 0, flops, [&] {
    linear_grad_weight<T>(w.data(), nullptr, x.data(), y.data(), b.rows, 4 * b.width, b.width);
  });
}

}  // namespace weft::train
