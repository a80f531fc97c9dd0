// The public API: World (a job that has assembled), Communicator (collectives over a group of the
// World's ranks) and Request (an asynchronous task).
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

#include "coll/api/calls.h"
#include "coll/types.h"
#include "topo/base/status.h"
#include "topo/counters.h"
#include "topo/topology.h"
#include "transport/memory/memory.h"

namespace weft {

struct Core;        // the transports and tasks of a process
struct GroupState;  // one communicator
struct Task;        // one collective or message under way
struct Call;        // the arguments of a collective
class Job;          // transport/job/bootstrap.h

struct WorldOptions {
  // "auto" uses shm between ranks of a host. Between hosts it uses verbs if every rail of every
  // rank is a verbs device, ucx if the rails are other RDMA devices, else tcp. "shm", "tcp", "ucx"
  // and "verbs" use that transport for every pair of ranks; shm then needs all ranks on one
  // machine.
  std::string transport = "auto";
  // Collectives use the algorithm with this name where they have one that works for the
  // communicator's ranks; "auto" chooses. Communicator::set_algorithm() overrides the option. The
  // same on every rank. The World's constructor throws Error if no collective has such an
  // algorithm.
  std::string algorithm = "auto";
  std::chrono::milliseconds timeout{30000};  // a wait without progress for this long fails
  // A thread progresses asynchronous tasks while no call waits for them, after the program has not
  // called weft for 0.05 to 0.4 ms. The thread then needs a core.
  bool progress_thread = false;  // or WEFT_PROGRESS_THREAD=1 with from_environment()
  // Every message carries a checksum (crc32c) end to end, and the sender resends a message that
  // arrived corrupted. The same on every rank. Costs: docs/benchmarks/integrity.md.
  // WEFT_INTEGRITY=1.
  bool integrity = false;
  // With two or more rails per host: if a rail fails, the other rails carry its messages until it
  // works again (docs/decisions/0018). false: a failed rail fails the job. The same on every rank.
  // WEFT_FAILOVER=0.
  bool failover = true;
  // With failover: large messages use all rails on the NUMA node of the rank's own rail, including
  // rails that other ranks leave idle. false: they use the rank's own rail and its share of the
  // rails that no rank of the host owns. The same on every rank. WEFT_SPREAD=0.
  bool spread = true;
  // Reads the error counters of the rails' ports around tasks. A rank's own error, and a warning
  // (WEFT_LOG=warn) about a task that took longer than `slow`, name the counters that have risen,
  // and by how much (docs/debugging.md). WEFT_COUNTERS=1, WEFT_SLOW_MS.
  bool counters = false;
  std::chrono::milliseconds slow{1000};
  // Schedules in which a step leaves its rail (coll/schedule/rail_contract.h). "auto": the selector
  // uses them only if nothing else works, and set_algorithm() refuses them. "never": every call
  // refuses them. "allow": they are used like any other. The same on every rank. WEFT_CROSS_RAIL.
  std::string cross_rail = "auto";
  double rail_gbps = 0;  // declared rate of a rail in Gb/s, the same on every rank; 0: measured
  // Ports at a fraction of their rate, HOST:RAIL=FRACTION with commas between them:
  // "3:1=0.5,n7:*=0" (docs/performance.md). A host is given by its name, or by its number in the
  // order of lowest ranks. "measure": the result of measure_slow_ports() when the World is made.
  // The same on every rank. WEFT_SLOW_PORTS.
  std::string slow_ports = {};
  // Reductions give the same bits for every algorithm, message size and layout of hosts
  // (docs/decisions/0011). The same on every rank. WEFT_DETERMINISTIC=1.
  bool deterministic = false;
};

// Blocks of different sizes, one per rank, in one buffer: the elements of each block, and the
// element at which each block begins (no offsets: each block follows the one before).
struct Blocks {
  Blocks(std::span<const std::size_t> c, std::span<const std::size_t> o = {})  // NOLINT: implicit
      : counts(c), offsets(o) {}
  Blocks(const std::vector<std::size_t>& c) : counts(c) {}  // NOLINT: implicit
  std::span<const std::size_t> counts, offsets;
};

// How Communicator::compressed() encodes values. Each value becomes one byte, and each block of at
// most 64 consecutive values has a scale of four bytes.
struct Compression {
  Codec codec = Codec::kInt8;
  // Error feedback; null: none. One float per element of `in`, zero before the first call; pass the
  // same memory in each call for the same values. A call adds the residual to this rank's values,
  // and stores the new quantization error there. It must live as long as `in`.
  float* residual = nullptr;
};
// The maximum error of a compressed collective on n = `ranks` ranks, relative to max(M, 2^-100),
// where M is the largest |value| of all ranks in the element's block: e for all_gather; n e for
// reduce_scatter; n (2e + e^2) for all_reduce; for averages, 1/n of that; where e is 1/254 (int8)
// or 1/16 (fp8), plus a margin for fp32 rounding. With a residual, M is the largest |value +
// residual|. Throws Error for another collective.
double error_bound(Codec codec, Collective collective, RedOp op, int ranks);

// One send or receive of Communicator::exchange().
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

// An asynchronous task. A Request is movable; one thread at a time uses it. The buffers must stay
// valid until the task is over. The destructor waits for an unfinished task.
//
// A task makes progress while any thread of this process is in test(), wait(), wait_for() or a
// blocking call of any communicator; otherwise only a progress thread
// (WorldOptions::progress_thread) progresses it. WorldOptions::timeout applies in all cases.
class Request {
 public:
  Request() = default;  // an empty Request
  Request(Request&&) noexcept;
  Request& operator=(Request&&) noexcept;  // first waits for the unfinished task of this Request
  ~Request();
  // Makes progress once. Returns true if the task is over; wait() then does not block.
  bool test();
  // Waits until the task is over, at most for `time`. Returns true if the task is over; false is
  // not a failure: the task continues.
  bool wait_for(std::chrono::nanoseconds time);
  // Waits until the task is over and returns the task's status; every later call returns the same
  // status. An empty Request (moved from, detached) returns kInvalidArgument.
  Status wait();
  // Calls `call` once with the task's status: immediately if the task is over, else on the thread
  // that detects its end, without any lock. `call` may use weft, but must neither throw nor destroy
  // the World. Several callbacks run in the order of registration.
  void on_done(std::function<void(const Status&)> call);
  // For a receive whose message may never arrive: it has no deadline. If no other task is under
  // way, the end of the World, or of a peer, is not a failure. Has no effect on a task that is
  // over.
  void set_patient();
  // Lets the task finish without this Request, which is empty afterwards.
  void detach();

