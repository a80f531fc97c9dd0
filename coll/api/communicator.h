// The library's face: World (a job that has assembled) and Communicator (collectives over a
// group of its ranks).
//
//   auto world = weft::World::from_environment();          // weft launch, mpirun, srun, torchrun
//   weft::Communicator comm = world->world();
//   comm.all_reduce(in, out, count, weft::DType::kFloat32, weft::RedOp::kSum).check();
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "coll/types.h"
#include "topo/base/status.h"
#include "topo/counters.h"
#include "topo/topology.h"
#include "transport/memory/memory.h"

namespace weft {

struct Core;        // the transports and operations of a process
struct GroupState;  // one communicator
struct Task;        // one collective under way
struct Call;        // its arguments
class Job;          // transport/job/bootstrap.h

struct WorldOptions {
  // Between ranks of a host / of different hosts. "auto": shm / verbs where every rail of every
  // rank is a verbs device that is up, ucx where they are RDMA devices all the same, else tcp.
  // "shm", "tcp", "ucx" and "verbs" use that one for every pair; shm then needs all ranks on one
  // machine.
  std::string transport = "auto";
  // The algorithm of every call of a collective that has one of this name, where it works for the
  // ranks of the communicator; "auto" chooses. Communicator::set_algorithm() overrides it. The same on
  // every rank. Making a World with a name that no collective has throws Error.
  std::string algorithm = "auto";
  std::chrono::milliseconds timeout{30000};  // deadline of every wait of every collective
  // A thread that moves asynchronous operations while nobody waits for them. It needs a core.
  bool progress_thread = false;  // or WEFT_PROGRESS_THREAD=1 with from_environment()
  // Every message is checked end to end (crc32c), and sent again where it arrived changed; all
  // ranks alike. What it costs: docs/benchmarks/integrity.md. WEFT_INTEGRITY=1.
  bool integrity = false;
  // Where hosts have two rails or more: a rail that fails is taken out, what was under way goes
  // over the others, and it is taken back when it returns (docs/decisions/0018). Where this is
  // false, a failure of a rail fails the job. The same on every rank. WEFT_FAILOVER=0.
  bool failover = true;
  // With failover: large messages go over all rails that are as near as the rank's own one, so that
  // they use what others leave idle. Where this is false, they keep to the rank's own rail and its
  // share of those that no rank of the host has. The same on every rank. WEFT_SPREAD=0.
  bool spread = true;
  // Look at the counters of the rails' ports around operations: a rank's own error, and a warning
  // (WEFT_LOG=warn) about an operation that took longer than `slow`, say which of those that count
  // trouble have moved, and by how much (docs/debugging.md). WEFT_COUNTERS=1, WEFT_SLOW_MS.
  bool counters = false;
  std::chrono::milliseconds slow{1000};
  // Schedules in which a step leaves its rail (coll/schedule/rail_contract.h). "auto": none is
  // picked where another one can do it, and one that was asked for by name is refused. "never":
  // every one is refused. "allow": as any other. The same on every rank. WEFT_CROSS_RAIL.
  std::string cross_rail = "auto";
  double rail_gbps = 0;    // declared rate of a rail, the same on every rank; 0: measured
  // Results of reductions are the same bits for every algorithm, message size and layout of hosts
  // (docs/decisions/0011). The same on every rank. WEFT_DETERMINISTIC=1 sets it.
  bool deterministic = false;
};

// Blocks of different sizes, one per rank, in one buffer: the elements of each, and where it begins
// (none given: one after the other).
struct Blocks {
  Blocks(std::span<const std::size_t> c, std::span<const std::size_t> o = {})  // NOLINT: implicit
      : counts(c), offsets(o) {}
  Blocks(const std::vector<std::size_t>& c) : counts(c) {}  // NOLINT: implicit
  std::span<const std::size_t> counts, offsets;
};

// One message of an exchange (Communicator::exchange).
struct Message {
  static Message to(Rank peer, const void* data, std::size_t count, DType type) {
    return {true, peer, const_cast<void*>(data), count, type};
  }
  static Message from(Rank peer, void* data, std::size_t count, DType type) {
    return {false, peer, data, count, type};
  }
  bool sends;
  Rank peer;
  void* data;
  std::size_t count;
  DType type;
};

// An asynchronous operation. Movable, used by one thread at a time. The buffers must stay valid
// until it is over. Destroying the handle of an unfinished operation waits for it.
//
// An operation moves while some thread of this process is in test(), wait(), wait_for() or a
// blocking call, of whichever communicator, or all the time where there is a progress thread
// (WorldOptions::progress_thread). The communicator's deadline holds in all of them.
class Request {
 public:
  Request() = default;  // empty
  Request(Request&&) noexcept;
  Request& operator=(Request&&) noexcept;  // waits for the unfinished operation that was held here
  ~Request();
  // Makes progress once; true when the operation is over (then wait() returns at once).
  bool test();
  // Waits until the operation is over, or for this time; true when it is over. That the time is
  // up is no failure: the operation goes on.
  bool wait_for(std::chrono::nanoseconds time);
  // Waits until the operation is over and returns how it ended; the same again when asked again.
  // An empty handle (moved from, detached) returns kInvalidArgument.
  Status wait();
  // Calls `call` once with how the operation ended: at once when it is over, else on the thread
  // that finds it over, without any lock: `call` may use weft, but must neither throw nor destroy
  // the World. Several are called in the order they were given.
  void on_done(std::function<void(const Status&)> call);
  // Leaves the operation to itself; the handle is empty.
  void detach();

