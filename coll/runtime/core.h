// The runtime of one process: its transports, its tasks under way, progress, waiting and failures.
// Core does not know what a task is for; coll/api/communicator.h is its public side.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "coll/api/communicator.h"
#include "coll/runtime/task.h"
#include "coll/runtime/telemetry.h"
#include "coll/runtime/waiting.h"
#include "coll/select/cost.h"
#include "coll/select/tuning.h"
#include "topo/base/yield.h"
#include "topo/topology.h"
#include "transport/job/bootstrap.h"
#include "transport/rails/rails.h"
#include "transport/transport.h"

namespace weft {

// A thread makes so many empty polls before its first relax(): a message that is about to arrive
// should not wait for the end of a pause.
inline constexpr int kEager = 32;

// The most ranks of a communicator with a board.
inline constexpr int kMostOnBoard = 256;

// Publishes this rank's message on the group's board (board.cc) and begins a round of the board.
void publish_on_board(GroupState& g, Collective c, const Call& call, Rank root);
// Whether every member has published its message of the board's current round.
bool board_ready(const GroupState& g);
// How a collective on the board ended on this rank.
struct BoardOutcome {
  int diverging = -1;  // a member whose call differs from this rank's; out is not written then
  bool done() const { return diverging < 0; }
};
// Computes this rank's result from the members' messages, once board_ready().
BoardOutcome board_finish(GroupState& g, Collective c, const Call& call, Rank root);
// A world rank whose message is not on the board yet; kNoRank: every message is there.
Rank board_missing(const GroupState& g);

// Whether ranks exchange whole messages on the board instead of running a schedule (selector.cc).
bool on_board(GroupState& g, const Tuning& tuning, Collective c, const Algorithm* forced,
              std::size_t total_bytes, Rank root);
// Selects the algorithm of a call (selector.cc).
const Algorithm* choose(GroupState& g, Collective c, const Algorithm* forced,
                        std::size_t total_bytes, Rank root);

struct Core : std::enable_shared_from_this<Core> {
  // Assembles the runtime over the job. Throws Error, and then moves the job back into `job`.
  Core(std::unique_ptr<Job>&& job, const Place& place, const WorldOptions& options, int shrunk = 0);
  // For the constructor: no other thread knows the core yet.
  void set_up(const Place& place) WEFT_NO_THREAD_SAFETY_ANALYSIS;
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
  enum class Swept : bool { kAllFailed, kGoOn };
  Swept end_tasks() WEFT_REQUIRES(mutex);       // finishes the tasks whose transfers are all over
  bool progress_boards() WEFT_REQUIRES(mutex);  // returns true when any task on a board ended
  Task* take() WEFT_REQUIRES(mutex);            // takes a free task and resets it
  void add_operation() WEFT_REQUIRES(mutex);    // makes one more free task
  // Prefers a task set up for the plan.
  Task* take_for(const Plan& plan, std::size_t bytes) WEFT_REQUIRES(mutex);
  void give_back(Task* op) WEFT_REQUIRES(mutex);  // makes the task free
  // Marks the task as over and queues its callback.
  void finish(Task* op, Status status) WEFT_REQUIRES(mutex);
  // Launches the task once the window has room.
  void start_plan(Task* op, const Plan& plan) WEFT_REQUIRES(mutex);
  // Gives the task its transfer id and puts it into `active`.
  void enlist(Task* op) WEFT_REQUIRES(mutex);
  void launch(Task* op) WEFT_REQUIRES(mutex);  // posts the first transfers of a kPlan task
  // Launches the group's queued tasks that fit the window.
  void launch_next(GroupState& g) WEFT_REQUIRES(mutex);
  // Takes the task out of the window and launches the next ones.
  void end_plan(Task* op) WEFT_REQUIRES(mutex);
  // Publishes on the board, after the tasks queued there.
  void start_board(Task* op) WEFT_REQUIRES(mutex);
  // Starts a message with all its slices.
  void start_message(Task* op, bool send, void* data, std::size_t bytes, bool on_device = false)
      WEFT_REQUIRES(mutex);
  // First step of a message that starts in parts: fixes its place among the pair's messages.
  void enter_message(Task* op, bool send, std::size_t bytes) WEFT_REQUIRES(mutex);
  // Second step, once or repeatedly: lets the slices below `end` of the message at `data` go.
  void let_slices_go(Task* op, void* data, std::uint32_t end, bool on_device = false)
      WEFT_REQUIRES(mutex);
  // Posts the slices that may go; a send stays little ahead.
  void post_slices(Task* op) WEFT_REQUIRES(mutex);
  std::string rail_name(int link) const {
    return link == shm_link ? std::string() : ", rail " + std::to_string(link - first_rail_link);
  }
  int link_of(Rank a, Rank b) const;  // the index into `links` of a pair of world ranks
  // Makes a communicator of these world ranks, without a board.
  std::unique_ptr<GroupState> make_group(std::uint32_t id, std::vector<Rank> ranks)
      WEFT_REQUIRES(mutex);
  // Drops the board, the messages and the id.
  void forget_group(GroupState& g) WEFT_REQUIRES(mutex);
  // Drops messages that no task has received.
  void forget_messages(std::uint32_t id) WEFT_REQUIRES(mutex);
  // Returns the plan of a call; null where the rail contract refuses the algorithm, and `status`
  // then says why. by_name: the user named the algorithm.
  const Plan* plan_for(GroupState& g, Collective c, const Algorithm& a, const Call& call, Rank root,
                       bool in_place, bool by_name, Status& status) WEFT_REQUIRES(mutex);
  std::unique_ptr<Plan> make_plan(GroupState& g, Collective c, const Algorithm& a, const Call& call,
                                  Rank root, const PlanKey& key) WEFT_REQUIRES(mutex);
  // Ends every task with the job's first failure, which sticks: `why`, unless another rank reported
  // a failure before (failing.cc).
  void fail(const Status& why) WEFT_REQUIRES(mutex);
  // Fails for an error of a transport. First it waits a moment for the control plane to name the
  // rank to blame, which need not be the peer (failing.cc).
  void fail_after_verdict(const Status& suspicion) WEFT_REQUIRES(mutex);