 private:
  friend class Communicator;
  Request(std::shared_ptr<GroupState> group, Task* op);
  explicit Request(Status status);
  bool unfinished();  // whether op_ must be waited for; a forked child drops op_
  std::shared_ptr<GroupState> group_;
  Task* op_ = nullptr;  // null: status_ is final
  Status status_;
  bool empty_ = true;
};

// The messages of an exchange. A Batch is movable, and used like a Request for all of them.
class Batch {
 public:
  Batch() = default;
  bool test();
  Status wait();  // waits for all messages, then returns the first failure

 private:
  friend class Communicator;
  std::vector<Request> handles_;
  Status status_;
};

// Collectives over a group of ranks. Every rank of the group calls the same collectives in the
// same order. `count` is in elements. `in == out` means in place; in place, an all_gather has
// in == out + rank * count, a reduce_scatter has out == in + rank * count, and a vector call adds
// the offset of the rank's own block instead. Calls refuse buffers that overlap in any other way.
// Copies of a Communicator are the same communicator. Several threads may use a communicator; its
// calls are ordered as the threads make them.
//
// The first failure sticks: every later call returns it immediately. Other communicators continue.
//
// Buffers may be device memory; then all buffers of a rank's call are on one GPU, the input must be
// ready at the call, and the result is ready when the call returns. on() uses a stream's order.
class Communicator {
 public:
  Communicator() = default;  // an empty one: its calls return kInvalidArgument or throw Error
  explicit operator bool() const { return state_ != nullptr; }
  Rank rank() const;
  int size() const;
  Rank world_rank(Rank r) const;  // the rank in the World of this communicator's rank r

  // split(), duplicate() and subset() make new communicators. Every rank of this communicator calls
  // the same one of the three, as with a collective. All communicators share connections, scratch
  // memory and progress; a new one costs at most 64 KiB (docs/api.md) and ends with its last copy,
  // on each rank independently. If one rank passes wrong arguments, the call throws Error on every
  // rank.

  // Joins the ranks of each color (>= 0), ordered by key and then by their rank in this
  // communicator. A rank that passes kNoColor gets an empty Communicator.
  static constexpr int kNoColor = -1;
  Communicator split(int color, int key = 0);
  // Joins the same ranks in the same order; messages of the two communicators never match.
  Communicator duplicate();
  // Joins these ranks of this communicator, in this order; each of the ranks passes the same list.
  // A rank that is in no list passes an empty list and gets an empty Communicator.
  Communicator subset(std::span<const Rank> ranks);

