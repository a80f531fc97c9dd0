// What a process's weft writes down about itself while it runs, for people who look later: the
// flight recorder, counters, and where the environment asks for it a trace. core.h owns one.
//
// begin() and end() are on the path of the smallest collective: a cache line each, no clock that
// costs.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "coll/observe/counters.h"
#include "coll/observe/port_counters.h"
#include "coll/observe/recorder.h"
#include "coll/observe/trace.h"
#include "coll/types.h"
#include "topo/base/status.h"
#include "transport/control/socket.h"
#include "transport/control/witness.h"
#include "transport/rails/rails.h"

namespace weft {

struct Call;
struct Core;
struct Diagnosis;
struct GroupState;
struct Task;

class Telemetry final : public Witness {
 public:
  // Every rank of the job makes one at the same time, when its links are there. on_beat: what else
  // the control plane's thread does with every heartbeat.
  Telemetry(Core& core, std::function<void()> on_beat);
  ~Telemetry() override;

  // All below: with the core's mutex held.
  // Returns what end() takes. sequence: of the call in its group. how: further bits of
  // book::Record::state. What a lane runs for a user's operation has no record of its own: how far
  // it is, is told of that one.
  std::uint64_t begin(const GroupState& g, Collective c, const Call& call, Rank root,
                      std::uint64_t sequence, std::uint8_t how = 0) noexcept;
  std::uint64_t begin_message(const GroupState& g, bool send, std::size_t bytes, Rank peer,
                              std::uint64_t sequence) noexcept;
  void end(Task& op) noexcept;
  // Of one that is no Operation.
  void end(std::uint64_t record, bool ok) noexcept;
  void end_at_once(std::uint64_t record) noexcept {
    if (record & kPart) return;
    recorder_.end_at_once(record);
    if (trace_) trace_->end(record, true);
  }
  // Before its first transfer. total_bytes: what its algorithm was picked by.
  void starting(Task& op, std::size_t total_bytes) noexcept;
  void picked(const GroupState& g, Collective c, int size_class,
              const std::vector<Candidate>& candidates) {
    counters_.picked(c, size_class, static_cast<int>(group_size(g)), candidates);
  }
  void napping() noexcept { counters_.naps.add(); }
  void rail_event(const RailEvent& event) noexcept;
  void retried() noexcept { counters_.retries.add(); }

  // What a collective moved on a board: `bytes` from each to each, or, where it has a root, from
  // or to that.
  void moved_on_board(GroupState& g, Collective c, std::size_t bytes, Rank root) noexcept;

  // While somebody waits, now and then: `idle` is how long nothing has moved.
  void waiting(std::chrono::nanoseconds idle) noexcept;
  void moving() noexcept {
    if (recorder_.is_stalled()) end_stall();
  }

  // Thread-safe.
  Metrics metrics() const;
  const PortCounters& ports() const { return ports_; }

  // The failure with what the ports counted meanwhile, where that is asked for and says anything.
  Status with_counters(const Status& failure) const;

  // On all ranks at the same time; does nothing unless there are traces.
  void align_clocks();
  // The World ends; and after left() nothing is asked of the job any more.
  void leaving() noexcept { recorder_.leave(); }
  void left() noexcept;

  // The deadline of an operation has passed: why, by what all ranks tell. Takes a moment. Where the
  // job fails meanwhile, that is the reason, and nothing is diagnosed.
  Diagnosis inquire();
  // How much text goes with a failure.
  static constexpr std::size_t kMostText = 690;

  // For the control plane's thread.
  std::string snapshot() override;
  bool asked() override;
  void answer(const std::vector<std::string>& snapshots) override;
  void beat() override;

  // In the number of a record: of a part of that operation.
  static constexpr std::uint64_t kPart = std::uint64_t{1} << 63;

 private:
  void survey();
  void mark_ports();
  void slow(const Task& op, std::chrono::nanoseconds took) const;
  void end_stall() noexcept;
  void write_metrics() const noexcept;
  static std::size_t group_size(const GroupState& g);

  Core& core_;
  std::function<void()> on_beat_;
  Job* job_;                  // null after left()
  std::string metrics_file_;  // empty: none
  std::unique_ptr<Trace> trace_;
  Recorder recorder_;
  Counters counters_;
  PortCounters ports_;
  std::uint64_t timed_ = 0;
  bool settled_ = false;  // stalled for so long that the survey was repeated
  std::chrono::steady_clock::time_point stalled_at_{}, metrics_at_{}, marked_at_{};
  Fd answer_;  // the last one given to an outsider
};

}  // namespace weft
