// Matrix products. The rank's threads share the tiles of a product; OpenBLAS computes each tile on
// one thread, because its own threads would compete with the rank's and synchronize per product.
#include <cblas.h>

#include <bit>
#include <cstring>

#include "train/operators/operators.h"

namespace weft::train {
namespace {

// Returns the number of tiles along a side: at most 16 tiles of about 512, so that repacking the
// other operand for each tile is cheap. Depends only on the shape, so results have the same bits
// with any number of threads.
Index tiles(Index length) { return std::min<Index>(std::bit_ceil((length + 639) / 640), 16); }

constexpr Index kOfRowPiece = 1 << 16;      // elements that a thread reads per piece: 25 us
constexpr Index kWorthSplitting = 1 << 21;  // multiply-adds: 20 us on one core

template <class T>
void one_tile(CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, Index m, Index n, Index k, T alpha,
              const T* a, Index a_stride, const T* b, Index b_stride, T beta, T* c,
              Index c_stride) {
  const auto i = [](Index x) { return static_cast<blasint>(x); };
  if constexpr (sizeof(T) == 4)
    cblas_sgemm(CblasRowMajor, ta, tb, i(m), i(n), i(k), alpha, a, i(a_stride), b, i(b_stride),
                beta, c, i(c_stride));
  else
    cblas_dgemm(CblasRowMajor, ta, tb, i(m), i(n), i(k), alpha, a, i(a_stride), b, i(b_stride),
                beta, c, i(c_stride));
}

// A row times a transposed matrix (inference of one token). Memory-bound: reads the matrix once; a
// one-row GEMM would pack it first.
template <class T>
void one_row(Index n, Index k, T alpha, const T* a, const T* b, Index b_stride, T beta, T* c) {
  in_ranges(n, 16 + kOfRowPiece / (k + 1), [=](Index begin, Index end) {
    const T* from = b + begin * b_stride;
    const auto i = [](Index x) { return static_cast<blasint>(x); };
    if constexpr (sizeof(T) == 4)
      cblas_sgemv(CblasRowMajor, CblasNoTrans, i(end - begin), i(k), alpha, from, i(b_stride), a, 1,
                  beta, c + begin, 1);
    else
      cblas_dgemv(CblasRowMajor, CblasNoTrans, i(end - begin), i(k), alpha, from, i(b_stride), a, 1,
                  beta, c + begin, 1);
  });
}

}  // namespace

template <class T>
void gemm(bool transpose_a, bool transpose_b, Index m, Index n, Index k, T alpha, const T* a,
          Index a_stride, const T* b, Index b_stride, T beta, T* c, Index c_stride) {
  if (m == 0 || n == 0) return;
  static const bool alone = (openblas_set_num_threads(1), true);
  static_cast<void>(alone);
  if (m == 1 && !transpose_a && transpose_b) return one_row(n, k, alpha, a, b, b_stride, beta, c);
  const auto ta = transpose_a ? CblasTrans : CblasNoTrans;
  const auto tb = transpose_b ? CblasTrans : CblasNoTrans;
  Index rows = 1, columns = 1;
  if (m * n * k >= kWorthSplitting) {
    rows = tiles(m);
    columns = tiles(n);
    if (rows * columns == 1) (m > n ? rows : columns) = 2;
  }
  const auto length = [](Index whole, Index parts) {
    return ((whole + parts - 1) / parts + 15) / 16 * 16;
  };
  const Index tall = length(m, rows), wide = length(n, columns);
  in_pieces(rows * columns, [&](Index piece, Index) {
    const Index r = piece / columns * tall, s = piece % columns * wide;
    if (r >= m || s >= n) return;
    one_tile<T>(ta, tb, std::min(tall, m - r), std::min(wide, n - s), k, alpha,
                a + (transpose_a ? r : r * a_stride), a_stride,
                b + (transpose_b ? s * b_stride : s), b_stride, beta, c + r * c_stride + s,
                c_stride);
  });
}

template <class T>
void linear(T* y, const T* x, const T* w, const T* bias, Index rows, Index in, Index out) {
  if (bias != nullptr)
    in_ranges(rows, 1 + 65536 / out, [=](Index begin, Index end) {
      for (Index r = begin; r < end; ++r) std::memcpy(y + r * out, bias, out * sizeof(T));
    });
  gemm<T>(false, true, rows, out, in, 1, x, in, w, in, bias != nullptr ? T(1) : T(0), y, out);
}

template <class T>
void linear_grad_input(T* grad_x, const T* grad_y, const T* w, Index rows, Index in, Index out) {
  gemm<T>(false, false, rows, in, out, 1, grad_y, out, w, in, 0, grad_x, in);
}

template <class T>
void linear_grad_weight(T* grad_w, T* grad_bias, const T* grad_y, const T* x, Index rows, Index in,
                        Index out) {
  gemm<T>(true, false, out, in, rows, 1, grad_y, out, x, in, 1, grad_w, in);
  if (grad_bias != nullptr) add_columns(grad_bias, grad_y, rows, out);
}

template void gemm(bool, bool, Index, Index, Index, float, const float*, Index, const float*, Index,
                   float, float*, Index);
template void gemm(bool, bool, Index, Index, Index, double, const double*, Index, const double*,
                   Index, double, double*, Index);
WEFT_PRODUCTS(template, float)
WEFT_PRODUCTS(template, double)

}  // namespace weft::train
