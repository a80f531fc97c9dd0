// PipelineRuntime executes a pipeline schedule on the stages of this rank: the schedule lists
// actions, Stage computes, a Communicator moves the bytes. Does not depend on model and schedule.
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

// One executed F, B or W, on the monotonic clock. A W in one pass with its B has length 0. On a
// device with several ranks, an action begins when the host has launched it and the device has
// completed the previous one, and ends when the host (which does not block) observes its end.
struct PipelineRecord {
  PipelineAction action;
  std::int64_t begin_ns, end_ns;
};

// Results of the last run() on this rank.
struct PipelineRun {
  std::vector<PipelineRecord> records;
  std::int64_t begin_ns = 0, end_ns = 0;
  std::int64_t compute_ns = 0;   // time in F, B and W
  std::uint64_t bytes_sent = 0;  // bytes of activations and gradients
  std::size_t messages_sent = 0;
};

template <class T>
class PipelineRuntime {
 public:
  // Collective. comm: the ranks of this pipeline in pipeline order. stages: this rank's, chunk by
  // chunk (stage rank, rank + ranks, ...); they must outlive the runtime. Throws Error on every
  // rank if schedules differ between ranks, or message sizes between neighbors.
  PipelineRuntime(PipelineSchedule schedule, Communicator comm, std::vector<Stage<T>*> stages);
  PipelineRuntime(const PipelineRuntime&) = delete;
  PipelineRuntime& operator=(const PipelineRuntime&) = delete;

  // Executes F, B and W of all micro-batches once. Keeps sent messages until delivery, and posts
  // receives early, so that messages arrive during earlier actions. Throws Error if the
  // communicator fails; its deadline applies to every wait.
  const PipelineRun& run();
  // run() calls this before and after every F, B and W, for example to set the samples of a
  // micro-batch before F. May be empty.
  std::function<void(const PipelineAction&, bool before)> on_action;

  const PipelineRun& last() const { return run_; }
  // Total time of all runs in which this rank did not compute.
  double waited_seconds() const { return static_cast<double>(waited_ns_) * 1e-9; }
  const PipelineSchedule& schedule() const { return schedule_; }

 private:
  using Key = std::pair<int, int>;  // stage, micro-batch
  struct Receive {
    PipelineAction action;
    StageMessage<T> data;
    bool called = false;  // the receive is posted: the device no longer uses the memory
    Request handle{};
  };
  struct Send {
    StageMessage<T> data;
    Rank to;
    bool called = false;  // the send is posted: the device has computed the message
    Request handle{};
  };
  // Records of run_ from `first` on whose action the device has not completed.
  struct Computing {
    std::size_t first;
    DeviceMark end;
  };
  void agree() const;
  Stage<T>& stage(int s) { return *stages_[static_cast<std::size_t>(s / schedule_.shape.ranks)]; }
  std::size_t message_count(const PipelineAction& a);
  void post_receives(std::size_t from);
  void call_receives();
  void receive(const PipelineAction& a);
  void send(const PipelineAction& a);
  void compute(const PipelineAction& a, bool with_weights);
  bool device_owes() const {  // the host must poll the device for pending work
    return !computing_.empty() || (!sending_.empty() && !sending_.back().called) ||
           (!posted_.empty() && !posted_.back().called);
  }
  void see_ends();
  void poll();
  void finish();

  PipelineSchedule schedule_;
  Communicator comm_;
  std::vector<Stage<T>*> stages_;
  PipelineRun run_;
  std::size_t next_receive_ = 0;  // the first action whose receive is not posted yet
  std::deque<Receive> posted_;
  std::deque<Send> sending_;
  std::deque<Computing> computing_;
  std::int64_t waited_ns_ = 0;
  std::int64_t device_end_ns_ = 0;  // when the host last observed the end of an action
  // Received tensors that wait for their F or B, and computed tensors that wait to be sent.
  std::map<Key, Tensor<T>> activations_in_, activations_out_, gradients_in_, gradients_out_;
};

// Collective. Returns the share of time in which the ranks of this pipeline were idle in the last
// run, the same on every rank. The time runs from the first rank's begin to the last rank's end or,
// between machines, whose clocks are unrelated, is the time of the slowest rank.
double measured_bubble(const PipelineRun& run, Communicator comm);

}  // namespace weft::train