  // Fails where the job has failed, for threads that wait for a GPU: nobody else may be at work in
  // the process. Does nothing while another thread has the mutex.
  void notice_failure() WEFT_EXCLUDES(mutex);

  // After a transfer with `peer` ended with kMismatch: fails with the arguments that both ranks
  // passed. Returns false where the peer's arguments are not known (agreement.cc).
  bool fail_disputed(const Head& mine, Rank peer, std::size_t link) WEFT_REQUIRES(mutex);
  // After a collective ended with kMismatch: searches the peer that disagrees and fails like
  // fail_disputed(). Returns false where the search finds none.
  bool fail_mismatch(const Task* op) WEFT_REQUIRES(mutex);
  // After a transfer of the kPlan task failed: fails with the transport's cause (failing.cc).
  void fail_run(const Task* op) WEFT_REQUIRES(mutex);
  // After a transfer of the message failed: fails with the transport's cause (failing.cc).
  void fail_message(const Task* op, Code code, std::size_t link) WEFT_REQUIRES(mutex);
  // After board_finish() named a diverging member: fails with the arguments of both ranks.
  void fail_on_board(const GroupState& g, const Head& mine, int member) WEFT_REQUIRES(mutex);
  // After a collective of g: fails, and returns true, when a message has arrived for an earlier
  // collective that is over here.
  bool fail_on_leftover(const GroupState& g) WEFT_REQUIRES(mutex);
  // Looks for such messages of all communicators; ok when there is none.
  Status leftover_status() WEFT_REQUIRES(mutex);
  // Searches for a message that shows that a peer runs another call than this rank does or did; ok
  // when there is none. The search takes long: it is for when nothing moves.
  Status disagreement_status() WEFT_REQUIRES(mutex);

  // Fails every task when this one has stood still for too long, when ranks disagree, or when the
  // job has failed. Returns true when the task is over.
  bool check_deadline(Task* op, std::chrono::steady_clock::time_point now) WEFT_REQUIRES(mutex);
  // Runs the callbacks of tasks that are over, and lets the mutex go meanwhile.
  void run_callbacks(CoreLock& lock) WEFT_REQUIRES(mutex) {
    if (!ended.empty()) [[unlikely]]
      call_ended(lock);
  }
  void call_ended(CoreLock& lock) WEFT_REQUIRES(mutex);  // a GPU lane leaves callbacks to `caller`

