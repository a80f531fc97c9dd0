// StepMeter measures the times and bytes of one step of a rank, for its report. Does not compute
// the step.
#pragma once

#include <functional>
#include <vector>

#include "train/mesh/mesh.h"

namespace weft::train {

// The results of one step. Seconds and bytes of this rank.
struct StepReport {
  int step = 0;
  double loss = 0, norm = 0, rate = 0, seconds = 0;
  bool skipped = false;  // a gradient was inf or NaN; the weights are unchanged
  // Number of consecutive skipped steps, including this step, that a smaller loss scale cannot
  // prevent: the unscaled loss is inf or NaN, too, or loss scaling is off. The weights may be lost.
  int lost = 0;
  double loss_scale = 1;                             // the loss scale of this step
  double tensor_seconds = 0, pipeline_seconds = 0;   // waits for tensor ranks, for stages
  double gradient_seconds = 0, exposed_seconds = 0;  // gradients in flight; waits for gradients
  // The rank with the longest time between its waits, and that time / the mean over all ranks.
  Rank straggler = 0;
  double straggler_ratio = 1;
  std::vector<double> busy_seconds;  // time of each rank without its waits
  double bubble = 0;                 // share of time in which the ranks of this pipeline were idle
  std::uint64_t offloaded = 0;       // bytes written by offloads and read back
  AxisBytes sent;                    // bytes sent, except for loss and norm; needs count_bytes
  double communication_share() const {
    return (tensor_seconds + pipeline_seconds + exposed_seconds) / seconds;
  }
};

// Totals since the parts of the rank were constructed.
struct StepCounts {
  // Waits for tensor ranks and for stages; gradients in flight; waits for gradients, and for
  // gradients reduced in order.
  double tensor = 0, pipeline = 0, gradients = 0, exposed = 0, in_order = 0;
  std::uint64_t offloaded = 0;
};

class StepMeter {
 public:
  // sent: returns the bytes that the rank has sent so far; null: bytes are not counted.
  StepMeter(std::function<StepCounts()> read, std::function<AxisBytes()> sent)
      : read_(std::move(read)), sent_(std::move(sent)) {}

  void begin();
  void pause();  // stops counting bytes until resume()
  void resume();
  // Returns the seconds since begin() in which the rank was not waiting.
  double busy_seconds() const;
  // Fills the report's seconds and bytes.
  void end(StepReport& report);

 private:
  std::function<StepCounts()> read_;
  std::function<AxisBytes()> sent_;
  double start_ = 0;
  StepCounts begin_;
  // Bytes before the last pause(); bytes at the last begin() or resume().
  AxisBytes counted_, since_;
};

// Fills the report's straggler from the seconds of all ranks.
void compare_ranks(std::vector<double> busy_seconds, StepReport& report);

}  // namespace weft::train
