// The runtime of one process: its job, options and machine, and the objects that run its calls.
// Core is independent of what a task does; coll/api/communicator.h is its public side.
//
// One mutex, `mutex`, guards all of them; annotations call it core_held (lock.h). A thread that
// holds it may lock the mutexes of transports and of the control plane, never the other way round.
// A GPU lane's mutexes come before it (coll/gpu/lane.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "coll/api/communicator.h"
#include "coll/runtime/failures.h"
#include "coll/runtime/groups.h"
#include "coll/runtime/links.h"
#include "coll/runtime/lock.h"
#include "coll/runtime/task.h"
#include "coll/runtime/tasks.h"
#include "coll/runtime/telemetry.h"
#include "coll/runtime/waiting.h"
#include "coll/select/cost.h"
#include "coll/select/slow_ports.h"
#include "coll/select/tuning.h"
#include "topo/base/yield.h"
#include "topo/topology.h"
#include "transport/job/bootstrap.h"

namespace weft {

// A thread makes this many empty polls before its first relax(): a message that is about to arrive
// should not wait for a pause to end.
inline constexpr int kEager = 32;

struct Core : std::enable_shared_from_this<Core> {
  // Builds the runtime on the job. Throws Error, and then moves the job back into `job`.
  // around_down_ports: if the port of an RDMA rail is down, `auto` takes tcp instead of failing.
  Core(std::unique_ptr<Job>&& job, const Place& place, const WorldOptions& options, int shrunk = 0,
       bool around_down_ports = false);
  ~Core();
  // Makes a Core that end() deletes.
  template <class... Of>
  static std::shared_ptr<Core> make(Of&&... of) {
    return {new Core(std::forward<Of>(of)...), &Core::end};
  }
  static void end(Core* core) noexcept;  // deletes the core; in a forked child it keeps the core
  // Whether this process is a forked child of the one that made the core: the mutex may be locked
  // forever, the threads are missing, and mappings and connections belong to the parent.
  bool forked() const noexcept { return generation != fork_generation(); }
  // Ends the World; every later call fails.
  void close() noexcept WEFT_EXCLUDES(core_held);

  // ---- set-up; no other thread may use the core during the first five functions
  void set_up(const Place& place) WEFT_NO_THREAD_SAFETY_ANALYSIS;
  // Creates the transports and `telemetry`. memory_of: see shm::memory_groups().
  void set_up_links(const std::vector<Rank>& memory_of) WEFT_NO_THREAD_SAFETY_ANALYSIS;
  // Exchanges with all ranks the cores that each process may use, and the ranks of its machine
  // whose memory it cannot map. Sets oversubscription. Returns shm::memory_groups(). With transport
  // shm, throws Error if a rank's memory cannot be mapped.
  std::vector<Rank> meet_machine(const std::vector<std::string>& offers);
  // Throws Error on every rank if ranks differ in an option that must be the same (modes.cc).
  // `refused`: this rank's shm::refusals(). Returns the refusals of all ranks.
  std::vector<std::string> agree_on_modes(const std::string& refused);
  void count_cores();  // sets oversubscription
  // Reads the profile on rank 0, and sends it to all ranks.
  void share_profile();
  // Ends the set-up: weft's own threads may use the core from now on. Throws Error.
  void finish_setup() WEFT_EXCLUDES(core_held);
  // The control plane's thread calls this with every heartbeat. If no call polls, the transports
  // pass the pending bytes of completed sends to the kernel (Transport::before_pause()).
  void away() noexcept WEFT_EXCLUDES(core_held);

  // Examines a suspicion, and runs callbacks of tasks that are over. Unlocks the mutex meanwhile.
  void run_callbacks(CoreLock& lock) WEFT_REQUIRES(core_held) {
    if (failures.any_suspicion()) [[unlikely]]
      failures.judge(lock);
    if (tasks.any_ended()) [[unlikely]]
      waiting.call_ended(lock);
  }

  FairMutex mutex;
  const int generation = fork_generation();
  std::unique_ptr<Job> job;            // null once closed
  std::unique_ptr<Job> answering_job;  // `job`, but its gathers answer peers on the rails
  WorldOptions options;
  const bool around_down_ports;
  const int shrunk;  // how many calls of shrink() led to this World
  std::unique_ptr<Topology> topology;
  double oversubscription = 1;  // ranks of this kernel / cores that these ranks may use
  bool oversubscribed = false;  // there are more ranks than cores

  // The order matters: later members refer to earlier ones.
  Links links{options};
  std::unique_ptr<Telemetry> telemetry;
  GroupTable groups{*this};
  Failures failures{*this};
  SchedulePool schedules WEFT_GUARDED_BY(core_held);
  Tasks tasks{links, failures, telemetry};
  Waiting waiting{*this};

  // ---- inputs of algorithm selection
  Tuning tuning;
  Machine machine = unmeasured_machine();  // set by calibrate(); the same on every rank
  CostModel costs = costs_of(machine);     // derived from `machine`
  Profile profile;                         // the same on every rank
  // Times passed to learn() in this World, to be saved.
  Profile learnt_times WEFT_GUARDED_BY(core_held);
  std::string profile_file;  // rank 0: where learnt_times are saved; empty: nowhere
  // All port sets passed to set_slow_ports(), after one with no slow ports. `port_set`: the index
  // of the current one.
  std::vector<std::vector<PortRate>> port_sets WEFT_GUARDED_BY(core_held) =
      std::vector<std::vector<PortRate>>(1);
  std::uint32_t port_set WEFT_GUARDED_BY(core_held) = 0;
  // Incremented when `costs`, `profile` or `port_set` change; GroupState::prepared depends on them.
  std::uint64_t selection = 1;

  std::atomic<int> asking{0};  // threads in calls of the World or judge(); close() waits for them
  std::atomic<bool> ending{false};
  bool usable WEFT_GUARDED_BY(core_held) = false;  // finish_setup() was called
};

}  // namespace weft
