// StepMeter computes differences of counters. Does not update the counters.
#include "train/step_meter.h"

#include <algorithm>
#include <numeric>

#include "topo/base/clock.h"

namespace weft::train {

void StepMeter::begin() {
  start_ = now_s();
  begin_ = read_();
  counted_ = {};
  resume();
}

void StepMeter::pause() {
  if (sent_) counted_ += sent_() - since_;
}
void StepMeter::resume() {
  if (sent_) since_ = sent_();
}

double StepMeter::busy_seconds() const {
  const StepCounts now = read_();
  return now_s() - start_ - (now.tensor - begin_.tensor) - (now.pipeline - begin_.pipeline) -
         (now.exposed - begin_.exposed) - (now.in_order - begin_.in_order);
}

void StepMeter::end(StepReport& report) {
  pause();
  const StepCounts now = read_();
  report.sent = counted_;
  report.tensor_seconds = now.tensor - begin_.tensor;
  report.pipeline_seconds = now.pipeline - begin_.pipeline;
  report.gradient_seconds = now.gradients - begin_.gradients;
  report.exposed_seconds = now.exposed - begin_.exposed;
  report.offloaded = now.offloaded - begin_.offloaded;
  report.seconds = now_s() - start_;
}

void compare_ranks(std::vector<double> busy, StepReport& report) {
  const auto slowest = std::max_element(busy.begin(), busy.end());
  report.straggler = static_cast<Rank>(slowest - busy.begin());
  report.straggler_ratio =
      *slowest * static_cast<double>(busy.size()) / std::accumulate(busy.begin(), busy.end(), 0.0);
  report.busy_seconds = std::move(busy);
}

}  // namespace weft::train