  // The collectives. Each has a blocking form, listed below, which returns the status, and a form
  // `name`_async, with the same parameters, which returns a Request.
  //
  // all_reduce(in, out, count, type, op)
  //   out[i] = in_0[i] op in_1[i] op ... on every rank. in, out: count elements.
  // all_gather(in, out, count, type)
  //   out[r * count + i] = in_r[i]. in: count elements; out: size() * count.
  // reduce_scatter(in, out, count, type, op)
  //   out[i] = reduction of in_r[rank * count + i]. in: size() * count; out: count elements.
  // broadcast(in, out, count, type, root)
  //   out[i] = in_root[i]. Only the root's `in` is read. in, out: count elements.
  // barrier()
  // reduce(in, out, count, type, op, root)
  //   At the root: out[i] = in_0[i] op in_1[i] op ... . The call writes only the root's `out`, and
  //   only the root's call can be in place.
  // gather(in, out, count, type, root)
  //   At the root: out[r * count + i] = in_r[i]; in place: in == out + root * count.
  // scatter(in, out, count, type, root)
  //   out[i] = in_root[rank * count + i]; in place at the root: out == in + root * count.
  // all_to_all(in, out, count, type)
  //   out[r * count + i] = in_r[rank * count + i]. in, out: size() * count elements.
  //
  // The vector collectives: blocks may differ in size and may be empty. Every rank passes the sizes
  // of all blocks; all_to_all_v takes the rank's own row and column: sent.counts[r] here equals
  // received.counts[rank()] at rank r. Both forms copy the sizes.
  //
  // all_gather_v(in, out, blocks, type), reduce_scatter_v(in, out, blocks, type, op),
  // gather_v(in, out, blocks, type, root), scatter_v(in, out, blocks, type, root),
  // all_to_all_v(in, sent, out, received, type)
#define WEFT_DECLARE(name, collective, parameters, call, root) \
  Status name parameters;                                      \
  Request name##_async parameters;
  WEFT_EACH_COLLECTIVE(WEFT_DECLARE)
#undef WEFT_DECLARE

  // Sends and receives any number of messages together, in any order, to and from any ranks. The
  // i-th send to the rank itself matches the i-th receive from itself in the same exchange.
  // Messages of an exchange also match a peer's send() and recv().
  Status exchange(std::span<const Message> messages);

  // Blocking send; the i-th send to a rank matches that rank's i-th recv from this rank.
  Status send(const void* data, std::size_t count, DType type, Rank to);
  // Blocking receive; the sender must send exactly this number of bytes.
  Status recv(void* data, std::size_t count, DType type, Rank from);

  Batch exchange_async(std::span<const Message> messages);
  Request send_async(const void* data, std::size_t count, DType type, Rank to);
  Request recv_async(void* data, std::size_t count, DType type, Rank from);

  // Returns this communicator with its calls ordered by a CUDA stream (a cudaStream_t; nullptr is
  // the default stream): a call starts after the work that is on the stream, later work on the
  // stream waits for the call, and the call returns once it is enqueued. Buffers may be device or
  // host memory. The returned status covers the arguments only; later calls return a failure, and
  // the Request of an _async call completes with its task. A graph may capture calls, with the
  // exceptions in docs/gpu.md. Throws Error without a GPU.
  Communicator on(void* stream) const;

  // Returns this communicator with compressed all_reduce, reduce_scatter and all_gather: values are
  // quantized for the transfer, each at most twice, and summed in fp32. Takes kFloat32 in host
  // memory, with kSum or kAvg; other arguments, and other collectives, fail. Messages and barriers
  // are not compressed. All ranks get the same bits, reproducibly for the same ranks and hosts. A
  // block with a NaN or an infinity, in a rank's values or in the sum, becomes NaN on all ranks.
  // The error: error_bound(). Calls of a communicator run one after the other. docs/compression.md.
  // Throws Error for an unknown codec.
  Communicator compressed(const Compression& how) const;

  // Sets the algorithm of the calls that follow: "auto" or a name that algorithms() lists. Throws
  // Error for another name; if `collective` has no such algorithm, it lists the known names.
  void set_algorithm(Collective collective, std::string_view name);
  // Lists the names that set_algorithm() accepts besides "auto": algorithms that work for these
  // ranks and that WorldOptions::cross_rail allows (for a collective with a root: for root 0).
  std::vector<std::string> algorithms(Collective collective) const;
  // Replaces WorldOptions::deterministic for the calls that follow; the same on every rank.
  void set_deterministic(bool deterministic);
  // Names the algorithm of the last collective: "direct", "ring", ...; "none" before the first.
  std::string last_algorithm() const;