  // Waits until `end`, or until the task is over by itself, by its deadline or by a failure.
  // Returns true when the task is over. Lets the mutex go meanwhile.
  bool wait_until(Task* op, std::chrono::steady_clock::time_point end, CoreLock& lock)
      WEFT_REQUIRES(mutex);

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
  // Starts the thread that runs the GPU lanes' callbacks, which may wait for a lane's own work.
  void start_calling() WEFT_REQUIRES(mutex);
  void stop_calling() noexcept WEFT_EXCLUDES(mutex);  // ends that thread

  // Throws Error on every rank where ranks have different values of an option that must be the same
  // (modes.cc). For the set-up, without the mutex.
  void agree_on_modes();

  // Proves that each collective of a new group has an algorithm that keeps the rail contract. Where
  // a collective has none, logs the path that breaks it, or throws Error (cross_rail "never").
  void prove_rails(GroupState& g) WEFT_REQUIRES(mutex);
  // ok when the rail contract lets the algorithm run; the same on all ranks.
  Status check_rails(GroupState& g, const Algorithm& a, Rank root, bool by_name)
      WEFT_REQUIRES(mutex);
  // Where rails can stand in for each other: puts Rails' transports in place of `inner`. For the
  // set-up, without the mutex.
  void set_up_rails(std::vector<std::unique_ptr<Transport>>& inner);
  // The rails that a large message between the two ranks uses, `home` first.
  std::vector<int> stripes(Rank me, Rank peer, int home) const;
  // Polls the rails, so that peers get answers while no thread waits for a task.
  void poll_rails() noexcept WEFT_REQUIRES(mutex);
  // Waits until no rank of the job needs data that this rank has sent, then calls meet(), which
  // waits for the other ranks. Peers get answers all the time.
  void settle_rails(const Job& of, const std::function<void()>& meet) WEFT_EXCLUDES(mutex);
  // Calls meet(), which waits for the other ranks on the control plane; a thread answers peers
  // meanwhile.
  void answer_while(const std::function<void()>& meet) WEFT_EXCLUDES(mutex);

  // The error of a task whose deadline has passed, with the rank to blame.
  Status deadline_status(Task* op) WEFT_REQUIRES(mutex);
  // Explains a passed deadline by the snapshots of all ranks; ok when they explain nothing.
  Status verdict(const std::string& what) WEFT_REQUIRES(mutex);
  // The failure behind an error of the control plane; ok where the other ranks are not its cause.
  //
  Status gather_status(const Error& thrown) WEFT_EXCLUDES(mutex);
  // Ok when no rank has gone silent.
  Status silence_status(const std::string& what) const WEFT_REQUIRES(mutex);
  // A rank counts as silent when nothing has been heard of it for this long.
  std::chrono::milliseconds silence_age() const {
    return std::max<std::chrono::milliseconds>(options.timeout / 2, std::chrono::milliseconds(100));
  }
  // Ok when this host is not cut off.
  Status cut_off_status(const std::string& what) const WEFT_REQUIRES(mutex);

  const int generation = fork_generation();
  std::unique_ptr<Job> job;            // null once closed
  std::unique_ptr<Job> answering_job;  // `job` for gathers that run in answer_while()
  WorldOptions options;
  const int shrunk;  // how many calls of shrink() led to this World
  std::unique_ptr<Topology> topology;
  // Null unless rails can stand in for each other. Stays the same until close() ends.
  std::unique_ptr<Rails> rails;
  // Of `rails`, the transports face() made.
  std::vector<std::unique_ptr<Transport>> transports WEFT_GUARDED_BY(mutex);
  std::vector<Transport*> links WEFT_GUARDED_BY(mutex);  // shm where there is one, then every rail
  std::vector<Link> link_kinds;
  std::vector<std::size_t> polled WEFT_GUARDED_BY(mutex);  // the links in use, in ascending order
  void use_link(std::size_t link) WEFT_REQUIRES(mutex) {
    if (std::ranges::find(polled, link) != polled.end()) [[likely]]
      return;
    polled.insert(std::ranges::upper_bound(polled, link), link);
  }
  int shm_link = -1, first_rail_link = -1;
  // Longer messages between hosts go in slices of this size, so that a message of device memory
  // overlaps with its copies. Both ends must slice: all ranks do where any rank has a GPU.
  std::size_t message_slice = SIZE_MAX;
  std::vector<std::uint8_t> has_device;  // by world rank: the rank has a GPU
  std::vector<std::uint8_t> shm_peer;    // by world rank: shm reaches the rank
  Tuning tuning;
  std::unique_ptr<Telemetry> telemetry;
  CostModel costs;  // measured; the same on every rank
  Profile profile;  // the same on every rank
  // The times that learn() was told in this World, to be saved.
  Profile learnt_times WEFT_GUARDED_BY(mutex);
  std::string profile_file;  // rank 0: the file that keeps learnt_times; empty: none
  // Reads the profile on rank 0 and gives it to all ranks. For the set-up, without the mutex.
  void share_profile();

