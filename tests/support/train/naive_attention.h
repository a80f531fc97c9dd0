// Causal attention and its gradient in fp64 by the formulas, one element at a time.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "train/operators/operators.h"

namespace weft::testing {

struct NaiveAttention {
  std::vector<double> out, log_sum, grad_qkv;
};

inline NaiveAttention naive_attention(const std::vector<double>& qkv,
                                      const std::vector<double>& grad_out,
                                      const train::AttentionShape& s) {
  using train::Index;
  const Index w = s.width(), n = s.positions, d = s.head_width;
  const double factor = 1 / std::sqrt(static_cast<double>(d));
  NaiveAttention r{std::vector<double>(s.rows() * w), std::vector<double>(s.numbers()),
                   std::vector<double>(qkv.size())};
  for (Index b = 0; b < s.batch; ++b)
    for (Index h = 0; h < s.heads; ++h)
      for (Index i = 0; i < n; ++i) {
        // part: 0 query, 1 key, 2 value
        const auto at = [&](Index row, Index part) {
          return ((b * n + row) * 3 + part) * w + h * d;
        };
        const Index to = (b * n + i) * w + h * d;
        std::vector<double> p(i + 1), slope(i + 1);
        double sum = 0, inner = 0;
        for (Index j = 0; j <= i; ++j) {
          for (Index k = 0; k < d; ++k) p[j] += qkv[at(i, 0) + k] * qkv[at(j, 1) + k] * factor;
          sum += std::exp(p[j]);
        }
        r.log_sum[(b * s.heads + h) * n + i] = std::log(sum);
        for (Index j = 0; j <= i; ++j) {
          p[j] = std::exp(p[j]) / sum;
          for (Index k = 0; k < d; ++k) {
            r.out[to + k] += p[j] * qkv[at(j, 2) + k];
            r.grad_qkv[at(j, 2) + k] += p[j] * grad_out[to + k];
            slope[j] += grad_out[to + k] * qkv[at(j, 2) + k];
          }
          inner += p[j] * slope[j];
        }
        for (Index j = 0; j <= i; ++j)
          for (Index k = 0; k < d; ++k) {
            const double score = p[j] * (slope[j] - inner) * factor;
            r.grad_qkv[at(i, 0) + k] += score * qkv[at(j, 1) + k];
            r.grad_qkv[at(j, 1) + k] += score * qkv[at(i, 0) + k];
          }
      }
  return r;
}

// The largest difference, relative to the largest element of `want`.
inline double apart(const std::vector<double>& want, const std::vector<double>& got) {
  double most = 0, worst = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    most = std::max(most, std::abs(want[i]));
    const double off = std::abs(want[i] - got[i]);
    worst = std::isfinite(off) ? std::max(worst, off) : HUGE_VAL;
  }
  return worst / most;
}

}  // namespace weft::testing
