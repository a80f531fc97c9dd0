// The learning rate of each step, and the scale of a loss in half precision.
#pragma once

#include <algorithm>
#include <cmath>
#include <numbers>

namespace weft::train {

// Goyal et al., arXiv 1706.02677: 0.1 per 256 samples of a batch.
inline double linear_scaling(double batch, double base = 0.1, double base_batch = 256) {
  return base * batch / base_batch;
}

// From `start` to the peak in a line, then along a cosine down to `floor` (or level, without end).
struct RateSchedule {
  double peak = 3e-4;
  int warm_up = 0;   // steps
  double start = 0;  // before the first
  int steps = 0;     // when the floor is reached; 0: level
  double floor = 0;

  double at(int step) const {  // from 1
    if (step <= warm_up) return start + (peak - start) * step / warm_up;
    if (steps <= warm_up) return peak;
    const double done = std::min(1.0, double(step - warm_up) / (steps - warm_up));
    return floor + (peak - floor) * (1 + std::cos(std::numbers::pi * done)) / 2;
  }
};

// Dynamic loss scaling (Micikevicius et al., arXiv 1710.03740): doubled after so many good steps;
// halved, and the step skipped, where a gradient is infinite or no number.
class LossScaler {
 public:
  explicit LossScaler(double scale = 65536, int growth_steps = 2000)
      : scale_(scale), growth_steps_(growth_steps) {}
  double scale() const { return scale_; }
  int good_steps() const { return good_; }  // since it last changed its mind, or began
  int skipped() const { return skipped_; }  // steps that were not taken: no updates of an optimizer
  // Goes on where another one was.
  void restore(double scale, int good_steps, int skipped) {
    scale_ = scale;
    good_ = good_steps;
    skipped_ = skipped;
  }
  void skip() { ++skipped_; }  // where nothing is scaled
  // norm: of the scaled gradients, of all ranks. True: take the step.
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
