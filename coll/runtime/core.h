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

// A thread makes so many empty polls before its first relax(): a message that is about to arrive
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
  void close() noexcept WEFT_EXCLUDES(mutex);

  // Ends the set-up: weft's own threads may use the core from here on. Throws Error.
  void set_out() WEFT_EXCLUDES(mutex);
  // The control plane's thread calls this with every heartbeat. Where no call polls meanwhile, the
  // transports hand over to the kernel what completed sends still owe (Transport::leave()).
  void away() noexcept WEFT_EXCLUDES(mutex);

  // Polls the transports and moves tasks along. Returns true when any transfer or task ended.
  bool progress() WEFT_REQUIRES(mutex);
  // Takes a task in, and starts it; where its communicator is over, the task is over at once.
  void submit(Task* task) WEFT_REQUIRES(mutex);
  // Gives the task the id of its transfers.
  void enlist(Task* task) WEFT_REQUIRES(mutex);
  // Starts a collective of a companion on host memory, and returns its task, or null with `status`
  // where it is over already (coll/api/communicator.cc).
  Task* begin_part(GroupState& companion, Collective c, Call& call, Status& status)
      WEFT_REQUIRES(mutex);
  // Makes progress() move the task along once.
  void stir(Task* task) WEFT_REQUIRES(mutex) {
    if (!std::exchange(task->stirred, true)) stirred.push_back(task);
  }
  // Makes each progress() move the task along, until it is over.
  void ask(Task* task) WEFT_REQUIRES(mutex) {
    if (!std::exchange(task->asked, true)) asked.push_back(task);
  }
  void advance(Task* task) WEFT_REQUIRES(mutex);
  // Marks the task as over and queues its callback.
  void finish(Task* task, const Status& status) WEFT_REQUIRES(mutex);
  std::string rail_name(int link) const {
    return link == shm_link ? std::string() : ", rail " + std::to_string(link - first_rail_link);
  }
  int link_of(Rank a, Rank b) const;  // the index into `links` of a pair of world ranks
  // Whether messages with that world rank may be offered (message_task.h). What is fetched by a GPU
  // cannot be checked.
  bool offers_messages(Rank peer) const {
    return !options.integrity && shm_peer[static_cast<std::size_t>(peer)] &&
           has_device[static_cast<std::size_t>(job->rank())] &&
           has_device[static_cast<std::size_t>(peer)];
  }
  // Makes a communicator of these world ranks, without a board. number, whole: see GroupState.
  // Where ranks of it are gone, the communicator is over from the start.
  std::unique_ptr<GroupState> make_group(std::uint32_t id, std::uint64_t number,
                                         std::vector<Rank> ranks, const GroupState* whole = nullptr)
      WEFT_REQUIRES(mutex);
  PortNames port_names() const;
  // Makes all communicators choose by these ports, and the plans of calls from now on
  // (coll/api/slow_ports.cc). Throws Error that names `what` and the text.
  void set_slow_ports(const char* what, const std::string& text) WEFT_REQUIRES(mutex);
  // The options of a World of those ranks that are left: hosts may have other numbers there.
  WorldOptions options_for(const std::vector<Rank>& left) WEFT_EXCLUDES(mutex);
  // Gives the communicator's shape the ports and the weights of rails that follow from them.
  void shape_ports(GroupState& g) const WEFT_REQUIRES(mutex);
  // Makes a companion of these world ranks, which fails with `whole`. which: its number among the
  // companions of `whole`, below 1 << kLaneBits, not 0.
  std::unique_ptr<GroupState> make_companion(const GroupState& whole, std::uint32_t which,
                                             std::vector<Rank> ranks) WEFT_REQUIRES(mutex);
  // Drops the board, the messages and the id.
  void forget_group(GroupState& g) WEFT_REQUIRES(mutex);
  // Drops messages that no task has received.
  void forget_messages(std::uint32_t id) WEFT_REQUIRES(mutex);
  // Returns the plan of a call; null where the rail contract refuses the algorithm, and `status`
  // then says why. by_name: the user named the algorithm.
  const Plan* plan_for(GroupState& g, Collective c, const Algorithm& a, const Call& call, Rank root,
                       bool in_place, bool by_name, Status& status) WEFT_REQUIRES(mutex);
  // Looks for the algorithm, the plan and the slicing of a call. Returns false where plan_for()
  // returns null.
  bool prepare_plan(GroupState& g, Collective c, const Call& call, Prepared& p, Status& status)
      WEFT_REQUIRES(mutex);
  std::unique_ptr<Plan> make_plan(GroupState& g, Collective c, const Algorithm& a, const Call& call,
                                  Rank root, const PlanKey& key) WEFT_REQUIRES(mutex);
  // ---- failures (failing.cc)
  // Why a communicator may have failed. settle() finds out who is to blame, which can take a second
  // or two, and ends the communicator. The first suspicion of a communicator counts.
  struct Suspicion {
    enum class What : std::uint8_t { kKnown, kTransfer, kLate } what = What::kKnown;
    Scope scope = {};      // the communicator
    Task* task = nullptr;  // kTransfer: a transfer of it failed. kLate: its deadline has passed
    Status why = {};       // kKnown
  };
  // Why it has failed. `all`: ranks wait for each other in calls of several communicators, none of
  // which can go on.
  struct Blame {
    Status why = {};
    bool all = false;
  };
  void suspect(Suspicion suspicion) WEFT_REQUIRES(mutex);
  // Finds out who is to blame for the first suspicion, tells all ranks, and ends what has failed.
  // Does not sleep, or ask other ranks, with the mutex held.
  void judge(CoreLock& lock) WEFT_REQUIRES(mutex);
  // Both return ok when the communicator is over meanwhile.
  Status cause_of(const Suspicion& suspicion, CoreLock& lock) WEFT_REQUIRES(mutex);
  // Returns ok when the task has moved meanwhile.
  Blame blame(const Suspicion& suspicion, CoreLock& lock) WEFT_REQUIRES(mutex);
  // Explains by the snapshots of all ranks what did not come in time from these ranks; ok when the
  // snapshots explain nothing.
  Blame inquire(const std::string& what, const Scope& scope, const std::vector<Rank>& among,
                CoreLock& lock) WEFT_REQUIRES(mutex);
  // Tells all ranks that the communicator has failed (null: all of them), and ends it with the
  // first failure that the ranks have heard of, which sticks.
  void fail(const Status& why, const GroupState* g, CoreLock& lock) WEFT_REQUIRES(mutex);
  // The scope of a failure of the communicator. A dead rank ends all communicators that it is in.
  Scope scope_of(const GroupState& g) const;
  Scope scope_of(const Status& why, const GroupState& g) const;
  // The communicator of the scope; null: there is none any more.
  const GroupState* group_of(const Scope& scope) const WEFT_REQUIRES(mutex);
  bool over(const Scope& scope) const WEFT_REQUIRES(mutex);
  // Ends what the job's failures end that this rank has not looked at yet.
  void hear() WEFT_REQUIRES(mutex) {
    if (job->heard() != heard) [[unlikely]]
      hear_all();
  }
  void hear_all() WEFT_REQUIRES(mutex);
  // Ends the communicators of the scope, and their tasks.
  void end_groups(const Status& why, const Scope& scope) WEFT_REQUIRES(mutex);
  // Ends the task's communicator when the task has stood still since a member of it has left.
  void end_left_behind(const Task* task, std::chrono::steady_clock::time_point now)
      WEFT_REQUIRES(mutex);
  // Drops what peers still send in communicators that are over, for as long as they may not know.
  void sweep(std::chrono::steady_clock::time_point now) WEFT_REQUIRES(mutex);
  // As hear(), for threads that wait for a GPU: nobody else may be at work in the process. Does
  // nothing while another thread has the mutex.
  void notice_failure() WEFT_EXCLUDES(mutex);
  // Searches for a message that shows that a peer runs another call of the communicator than this
  // rank does or did; ok when there is none. The search takes long: it is for when nothing moves.
  Status mismatch(const Scope& scope) const WEFT_REQUIRES(mutex);
  // Runs the callbacks of tasks that are over, and judges a suspicion. Lets the mutex go meanwhile.
  void run_callbacks(CoreLock& lock) WEFT_REQUIRES(mutex) {
    if (!suspicions.empty() || !ended.empty()) [[unlikely]]
      settle(lock);
  }
  void settle(CoreLock& lock) WEFT_REQUIRES(mutex);

  // Suspects a task that has stood still for too long, or ranks that disagree, and ends what has
  // failed elsewhere. Returns true when the task is over.
  bool check_deadline(Task* op, std::chrono::steady_clock::time_point now) WEFT_REQUIRES(mutex);
  void call_ended(CoreLock& lock) WEFT_REQUIRES(mutex);  // a GPU lane leaves callbacks to `caller`

  // Waits until `end`, or until the task is over by itself, by its deadline or by a failure.
  // Returns true when the task is over. Lets the mutex go meanwhile.
  bool wait_until(Task* op, std::chrono::steady_clock::time_point end, CoreLock& lock)
      WEFT_REQUIRES(mutex);

  void end_wait(const Task* task, CoreLock& lock) WEFT_REQUIRES(mutex);
  // Waits for the task, gives it back and returns its status. Sets `give_way` where the caller is
  // to yield its core once the mutex is free. Lets the mutex go meanwhile.
  Status wait(Task* op, CoreLock& lock, bool& give_way) WEFT_REQUIRES(mutex);
  // Waits as above, and yields the core.
  Status wait(Task* op) WEFT_EXCLUDES(mutex);
  // Starts the progress thread, which runs serve(). Throws Error.
  void start_serving() WEFT_EXCLUDES(mutex);
  // Ends the progress thread.
  void stop_serving() noexcept WEFT_EXCLUDES(mutex);
  void serve() WEFT_EXCLUDES(mutex);  // the progress thread's loop
  // Until the thread is woken, or rails want to be polled.
  void sleep(CoreLock& lock) WEFT_REQUIRES(mutex);
  // A thread of the program starts a task, or moves tasks along.
  void come_by() WEFT_REQUIRES(mutex) {
    visits.store(visits.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  // After a task was started, without the mutex: the program may be elsewhere next.
  void wake_server() WEFT_EXCLUDES(mutex) {
    if (asleep) [[unlikely]]
      to_serve.notify_one();
  }
  // Starts the thread that runs the GPU lanes' callbacks, which may wait for a lane's own work.
  void start_calling() WEFT_REQUIRES(mutex);
  void stop_calling() noexcept WEFT_EXCLUDES(mutex);  // ends that thread

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
  void set_out() WEFT_EXCLUDES(core_held);
  // The control plane's thread calls this with every heartbeat. Where no call polls meanwhile, the
  // transports hand over to the kernel what completed sends still owe (Transport::leave()).
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
  bool usable WEFT_GUARDED_BY(core_held) = false;  // set_out() was called
};

}  // namespace weft
