// The inside of a process's weft: transports, operations under way, and waiting for them.
// Not installed; communicator.h is the face of it.
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
#include "topo/topology.h"
#include "transport/job/bootstrap.h"
#include "transport/rails/rails.h"
#include "transport/transport.h"

namespace weft {

// Polls in vain before the first relax(): a message that is nearly there should not wait for the
// pause to end.
inline constexpr int kEager = 32;

// A hint to the processor that this is a polling loop.
inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Small collectives on the board of a group (board.cc).
void publish_on_board(GroupState& g, Collective c, const Call& call, Rank root);
bool board_ready(const GroupState& g);
// How a collective on the board ended on this rank.
struct BoardOutcome {
  int diverging = -1;  // a member of the group whose call is another one; nothing was done then
  bool done() const { return diverging < 0; }
};
BoardOutcome board_finish(GroupState& g, Collective c, const Call& call, Rank root);
Rank board_missing(const GroupState& g);  // a world rank whose message is not there yet

// Choosing (runtime/selector.cc). Whether ranks exchange whole messages on the board instead of
// running a schedule.
bool on_board(GroupState& g, const Tuning& tuning, Collective c, const Algorithm* forced,
              std::size_t total_bytes, Rank root);
// The algorithm of this call.
const Algorithm* choose(GroupState& g, Collective c, std::size_t total_bytes, Rank root);

struct Core : std::enable_shared_from_this<Core> {
  // Throws Error; the job is then given back.
  Core(std::unique_ptr<Job>&& job, const Place& place, const WorldOptions& options, int shrunk = 0);
  void set_up(const Place& place);
  ~Core();
  // As new Core(), but what of it is left in a forked child never ends there.
  template <class... Of>
  static std::shared_ptr<Core> make(Of&&... of) {
    return {new Core(std::forward<Of>(of)...), &Core::end};
  }
  static void end(Core* core) noexcept;
  // Whether this is a child of the process that made it: its mutex may be locked for ever, its
  // threads are not there, and what it has mapped and connected is its parent's.
  bool forked() const noexcept { return generation != fork_generation(); }
  // The end of the World, after which every call fails. Takes the mutex itself.
  void close() noexcept;

  // Set-up is over: threads of weft's own may help from here on. Throws Error.
  void set_out();
  // Of the control plane's thread, with every heartbeat: where no call polls meanwhile, sends that
  // are over need none.
  void away() noexcept;

  // All below: with `mutex` held.
  // Polls the transports and runs what became possible; true when any transfer ended.
  bool progress();
  enum class Swept : bool { kAllFailed, kGoOn };
  Swept end_tasks();       // finishes the tasks whose transfers are all over
  bool progress_boards();  // true when any operation ended
  Task* take();            // a fresh operation
  void add_operation();    // to the free ones
  Task* take_for(const Plan& plan, std::size_t bytes);  // the one it costs least to start
  void give_back(Task* op);
  void finish(Task* op, Status status);         // it is over
  void start_plan(Task* op, const Plan& plan);  // now, or as soon as the window allows
  void enlist(Task* op);
  void launch(Task* op);
  void launch_next(GroupState& g);  // of those that wait
  void end_plan(Task* op);          // it is over: others may start
  void start_board(Task* op);
  void start_message(Task* op, bool send, void* data, std::size_t bytes, bool on_device = false);
  // The same in two steps: it takes its number among those of the pair, and later goes, all at once
  // or by and by: the slices below `end`. `data` is where it begins.
  void enter_message(Task* op, bool send, std::size_t bytes);
  void let_slices_go(Task* op, void* data, std::uint32_t end, bool on_device = false);
  void post_slices(Task* op);
  std::string rail_name(int link) const {
    return link == shm_link ? std::string() : ", rail " + std::to_string(link - first_rail_link);
  }
  int link_of(Rank a, Rank b) const;  // index into links, for a pair of world ranks
  // A communicator of these world ranks, without a board.
  std::unique_ptr<GroupState> make_group(std::uint32_t id, std::vector<Rank> ranks);
  void forget_group(GroupState& g);
  void forget_messages(std::uint32_t id);  // that nobody has received
  // The plan of a call; null where the rail contract refuses it, and `status` says why. by_name:
  // the algorithm was asked for.
  const Plan* plan_for(GroupState& g, Collective c, const Algorithm& a, const Call& call, Rank root,
                       bool in_place, bool by_name, Status& status);
  std::unique_ptr<Plan> make_plan(GroupState& g, Collective c, const Algorithm& a, const Call& call,
                                  Rank root, const PlanKey& key);
  // failing.cc. Ends every operation with the failure, which sticks: the job's first one, if that
  // is another.
  void fail(const Status& why);
  // The same for an error of a transport, whose cause may be another rank than the peer.
  void fail_after_verdict(const Status& suspicion);

