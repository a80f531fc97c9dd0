// The runtime of one process: what its job, options and machine are, and the objects that run its
// calls. Core does not know what a task is for; coll/api/communicator.h is its public side.
//
// One mutex, `mutex`, guards all of them; annotations call it core_held (lock.h). Who holds it may
// take the mutexes of transports and of the control plane; nobody takes it while holding one of
// these. A GPU lane's mutexes come before it (coll/gpu/lane.h).
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
// should not wait for the end of a pause.
inline constexpr int kEager = 32;

struct Core : std::enable_shared_from_this<Core> {
  // Assembles the runtime over the job. Throws Error, and then moves the job back into `job`.
  // around_down_ports: where the port of an RDMA rail is down, `auto` takes tcp instead of failing.
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
  // for ever, the threads are missing, and mappings and connections belong to the parent.
  bool forked() const noexcept { return generation != fork_generation(); }
  // Ends the World; every later call fails.
  void close() noexcept WEFT_EXCLUDES(core_held);

  // ---- set-up; of the first five: no other thread knows the core yet
  void set_up(const Place& place) WEFT_NO_THREAD_SAFETY_ANALYSIS;
  // Makes the transports and `telemetry`. memory_of: see shm::memory_groups().
  void set_up_links(const std::vector<Rank>& memory_of) WEFT_NO_THREAD_SAFETY_ANALYSIS;
  // Tells the other ranks which cores this process may use, and whose memory of its machine it
  // cannot map; sets oversubscription. Returns shm::memory_groups(). Throws Error for transport shm
  // where the memory of some rank cannot be mapped.
  std::vector<Rank> meet_machine(const std::vector<std::string>& offers);
  // Throws Error on every rank where ranks have different values of an option that must be the same
  // (modes.cc). Takes what this rank refuses (shm::refusals()), and returns it of all ranks.
  std::vector<std::string> agree_on_modes(const std::string& refused);
  void count_cores();  // sets oversubscription
  // Reads the profile on rank 0 and gives it to all ranks.
  void share_profile();
  // Ends the set-up: weft's own threads may use the core from here on. Throws Error.
  void finish_setup() WEFT_EXCLUDES(core_held);
  // The control plane's thread calls this with every heartbeat. Where no call polls meanwhile, the
  // transports hand over to the kernel what completed sends still owe (Transport::before_pause()).
  void away() noexcept WEFT_EXCLUDES(core_held);

  // Judges a suspicion, and runs the callbacks of tasks that are over. Lets the mutex go meanwhile.
  void run_callbacks(CoreLock& lock) WEFT_REQUIRES(core_held) {
    if (failures.any_suspicion()) [[unlikely]]
      failures.judge(lock);
    if (tasks.any_ended()) [[unlikely]]
      waiting.call_ended(lock);
  }

  FairMutex mutex;
  const int generation = fork_generation();
  std::unique_ptr<Job> job;            // null once closed
  std::unique_ptr<Job> answering_job;  // `job` for gathers during which peers get answers
  WorldOptions options;
  const bool around_down_ports;
  const int shrunk;  // how many calls of shrink() led to this World
  std::unique_ptr<Topology> topology;
  double oversubscription = 1;  // ranks of this kernel per core that these ranks may use together
  bool oversubscribed = false;  // there are more ranks than cores

  // In this order: what comes later refers to what comes before.
  Links links{options};
  std::unique_ptr<Telemetry> telemetry;
  GroupTable groups{*this};
  Failures failures{*this};
  SchedulePool schedules WEFT_GUARDED_BY(core_held);
  Tasks tasks{links, failures, telemetry};
  Waiting waiting{*this};

  // ---- what algorithms are selected by
  Tuning tuning;
  Machine machine = unmeasured_machine();  // as calibrate() found it; the same on every rank
  CostModel costs = costs_of(machine);     // what follows from it
  Profile profile;                         // the same on every rank
  // The times that learn() was told in this World, to be saved.
  Profile learnt_times WEFT_GUARDED_BY(core_held);
  std::string profile_file;  // rank 0: the file that keeps learnt_times; empty: none
  // All that set_slow_ports() was told, the first: nothing is slow. `port_set`: the one that
  // counts.
  std::vector<std::vector<PortRate>> port_sets WEFT_GUARDED_BY(core_held) =
      std::vector<std::vector<PortRate>>(1);
  std::uint32_t port_set WEFT_GUARDED_BY(core_held) = 0;
  // Rises where `costs`, `profile` or `port_set` change, from which GroupState::prepared follows.
  std::uint64_t selection = 1;

  std::atomic<int> asking{0};  // threads in calls of the World or judge(); close() waits for them
  std::atomic<bool> ending{false};
  bool usable WEFT_GUARDED_BY(core_held) = false;  // finish_setup() was called
};

}  // namespace weft