 private:
  friend class Communicator;
  Request(std::shared_ptr<GroupState> group, Task* op);
  explicit Request(Status status);
  bool unfinished();  // as far as is known
  std::shared_ptr<GroupState> group_;
  Task* op_ = nullptr;  // while it may be unfinished
  Status status_;
  bool empty_ = true;
};

// Several messages under way. Movable; like a Request for all of them.
class Batch {
 public:
  Batch() = default;
  bool test();
  Status wait();  // the first failure, when all are over

 private:
  friend class Communicator;
  std::vector<Request> handles_;
  Status status_;
};

// Collectives over a group of ranks. Every rank of the group calls the same collectives in the
// same order. count is in elements. `in == out` means in place (for all_gather: in == out +
// rank * count; for reduce_scatter: out == in + rank * count; with blocks of different sizes: the
// offset of the own block); other overlaps are refused.
// Copies of a Communicator are the same communicator. Safe to use from several threads; calls of
// one communicator are ordered by who comes first.
//
// The first failure sticks: every later call returns it at once.
//
// Buffers may be device memory: all of a rank's, on one GPU; the input must be ready then, and the
// result is when the call returns. on() puts calls in the order of a stream instead.
class Communicator {
 public:
  Communicator() = default;  // empty: calls return kInvalidArgument, or throw
  explicit operator bool() const { return state_ != nullptr; }
  Rank rank() const;
  int size() const;
  Rank world_rank(Rank r) const;  // of rank r of this communicator

  // New communicators. Every rank of this one calls the same of these three, like a collective:
  // they run over this communicator and are done when the new ones can be used. All share
  // connections, scratch memory and progress; one costs at most 64 KiB (docs/api.md). A new
  // communicator ends with its last copy, whenever that is on each rank. Throw Error, on every
  // rank where one passed something wrong.
  //
  // Ranks of one color (>= 0) come together, ordered by key and then by rank here. kNoColor: an
  // empty Communicator is returned.
  static constexpr int kNoColor = -1;
  Communicator split(int color, int key = 0);
  // The same ranks in the same order; its operations match none of this one's.
  Communicator duplicate();
  // These ranks of this communicator, in this order; every one of them passes the same list with
  // itself in it. Ranks in no list pass an empty one and get an empty Communicator.
  Communicator subset(std::span<const Rank> ranks);