  // agreement.cc. After a transfer with `peer` ended with kMismatch: fails with what both sides
  // passed; false where the peer's side is not known.
  bool fail_disputed(const Head& mine, Rank peer, std::size_t link);

  // After a collective ended with kMismatch: the same, from whichever peer the head comes.
  bool fail_mismatch(const Task* op);
  // After a transfer of it failed.
  void fail_run(const Task* op);
  void fail_message(const Task* op, Code code, std::size_t link);
  // After board_finish() named a diverging member.
  void fail_on_board(const GroupState& g, const Head& mine, int member);
  // After a collective of g: fails when something came for an earlier one, which is over here.
  bool fail_on_leftover(const GroupState& g);
  // The same for all that this rank ran; ok when there is nothing.
  Status leftover_status();
  // Whether any peer sent what shows that it runs something else than this rank does or did: a
  // search, for when nothing moves. ok when not.
  Status disagreement_status();

  // Fails everything when the operation has stood still for too long, or the job has failed. True:
  // the operation is over.
  bool check_deadline(Task* op, std::chrono::steady_clock::time_point now);
  // Calls what was to be called at the end of operations, with the mutex let go.
  void run_callbacks(std::unique_lock<FairMutex>& lock) {
    if (!ended.empty()) [[unlikely]]
      call_ended(lock);
  }
  void call_ended(std::unique_lock<FairMutex>& lock);

  // Waits until the operation is over, by itself, its deadline or a failure of the job; true when
  // it is. The mutex is let go meanwhile.
  bool wait_until(Task* op, std::chrono::steady_clock::time_point end,
                  std::unique_lock<FairMutex>& lock);

  // Waits for the operation and gives it back. `lock` may hold the mutex, and does not afterwards.
  Status wait(Task* op, std::unique_lock<FairMutex>& lock);

  // These take the mutex themselves.
  Status wait(Task* op) {
    std::unique_lock lock(mutex);
    return wait(op, lock);
  }
  // The progress thread.
  void start_serving();
  void stop_serving() noexcept;
  void serve();
  // The thread of callbacks, where there are lanes: these do not call them, as a callback may wait
  // for what only its lane can do. start: with the mutex held.
  void start_calling();
  void stop_calling() noexcept;

  // modes.cc. Throws Error, on every rank, where ranks were told different things.
  void agree_on_modes();

  // rails_setup.cc. Of a new group: proves that each collective has an algorithm that keeps the
  // rail contract; where one has not, says so with the path, or throws Error (cross_rail "never").
  void prove_rails(GroupState& g);
  // Whether the rail contract lets this run; the same on all ranks.
  Status check_rails(GroupState& g, const Algorithm& a, Rank root, bool by_name);
  void set_up_rails(std::vector<std::unique_ptr<Transport>>& inner);
  std::vector<int> stripes(Rank me, Rank peer, int home) const;
  // Moves rails along, so that peers get answers, where nobody waits for an operation. Needs the
  // mutex.
  void poll_rails() noexcept;
  // Until nobody of the job needs what this rank has sent any more; then meet(), which returns when
  // all are here: until then peers get answers.
  void settle_rails(const Job& of, const std::function<void()>& meet);
  // While meet() waits for the others on the control plane, peers get answers.
  void answer_while(const std::function<void()>& meet);

  Status deadline_status(Task* op);
  // Why a deadline has passed, by what all ranks tell; ok when that explains nothing.
  Status verdict(const std::string& what);
  // What a call of the control plane failed of; ok: of something else than the other ranks.
  Status gather_status(const Error& thrown);
  Status silence_status(const std::string& what) const;  // ok when nobody has gone silent
  std::chrono::milliseconds silence_age() const {        // from when on a rank counts as silent
    return std::max<std::chrono::milliseconds>(options.timeout / 2, std::chrono::milliseconds(100));
  }
  Status cut_off_status(const std::string& what) const;  // ok when this host is not cut off

