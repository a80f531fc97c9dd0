// Telemetry records the calls of a process in the flight recorder, the counters and, if WEFT_TRACE
// is set, a trace. A Core owns one; telemetry never changes how a task runs.
//
// begin() and end() are on the path of the smallest collective: each writes one cache line and
// reads no expensive clock.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "coll/observe/background_file.h"
#include "coll/observe/counters.h"
#include "coll/observe/port_counters.h"
#include "coll/observe/recorder.h"
#include "coll/observe/trace.h"
#include "coll/runtime/lock.h"
#include "coll/types.h"
#include "topo/base/status.h"
#include "transport/control/socket.h"
#include "transport/control/witness.h"
#include "transport/rails/rails.h"

namespace weft {

struct Algorithm;
struct Core;
struct Diagnosis;
struct GroupState;
struct Prepared;
struct Task;

class Telemetry final : public Witness {
 public:
  // Every rank of the job makes its Telemetry at the same time, after its links. The control
  // plane's thread calls on_beat with every heartbeat.
  Telemetry(Core& core, std::function<void()> on_beat);
  ~Telemetry() override;

  // The caller of each function from begin() to moving() holds the core's mutex.

  // Opens the record of the communicator's call with this number, and returns the record's number
  // for end(); for a part of a user's call, returns that call's record.
  std::uint64_t begin(const GroupState& group, const Prepared& of, std::uint64_t number) noexcept;
  // Opens the record of the task's call, if it is not open.
  void open(Task& op) noexcept;
  // Closes the task's record and counts the task's traffic, time or failure.
  void end(Task& op) noexcept;
  // Closes the record of a call that has no Task.
  void end(std::uint64_t record, bool ok) noexcept;
  // Closes the record of a call without a Task that succeeded in negligible time.
  void end_at_once(std::uint64_t record) noexcept {
    if (record & kPart) return;
    recorder_.end_at_once(record);
    if (trace_) trace_->end(record, true);
  }
  // When a task started, and the algorithm for which its time counts.
  struct Timing {
    const Algorithm* algorithm = nullptr;  // null: counts for no algorithm
    std::uint64_t began_ns = 0;            // 0: not timed
  };
  // Called before the task's first transfer; also opens the task's record.
  void starting(Task& op) noexcept WEFT_REQUIRES(core_held);
  void picked(const GroupState& g, Collective c, int size_class,
              const std::vector<Candidate>& candidates) {
    counters_.picked(c, size_class, static_cast<int>(group_size(g)), candidates);
  }
  void napping() noexcept { counters_.naps.add(); }
  void rail_event(const RailEvent& event) noexcept;
  void retried() noexcept { counters_.retries.add(); }

  // Counts a collective on a board: `bytes` between each pair of ranks or, in a collective with a
  // root, between the root and each rank.
  void moved_on_board(GroupState& g, Collective c, std::size_t bytes, Rank root) noexcept;

  // Called periodically while a thread waits; `idle` is the time without progress. A long idle time
  // begins a stall, and the progress of all tasks is written to the flight recorder.
  void waiting(std::chrono::nanoseconds idle) noexcept WEFT_REQUIRES(core_held);
  // Ends a stall.
  void moving() noexcept {
    if (recorder_.is_stalled()) end_stall();
  }

  Metrics metrics() const;                              // thread-safe
  const PortCounters& ports() const { return ports_; }  // thread-safe

  // Returns the failure, with the port counters that have risen if WorldOptions::counters is set.
  Status with_counters(const Status& failure) const;

  // Aligns the clocks of traces; all ranks call it at the same time. Does nothing without traces.
  void align_clocks();
  // Names a communicator in the trace, if there is one.
  void name_communicator(const GroupState& group, std::string name);
  // Marks for outside readers that the World ends regularly.
  void leaving() noexcept { recorder_.leave(); }
  // Writes the metrics and the trace; the job may end afterwards.
  void left() noexcept;

  // Writes the progress of each task to the flight recorder. The caller holds the core's mutex.
  void survey() WEFT_REQUIRES(core_held);
  // Diagnoses why ranks wait, from their snapshots `told` and the unresponsive ranks `silent`.
  Diagnosis diagnose(std::vector<std::string> told, std::vector<Rank> silent) const;
  // Maximum length of a failure's text.
  static constexpr std::size_t kMostText = 690;

  // The control plane's thread calls the functions of Witness.
  std::string snapshot() override;
  bool asked() override;
  void answer(const std::vector<std::string>& snapshots) override;
  void beat() override;

  // A bit in a record's number: the task is a part, run by a GPU lane, of the user's call that the
  // record is about.
  static constexpr std::uint64_t kPart = std::uint64_t{1} << 63;

 private:
  void mark_ports() WEFT_REQUIRES(core_held);
  void slow(const Task& op, std::chrono::nanoseconds took) const;
  void end_stall() noexcept;
  void write_metrics() noexcept;
  static std::size_t group_size(const GroupState& g);

  Core& core_;
  std::function<void()> on_beat_;
  Job* job_;                     // null after left()
  BackgroundFile metrics_file_;  // beat() must not block on it
  std::unique_ptr<Trace> trace_;
  Recorder recorder_;
  Counters counters_;
  PortCounters ports_;
  std::uint64_t timed_ = 0;
  bool settled_ = false;  // the stall has lasted so long that the survey was repeated
  std::chrono::steady_clock::time_point stalled_at_{}, metrics_at_{}, marked_at_{};
  Fd answer_;  // the file of the last answer to an outsider
};

}  // namespace weft