  // out[i] = in_0[i] op in_1[i] op ... on every rank. in, out: count elements.
  Status all_reduce(const void* in, void* out, std::size_t count, DType type, Reduction op);
  // out[r * count + i] = in_r[i]. in: count elements; out: size() * count.
  Status all_gather(const void* in, void* out, std::size_t count, DType type);
  // out[i] = reduction of in_r[rank * count + i]. in: size() * count; out: count elements.
  Status reduce_scatter(const void* in, void* out, std::size_t count, DType type, Reduction op);
  // out[i] = in of the root. `in` is read on the root only. count elements.
  Status broadcast(const void* in, void* out, std::size_t count, DType type, Rank root);
  Status barrier();
  // At the root: out[i] = in_0[i] op in_1[i] op ... . `out` is written on the root only, and in ==
  // out means something there only.
  Status reduce(const void* in, void* out, std::size_t count, DType type, Reduction op, Rank root);
  // At the root: out[r * count + i] = in_r[i]; in place: in == out + root * count.
  Status gather(const void* in, void* out, std::size_t count, DType type, Rank root);
  // out[i] = in of the root [rank * count + i]; in place at the root: out == in + root * count.
  Status scatter(const void* in, void* out, std::size_t count, DType type, Rank root);
  // out[r * count + i] = in_r[rank * count + i]. Both: size() * count elements.
  Status all_to_all(const void* in, void* out, std::size_t count, DType type);

  // The same with blocks of different sizes, some or all of them empty. Every rank passes the sizes
  // of all; in an all_to_all its own row and column: sent.counts[r] here is received.counts[rank()]
  // at rank r. The sizes need not outlive the call, not even of an _async.
  Status all_gather_v(const void* in, void* out, Blocks blocks, DType type);
  Status reduce_scatter_v(const void* in, void* out, Blocks blocks, DType type, Reduction op);
  Status gather_v(const void* in, void* out, Blocks blocks, DType type, Rank root);
  Status scatter_v(const void* in, void* out, Blocks blocks, DType type, Rank root);
  Status all_to_all_v(const void* in, Blocks sent, void* out, Blocks received, DType type);

  // Any number of messages at once, which progress together: a rank may send and receive in any
  // order, to and from any ranks, itself included (there the i-th send meets the i-th receive of
  // the same exchange). They match single sends and receives of the other side as well.
  Status exchange(std::span<const Message> messages);

  // Blocking point to point; the i-th send to a peer meets its i-th recv from this rank.
  Status send(const void* data, std::size_t count, DType type, Rank to);
  Status recv(void* data, std::size_t count, DType type, Rank from);

  Request all_reduce_async(const void* in, void* out, std::size_t count, DType type, Reduction op);
  Request all_gather_async(const void* in, void* out, std::size_t count, DType type);
  Request reduce_scatter_async(const void* in, void* out, std::size_t count, DType type,
                               Reduction op);
  Request broadcast_async(const void* in, void* out, std::size_t count, DType type, Rank root);
  Request barrier_async();
  Request reduce_async(const void* in, void* out, std::size_t count, DType type, Reduction op,
                       Rank root);
  Request gather_async(const void* in, void* out, std::size_t count, DType type, Rank root);
  Request scatter_async(const void* in, void* out, std::size_t count, DType type, Rank root);
  Request all_to_all_async(const void* in, void* out, std::size_t count, DType type);
  Request all_gather_v_async(const void* in, void* out, Blocks blocks, DType type);
  Request reduce_scatter_v_async(const void* in, void* out, Blocks blocks, DType type,
                                 Reduction op);
  Request gather_v_async(const void* in, void* out, Blocks blocks, DType type, Rank root);
  Request scatter_v_async(const void* in, void* out, Blocks blocks, DType type, Rank root);
  Request all_to_all_v_async(const void* in, Blocks sent, void* out, Blocks received, DType type);
  Batch exchange_async(std::span<const Message> messages);
  Request send_async(const void* data, std::size_t count, DType type, Rank to);
  Request recv_async(void* data, std::size_t count, DType type, Rank from);