  const int generation = fork_generation();
  std::unique_ptr<Job> job;            // null once closed
  std::unique_ptr<Job> answering_job;  // for callers, where there are rails: see answer_while()
  WorldOptions options;
  const int shrunk;  // how often shrink() made another World, until this one
  std::unique_ptr<Topology> topology;
  std::unique_ptr<Rails> rails;  // where rails can stand in for each other; then `transports` has
                                 // their faces
  std::vector<std::unique_ptr<Transport>> transports;
  std::vector<Transport*> links;  // links[0] is shm where there is one, then a rail each
  std::vector<Link> link_kinds;
  std::vector<std::size_t> polled;  // those that are used, in ascending order
  void use_link(std::size_t link) {
    if (std::ranges::find(polled, link) != polled.end()) [[likely]]
      return;
    polled.insert(std::ranges::upper_bound(polled, link), link);
  }
  int shm_link = -1, first_rail_link = -1;
  // Between hosts longer messages travel in slices of this size, so that those of device memory
  // overlap with their copies; both ends must slice, also where only one has a GPU: all ranks do,
  // or none.
  std::size_t message_slice = SIZE_MAX;
  std::vector<std::uint8_t> has_device;  // by world rank: a GPU
  std::vector<std::uint8_t> shm_peer;    // by world rank: reached through shm
  Tuning tuning;
  std::unique_ptr<Telemetry> telemetry;
  CostModel costs;           // measured; the same on every rank
  Profile profile;           // the same on every rank
  Profile news;              // what learn() has been told in this World, to be saved
  std::string profile_file;  // rank 0: where; empty: nowhere
  // Rank 0 reads the profile, all ranks get it.
  void share_profile();

  // Communicators (group.cc). Every one that lives has an id of its own on this rank; null: taken
  // by one that is being made. Fixed ones are made when asked for and kept.
  std::map<std::uint32_t, GroupState*> groups;
  std::vector<std::unique_ptr<GroupState>> fixed_groups;
  std::vector<std::unique_ptr<GroupState>> orphans;  // a lane was the last to use them
  std::uint64_t next_id_epoch = kFixedGroups;  // rises; its lower id_bits are the next id to try
  int id_bits = 24;                            // without the lane
  std::map<std::vector<Rank>, std::weak_ptr<GroupCache>> caches;

  FairMutex mutex;
  std::condition_variable_any device_done;  // an operation of kind kDevice is over
  int waiters = 0;                          // threads in wait_until(): they make progress
  std::uint64_t moves = 0;                  // rises when anything moves
  struct Ended {
    std::function<void(const Status&)> call;
    Status status;
    std::shared_ptr<GroupState> keep;
  };
  std::vector<Ended> ended;         // for run_callbacks()
  std::atomic<bool> served{false};  // there is a progress thread
  std::condition_variable_any to_serve, to_call;
  std::thread server, caller;
  bool calls = false;    // there is a thread of callbacks
  SpareScratch scratch;  // of those that have ended
  std::vector<std::unique_ptr<Task>> pool;
  std::vector<Task*> free_operations;
  std::vector<Task*> active;               // under way, kPlan and kMessage
  bool receipts_owed = false;              // one of them is done but for Task::receipts
  std::array<Completion, 64> completions;  // of one poll; here, as clearing them takes a while
  // By the lower bits of their id, for completions; a power of two.
  std::vector<Task*> by_id = std::vector<Task*>(256);
  Task*& place_of(std::uint32_t id) { return by_id[id & (by_id.size() - 1)]; }
  std::uint32_t next_id = 1;
  std::vector<GroupState*> boards_busy;
  std::atomic<bool> broken{false};
  Status failure;               // once broken
  double oversubscription = 1;  // ranks of this kernel per core that they may use together
  bool oversubscribed = false;  // more ranks than cores
  std::atomic<int> asking{0};   // threads in calls of the World, whose end waits for them
  std::atomic<bool> ending{false};
  bool usable = false;  // set_out()
};

// The communicator of that id, made when first asked for; it lives as long as the core.
std::shared_ptr<GroupState> fixed_group(const std::shared_ptr<Core>& core, std::uint32_t id,
                                        std::vector<Rank> ranks);

}  // namespace weft