  // The living communicators by id (group.cc); null: an id that a communicator in the making holds.
  std::map<std::uint32_t, GroupState*> groups WEFT_GUARDED_BY(mutex);
  // Made on first use, kept to the end.
  std::vector<std::unique_ptr<GroupState>> fixed_groups WEFT_GUARDED_BY(mutex);
  // A GPU lane was the last to use these.
  std::vector<std::unique_ptr<GroupState>> orphans WEFT_GUARDED_BY(mutex);
  // Rises; its lower id_bits are the next id to try.
  std::uint64_t next_id_epoch WEFT_GUARDED_BY(mutex) = kFixedGroups;
  int id_bits = 24;  // bits of a communicator's id, without kLaneBits
  std::map<std::vector<Rank>, std::weak_ptr<GroupCache>> caches WEFT_GUARDED_BY(mutex);

  FairMutex mutex;
  std::condition_variable_any device_done;         // signals that a kDevice task is over
  int waiters WEFT_GUARDED_BY(mutex) = 0;          // threads in wait_until(), which make progress
  std::uint64_t moves WEFT_GUARDED_BY(mutex) = 0;  // rises whenever any transfer or task ends
  struct Ended {
    std::function<void(const Status&)> call;
    Status status;
    std::shared_ptr<GroupState> keep;
  };
  std::vector<Ended> ended WEFT_GUARDED_BY(mutex);  // the callbacks that run_callbacks() will run
  std::atomic<bool> served{false};                  // whether there is a progress thread
  std::condition_variable_any to_serve, to_call;
  std::thread server, caller;                   // the progress thread, the thread of callbacks
  bool calls WEFT_GUARDED_BY(mutex) = false;    // whether there is a thread of callbacks
  SpareScratch scratch WEFT_GUARDED_BY(mutex);  // the scratch memory of tasks that have ended
  std::vector<std::unique_ptr<Task>> pool WEFT_GUARDED_BY(mutex);
  std::vector<Task*> free_operations WEFT_GUARDED_BY(mutex);
  std::vector<Task*> active WEFT_GUARDED_BY(mutex);  // the kPlan and kMessage tasks under way
  // An active task waits for its Task::receipts only.
  bool receipts_owed WEFT_GUARDED_BY(mutex) = false;
  // Of one poll; a local array would be cleared each time.
  std::array<Completion, 64> completions WEFT_GUARDED_BY(mutex);
  // The active tasks by the lower bits of their id; the size is a power of two.
  std::vector<Task*> by_id WEFT_GUARDED_BY(mutex) = std::vector<Task*>(256);
  Task*& place_of(std::uint32_t id) WEFT_REQUIRES(mutex) { return by_id[id & (by_id.size() - 1)]; }
  std::uint32_t next_id WEFT_GUARDED_BY(mutex) = 1;
  std::vector<GroupState*> boards_busy WEFT_GUARDED_BY(mutex);
  std::atomic<bool> broken{false};
  Status failure WEFT_GUARDED_BY(mutex);  // the status that every call returns once `broken` is set
  double oversubscription = 1;  // ranks of this kernel per core that these ranks may use together
  bool oversubscribed = false;  // there are more ranks than cores
  std::atomic<int> asking{0};   // threads in calls of the World; close() waits for them
  std::atomic<bool> ending{false};
  bool usable WEFT_GUARDED_BY(mutex) = false;  // set_out() was called
};

// Returns the fixed communicator `id`, made on the first call; it lives as long as the core.
std::shared_ptr<GroupState> fixed_group(const std::shared_ptr<Core>& core, std::uint32_t id,
                                        std::vector<Rank> ranks);

}  // namespace weft
