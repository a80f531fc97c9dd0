// A job on the simulated fabric: communicators over its ranks, programs of overlapping calls, slow,
// stopped and dead ranks, and lost messages. It runs the real engine in virtual time and ends like
// a real job: with results, or with one error on all ranks.
//
// The control plane is a model: a fixed number of microseconds after the first error of a rank, or
// after a rank's death, all ranks learn the cause. Deterministic: the same arguments give the same
// outcome. This file does not depend on processes or clocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "coll/schedule/algorithm.h"
#include "coll/schedule/schedule.h"
#include "coll/select/tuning.h"
#include "coll/sim/simulate.h"
#include "coll/types.h"
#include "topo/base/status.h"
#include "transport/sim/sim.h"

namespace weft {

// The rank's process stops from from_us until until_us (virtual time); its NIC continues. Without
// until_us, it stops forever.
struct SimPause {
  Rank rank = 0;
  double from_us = 0;
  std::optional<double> until_us;
};

struct SimJobOptions {
  SimFabricOptions fabric;
  Tuning tuning;
  std::vector<SimPause> pauses;
  double deadline_us = 1e6;  // without progress of a waiting rank
  // Fault to inject (transport/fault.h) below transports that check and retransmit; empty: neither.
  std::string fault = {};
  double verdict_us = 200;  // from the first sign of a failure until all ranks know the cause
};

// One collective. Buffers are by rank of the communicator, and lent until run() returns.
struct SimCall : SimBuffers {
  int communicator = 0;
  const Algorithm* algorithm = nullptr;
  std::vector<Schedule> schedules;  // override the algorithm's, by rank of the communicator
  std::size_t count = 0;            // elements of the message, or of a block
  DType type = DType::kFloat32;
  bool deterministic = false;  // sums in rank order
};

// A rank's calls in program order, as indices. The next call starts while fewer than `window` are
// pending (1: blocking calls).
struct SimProgram {
  std::vector<std::size_t> order;
  int window = 1;
};

struct SimOutcome {
  Status status;           // ok: all its calls completed
  std::vector<bool> done;  // by call: completed without error on this rank
  bool alive = true;       // false: died, or stopped forever
  double ended_us = 0;     // virtual time
};

class SimJob {
 public:
  explicit SimJob(SimJobOptions options);
  ~SimJob();
  SimJob(const SimJob&) = delete;
  SimJob& operator=(const SimJob&) = delete;

  // Adds a communicator over these world ranks and returns its index. The world is index 0.
  int communicator(std::vector<Rank> ranks);
  // The communicator's shape, with hosts from the fabric.
  const Shape& shape(int communicator) const;

  // Runs the calls to completion or failure. programs[r] belongs to world rank r; if empty, every
  // rank makes all calls of its communicators in the order given. Outcomes are by world rank. A
  // rank that ends with an error cancels its transfers; its buffers are not accessed afterwards.
  // Later runs with the surviving ranks are possible.
  //
  // Throws Error on invalid calls, and if the simulation runs out of events before all ranks end.
  std::vector<SimOutcome> run(std::span<const SimCall> calls,
                              std::span<const SimProgram> programs = {});

  // Runs the fabric's pending events.
  void settle();
  const SimFabric& fabric() const;
  std::uint64_t retries() const;  // retransmissions of corrupted messages

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace weft
