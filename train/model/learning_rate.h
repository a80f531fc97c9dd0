// The learning rate of each step, and the scale of a loss in half precision.
#pragma once

#include <algorithm>
#include <cmath>
#include <numbers>

namespace weft::train {

// Linear scaling rule: the rate is 0.1 per 256 samples (Goyal et al., arXiv 1706.02677).
inline double linear_scaling(double batch, double base = 0.1, double base_batch = 256) {
  return base * batch / base_batch;
}

// Linear warm-up from `start` to `peak`, then cosine decay to `floor`, or constant.
struct RateSchedule {
  double peak = 3e-4;
  int warm_up = 0;   // steps
  double start = 0;  // rate before the first step
  int steps = 0;     // step at which the rate reaches `floor`; 0: constant peak
  double floor = 0;

  double at(int step) const {  // step counts from 1
    if (step <= warm_up) return start + (peak - start) * step / warm_up;
    if (steps <= warm_up) return peak;
    const double done = std::min(1.0, double(step - warm_up) / (steps - warm_up));
    return floor + (peak - floor) * (1 + std::cos(std::numbers::pi * done)) / 2;
  }
};

// Dynamic loss scaling (Micikevicius et al., arXiv 1710.03740): doubles the scale after
// `growth_steps` good steps; halves it and skips the step if a gradient is inf or NaN.
class LossScaler {
 public:
  explicit LossScaler(double scale = 65536, int growth_steps = 2000)
      : scale_(scale), growth_steps_(growth_steps) {}
  double scale() const { return scale_; }
  int good_steps() const { return good_; }  // steps since the last skipped step, or since the start
  int skipped() const { return skipped_; }  // steps without a weight update
  // Restores the state of an earlier run's scaler.
  void restore(double scale, int good_steps, int skipped) {
    scale_ = scale;
    good_ = good_steps;
    skipped_ = skipped;
  }
  void skip() { ++skipped_; }  // a skipped step without loss scaling
  // norm: the norm of all ranks' scaled gradients. Returns whether to apply the optimizer step.
  bool step(double norm) {
    if (!std::isfinite(norm)) {
      scale_ = std::max(1.0, scale_ / 2);
      good_ = 0;
      skip();
      return false;
    }
    if (++good_ % growth_steps_ == 0) scale_ *= 2;
    return true;
  }

 private:
  double scale_;
  int growth_steps_, good_ = 0, skipped_ = 0;
};

}  // namespace weft::train