  // The same communicator in the order of a CUDA stream (a cudaStream_t; nullptr is the default
  // stream): its calls start after what is on the stream, later work on the stream waits for
  // them, and calls return once they are enqueued. Buffers may be device or host memory. What such
  // a call returns is about its arguments; a failure sticks and is returned by later calls, and a
  // handle (_async) tells when an operation is over. May be captured in a graph; docs/gpu.md says
  // what may not. Throws Error where there is no GPU.
  Communicator on(void* stream) const;

  // "auto" or the name of an algorithm; applies to the calls that follow. Throws Error listing
  // the algorithms there are when `collective` has none of that name.
  void set_algorithm(Collective collective, std::string_view name);
  // Those that set_algorithm() takes here, besides "auto": they work for these ranks and hosts, and
  // keep to their rails where they have to (WorldOptions::cross_rail). Of a collective with a root:
  // for root 0.
  std::vector<std::string> algorithms(Collective collective) const;
  // For the calls that follow, on every rank alike (WorldOptions::deterministic is where it
  // starts).
  void set_deterministic(bool deterministic);
  // What the last collective ran: "direct", "ring", ...
  std::string last_algorithm() const;

 private:
  friend class World;
  friend class DeviceLane;
  friend struct Internals;  // coll/runtime/internals.h
  void learn(Collective collective, std::size_t total_bytes, std::string_view algorithm, double us);
  friend struct CommunicatorInside;  // of tests
  Status run(Collective c, Call&& call, Rank root);
  Request start(Collective c, Call&& call, Rank root);
  Batch start_exchange(std::span<const Message> messages, bool blocking);
  Request message(bool send, void* data, std::size_t count, DType type, Rank peer, bool blocking);
  explicit Communicator(std::shared_ptr<GroupState> state) : state_(std::move(state)) {}
  GroupState& state() const;  // throws Error when empty
  std::shared_ptr<GroupState> state_;
  void* stream_ = nullptr;
  bool ordered_ = false;  // by stream_
};

struct Metrics;  // coll/api/metrics.h

class World {
 public:
  // Assembles the job that the environment describes. Throws Error.
  static std::unique_ptr<World> from_environment(const WorldOptions& options = {});
  // The same over an assembled job and a given place (tests, emulated hosts).
  World(std::unique_ptr<Job> job, Place place, const WorldOptions& options);
  ~World();

  Rank rank() const;
  int size() const;
  const Topology& topology() const;
  Metrics metrics() const;  // counters since the World was made
  // What the ports of this rank's rails have counted so far, by rail (topo/counters.h): read it
  // before and after something and tell the difference. Connections of TCP are this process's own.
  std::vector<CounterSnapshot> rail_counters() const;

  // Whether rails stand in for each other: asked for (WorldOptions::failover) and possible here.
  // The same on all ranks.
  bool failover() const;

  // Ends every operation on every rank, at once, with kAborted, this rank and the reason (its
  // first 200 characters). From any thread, also in a signal handler, while the World lives. It
  // sticks like any failure; shrink() goes on, with all ranks that call it.
  void abort(const char* reason) noexcept;
  // After a failure: the World of the ranks that go on, counted anew in the same order. Every one
  // of them calls this. It waits for the others, at most for the timeout; without those that
  // died, were taken for dead, left, or did not call in time. This World ends: what is left of its
  // Communicators and Handles returns the failure. Throws Error when nothing has failed, and on a
  // rank that the others went on without.
  std::unique_ptr<World> shrink();
  // In a World made by shrink(): the ranks that its ranks had in the one before.
  const std::vector<Rank>& former_ranks() const { return former_; }

  Communicator world();  // all ranks
  Communicator host();   // the ranks of this host
  Communicator rail();   // the ranks with the same local index, one per host

 private:
  friend struct Internals;  // coll/runtime/internals.h
  explicit World(std::shared_ptr<Core> core) : core_(std::move(core)) {}
  Job& job();
  Status gather_status(const Error& thrown);
  class Asking;  // throws Error after shrink()
  std::shared_ptr<Core> core_;
  std::vector<Rank> former_;
};

}  // namespace weft
