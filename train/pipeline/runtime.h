// Executes a pipeline schedule over the stages of this rank: what to do comes from the schedule,
// how to do it from Stage, the bytes go over a Communicator. Knows no model and no schedule.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "coll/api/communicator.h"
#include "train/model/stage.h"
#include "train/pipeline/schedule.h"
#include "train/pipeline/stage_message.h"

namespace weft::train {

// One F, B or W that was done; W of one pass with its B has no length of its own. Monotonic clock.
struct PipelineRecord {
  PipelineAction action;
  std::int64_t begin_ns, end_ns;
};

// Of the last run() on this rank.
struct PipelineRun {
  std::vector<PipelineRecord> records;
  std::int64_t begin_ns = 0, end_ns = 0;
  std::int64_t compute_ns = 0;   // in F, B and W
  std::uint64_t bytes_sent = 0;  // activations and gradients
  std::size_t messages_sent = 0;
  std::size_t peak_activation_bytes = 0;  // as the stages report it
};

template <class T>
class PipelineRuntime {
 public:
  // comm: the ranks of this pipeline in its order. stages: of this rank, chunk after chunk: stage
  // rank, rank + ranks, ...; they must outlive this. A collective call: throws Error on every rank
  // where ranks disagree about the schedule, or neighbours about the size of what they exchange.
  PipelineRuntime(PipelineSchedule schedule, Communicator comm, std::vector<Stage<T>*> stages);
  ~PipelineRuntime();
  PipelineRuntime(const PipelineRuntime&) = delete;
  PipelineRuntime& operator=(const PipelineRuntime&) = delete;

  // F, B and W of all micro-batches, each once. Sends are held until they have gone; receives are
  // asked for ahead of time, so that they arrive during what comes before. Throws Error when the
  // communicator fails (its deadline holds in every wait).
  const PipelineRun& run();
  // Before F, to set the samples of a micro-batch, or after B, to start what overlaps with the
  // rest: called around every F, B and W. May be empty.
  std::function<void(const PipelineAction&, bool before)> on_action;

  const PipelineRun& last() const { return run_; }
  const PipelineSchedule& schedule() const { return schedule_; }

 private:
  using Key = std::pair<int, int>;  // stage, micro-batch
  struct Receive {
    PipelineAction action;
    Parcel<T> data;
    Request handle;
  };
  struct Send {
    Parcel<T> data;
    Request handle;
  };
  void agree() const;
  Stage<T>& stage(int s) { return *stages_[static_cast<std::size_t>(s / schedule_.shape.ranks)]; }
  std::size_t message_count(const PipelineAction& a);
  void post_receives(std::size_t from);
  void receive(const PipelineAction& a);
  void send(const PipelineAction& a);
  void compute(const PipelineAction& a, bool with_weights);
  void poll();

  PipelineSchedule schedule_;
  Communicator comm_;
  std::vector<Stage<T>*> stages_;
  PipelineRun run_;
  std::size_t next_receive_ = 0;  // the first action that was not looked at for receives
  std::deque<Receive> posted_;
  std::deque<Send> sending_;
  // What waits for its F or B, and what waits to be sent.
  std::map<Key, Tensor<T>> activations_in_, activations_out_, gradients_in_, gradients_out_;
};

// The share of time in which the ranks of this pipeline computed nothing in the last run; the same
// on every rank. Time is from the first rank's begin to the last one's end; where ranks are on
// machines whose clocks have nothing in common, that of the rank which took longest. A collective
// call.
double measured_bubble(const PipelineRun& run, Communicator comm);

}  // namespace weft::train
