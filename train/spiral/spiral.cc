// The spiral's points and network. Does not depend on other ranks.
#include "train/spiral/spiral.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace weft::train {
namespace {

// A normal distribution that is reproducible on all platforms: splitmix64 and Box-Muller.
class Normal {
 public:
  explicit Normal(std::uint64_t seed) : state_(seed) {}
  double operator()() {
    const double u = uniform(), v = uniform();
    return std::sqrt(-2 * std::log(1 - u)) * std::cos(2 * std::numbers::pi * v);
  }

 private:
  double uniform() {  // [0, 1)
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1p-53;
  }
  std::uint64_t state_;
};

constexpr std::size_t kBlock = 16;  // samples summed sequentially

}  // namespace

SpiralData make_spiral(const SpiralOptions& o) {
  SpiralData d;
  Normal normal(o.seed);
  for (int i = 0; i < o.points_per_arm; ++i)
    for (int arm = 0; arm < o.arms; ++arm) {
      const double along =
          o.points_per_arm > 1 ? static_cast<double>(i) / (o.points_per_arm - 1) : 0;
      const double angle = 4 * (arm + along) + 0.2 * normal();
      d.x.push_back(along * std::sin(angle));
      d.y.push_back(along * std::cos(angle));
      d.arm.push_back(arm);
    }
  return d;
}

// weights: x to hidden, y to hidden, biases of hidden; hidden to each arm; biases of arms.
SpiralNet::SpiralNet(const SpiralOptions& o)
    : hidden_(static_cast<std::size_t>(o.hidden)),
      arms_(static_cast<std::size_t>(o.arms)),
      rate_(o.rate),
      regularisation_(o.regularisation) {
  Normal normal(o.seed + 1000);
  for (std::size_t i = 0; i < 2 * hidden_; ++i) weights.push_back(0.01 * normal());
  weights.insert(weights.end(), hidden_, 0.0);
  for (std::size_t i = 0; i < arms_ * hidden_; ++i) weights.push_back(0.01 * normal());
  weights.insert(weights.end(), arms_, 0.0);
}

void SpiralNet::scores(const SpiralData& data, std::size_t i, double* hidden, double* out) const {
  const std::size_t n = hidden_;
  const double *wx = weights.data(), *wy = wx + n, *b = wy + n, *w2 = b + n, *b2 = w2 + arms_ * n;
  const double x = data.x[i], y = data.y[i];
  for (std::size_t j = 0; j < n; ++j) hidden[j] = std::max(0.0, wx[j] * x + wy[j] * y + b[j]);
  for (std::size_t k = 0; k < arms_; ++k) {
    double sum = 0;
    for (std::size_t j = 0; j < n; ++j) sum += w2[k * n + j] * hidden[j];
    out[k] = sum + b2[k];
  }
}

// Pairwise summation by halves: two workers with half of the samples each get the same bits as one
// worker with all samples.
double SpiralNet::add_gradient(const SpiralData& data, std::size_t begin, std::size_t end,
                               std::size_t total, std::span<double> gradient) const {
  if (end - begin <= kBlock) return add_block(data, begin, end, total, gradient);
  const std::size_t middle = begin + (end - begin) / 2;
  std::vector<double> second(size());
  const double loss = add_gradient(data, begin, middle, total, gradient) +
                      add_gradient(data, middle, end, total, second);
  for (std::size_t i = 0; i < second.size(); ++i) gradient[i] += second[i];
  return loss;
}

double SpiralNet::add_block(const SpiralData& data, std::size_t begin, std::size_t end,
                            std::size_t total, std::span<double> gradient) const {
  const std::size_t n = hidden_;
  std::vector<double> hidden(n), error(n);
  double out[SpiralOptions::kMostArms];
  const double* w2 = weights.data() + 3 * n;
  double *gx = gradient.data(), *gy = gx + n, *gb = gy + n, *g2 = gb + n, *gb2 = g2 + arms_ * n;
  double loss = 0;
  for (std::size_t i = begin; i < end; ++i) {
    operations_ += n * (5 + 3 * arms_);  // forward: 2 + arms; backward: 2 arms + 3
    scores(data, i, hidden.data(), out);
    const double most = *std::max_element(out, out + arms_);
    double sum = 0;
    for (std::size_t k = 0; k < arms_; ++k) sum += out[k] = std::exp(out[k] - most);
    const auto right = static_cast<std::size_t>(data.arm[i]);
    loss -= std::log(out[right] / sum) / static_cast<double>(total);
    std::fill(error.begin(), error.end(), 0.0);
    for (std::size_t k = 0; k < arms_; ++k) {
      const double e = (out[k] / sum - (k == right ? 1 : 0)) / static_cast<double>(total);
      gb2[k] += e;
      for (std::size_t j = 0; j < n; ++j) {
        g2[k * n + j] += e * hidden[j];
        error[j] += e * w2[k * n + j];
      }
    }
    for (std::size_t j = 0; j < n; ++j) {
      const double e = hidden[j] > 0 ? error[j] : 0.0;
      gx[j] += e * data.x[i];
      gy[j] += e * data.y[i];
      gb[j] += e;
    }
  }
  return loss;
}

double SpiralNet::add_regularisation(std::span<double> gradient) const {
  const std::size_t n = hidden_;
  double squares = 0;
  const auto matrix = [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      gradient[i] += regularisation_ * weights[i];
      squares += weights[i] * weights[i];
    }
  };
  matrix(0, 2 * n);
  matrix(3 * n, 3 * n + arms_ * n);
  return 0.5 * regularisation_ * squares;
}

void SpiralNet::update(std::span<const double> gradient) {
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] -= rate_ * gradient[i];
}

double SpiralNet::accuracy(const SpiralData& data) const {
  std::vector<double> hidden(hidden_);
  double out[SpiralOptions::kMostArms];
  int right = 0;
  for (std::size_t i = 0; i < data.size(); ++i) {
    scores(data, i, hidden.data(), out);
    right += std::max_element(out, out + arms_) - out == data.arm[i];
  }
  return static_cast<double>(right) / static_cast<double>(data.size());
}

}  // namespace weft::train
