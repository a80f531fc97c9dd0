// The learning rate of each step, and the scale of a loss in half precision.
#pragma once

#include <algorithm>
#include <cmath>
#include <numbers>

namespace weft::train {

// The rate grows with the batch: 0.1 per 256 samples (Goyal et al., arXiv 1706.02677).
inline double linear_scaling(double batch, double base = 0.1, double base_batch = 256) {
  return base * batch / base_batch;
}

// The rate rises linearly from `start` to `peak`, then falls along a cosine to `floor` or stays.
struct RateSchedule {
  double peak = 3e-4;
  int warm_up = 0;   // steps
  double start = 0;  // rate before the first step
  int steps = 0;     // step at which the rate reaches `floor`; 0: it stays at the peak
  double floor = 0;

  double at(int step) const {  // step counts from 1
    if (step <= warm_up) return start + (peak - start) * step / warm_up;
    if (steps <= warm_up) return peak;
    const double done = std::min(1.0, double(step - warm_up) / (steps - warm_up));
    return floor + (peak - floor) * (1 + std::cos(std::numbers::pi * done)) / 2;
  }
};

// Dynamic loss scaling (Micikevicius et al., arXiv 1710.03740): the scale doubles after a number of
// good steps; it halves, and the step is skipped, where a gradient is infinite or NaN.
class LossScaler {
 public:
  explicit LossScaler(double scale = 65536, int growth_steps = 2000)
      : scale_(scale), growth_steps_(growth_steps) {}
  double scale() const { return scale_; }
  int good_steps() const { return good_; }  // since the last skipped step, or the begin
  int skipped() const { return skipped_; }  // steps without an update of the weights
  // Takes over the state of an earlier run's scaler.
  void restore(double scale, int good_steps, int skipped) {
    scale_ = scale;
    good_ = good_steps;
    skipped_ = skipped;
  }
  void skip() { ++skipped_; }  // counts a skipped step of a run without scaling
  // norm: that of all ranks' scaled gradients. Returns whether the optimizer may take the step.
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