 private:
  friend class World;
  friend class DeviceLane;
  friend struct Internals;  // coll/runtime/internals.h
  void learn(Collective collective, std::size_t total_bytes, std::string_view algorithm, double us);
  friend struct CommunicatorInside;  // for tests
  void adapt(Collective c, Call& call) const;
  Status run(Collective c, Call&& call, Rank root);
  Request start(Collective c, Call&& call, Rank root);
  Batch start_exchange(std::span<const Message> messages, bool blocking);
  Request message(bool send, void* data, std::size_t count, DType type, Rank peer, bool blocking);
  Communicator internal() const;  // for weft's own calls on the user's communicator
  explicit Communicator(std::shared_ptr<GroupState> state) : state_(std::move(state)) {}
  GroupState& state() const;  // throws Error if empty
  std::shared_ptr<GroupState> state_;
  void* stream_ = nullptr;
  bool ordered_ = false;  // calls follow the order of stream_
  Compression compression_{Codec::kNone};
  bool any_algorithm_ = false;  // calls ignore set_algorithm()
};

struct Metrics;  // coll/api/metrics.h

class World {
 public:
  // Assembles the job that the environment describes. Throws Error.
  static std::unique_ptr<World> from_environment(const WorldOptions& options = {});
  // unique_id() makes an id, opaque printable text, on the process that becomes rank 0; the program
  // passes the id to the other ranks, and all ranks call from_id(). An id is for one World. Both
  // read the WEFT_* variables of options, but not the launcher's, and throw Error.
  static std::string unique_id();
  static std::unique_ptr<World> from_id(std::string_view id, Rank rank, int size,
                                        const WorldOptions& options = {});
  // Makes a World over a job that has assembled, with this rank at `place` (tests, emulated hosts).
  World(std::unique_ptr<Job> job, Place place, const WorldOptions& options);
  ~World();

  Rank rank() const;
  int size() const;
  const Topology& topology() const;
  // The first failure of any communicator of the job that this rank was notified of; ok: none.
  Status failure() const;
  Metrics metrics() const;  // the counters since the World was made
  // The current port counters of this rank's rails, one snapshot per rail (topo/counters.h):
  // compare a reading before some work with one after it. TCP counters cover this process's
  // connections.
  std::vector<CounterSnapshot> rail_counters() const;

  // Whether rails replace each other: WorldOptions::failover is set, and the transports support it.
  // The same on all ranks.
  bool failover() const;

  // Replaces WorldOptions::slow_ports for the calls that follow; "": no port is slow. Every rank
  // calls it with the same text, with no task under way. If the texts differ or are invalid, throws
  // Error on every rank, and nothing changes. Throws StatusError if the job has failed.
  void set_slow_ports(const std::string& ports);
  // Measures the relative rates of ports with messages along each rail (about 0.1 s a rail, up to
  // four times that after a change), and sets the result as set_slow_ports() does. Small
  // differences change nothing. Returns the text, the same on all ranks; "": no port is slow. Every
  // rank calls it, with no task under way. Throws StatusError.
  std::string measure_slow_ports();

  // Ends every task on every rank with kAborted, this rank and the reason (its first 200
  // characters). Thread-safe while the World lives, and safe in a signal handler. The failure
  // sticks like any other; ranks that call shrink() can continue.
  void abort(const char* reason) noexcept;
  // After a failure: returns a World of the remaining ranks, renumbered in the same order. Each of
  // these ranks calls shrink(), which waits for the other ranks, at most for the timeout, and
  // excludes ranks that died, became unresponsive, left, or did not call in time. This World ends:
  // its Communicators and Requests return the failure from then on. Throws Error if nothing has
  // failed, and on an excluded rank.
  std::unique_ptr<World> shrink();
  // In a World made by shrink(): former_ranks()[r] is rank r's number in the World before.
  const std::vector<Rank>& former_ranks() const { return former_; }

  Communicator world();  // all ranks
  Communicator host();   // the ranks of this host
  Communicator rail();   // the ranks with the same local index, one per host

 private:
  friend struct Internals;  // coll/runtime/internals.h
  explicit World(std::shared_ptr<Core> core) : core_(std::move(core)) {}
  static std::unique_ptr<World> unmeasured(const WorldOptions& options);
  Job& job();
  void measure_costs();
  Status gather_status(const Error& thrown);
  class Asking;  // one call of this World under way; throws Error after shrink()
  std::shared_ptr<Core> core_;
  std::vector<Rank> former_;
};

}  // namespace weft
