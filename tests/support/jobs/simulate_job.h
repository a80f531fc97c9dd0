// A job on the simulated fabric: communicators over its ranks, programs of calls that overlap,
// ranks that are slow, stop, die, and messages that are lost. The engine of real jobs runs it, in
// virtual time, and it ends as a real one does: with results, or with one error on all ranks.
//
// The control plane is a model: a number of microseconds after the first rank saw something wrong,
// or after a rank died, all ranks learn who is to blame. What the ranks see is the engine's own.
// Deterministic: the same arguments give the same outcome. Knows neither processes nor clocks.
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

// A rank does nothing from from_us until until_us (virtual time); its NIC goes on. Without an end
// the process is stopped.
struct SimPause {
  Rank rank = 0;
  double from_us = 0;
  std::optional<double> until_us;
};

struct SimJobOptions {
  SimFabricOptions fabric;
  Tuning tuning;
  std::vector<SimPause> pauses;
  double deadline_us = 1e6;  // since anything moved at a rank that waits
  // Damage on purpose (transport/fault.h), under transports that check and repair; empty: neither.
  std::string fault = {};
  double verdict_us = 200;  // from the first sign of a failure until every rank knows the cause
};

// One collective of a communicator. The buffers are by rank of the communicator, and lent until
// run() returns.
struct SimCall : SimBuffers {
  int communicator = 0;
  const Algorithm* algorithm = nullptr;
  std::vector<Schedule> schedules;  // in place of the algorithm's, by rank of the communicator
  std::size_t count = 0;            // elements: of the message, or of a block
  DType type = DType::kFloat32;
  bool deterministic = false;  // sums in the order of ranks
};

// What a rank calls, in this order: indices of calls. The next one starts as long as fewer than
// `window` are under way (1: blocking calls).
struct SimProgram {
  std::vector<std::size_t> order;
  int window = 1;
};

struct SimOutcome {
  Status status;           // ok: all its calls are done
  std::vector<bool> done;  // by call: whether it ended well here
  bool alive = true;       // false: died, or stopped for good
  double ended_us = 0;     // virtual time
};

class SimJob {
 public:
  explicit SimJob(SimJobOptions options);
  ~SimJob();
  SimJob(const SimJob&) = delete;
  SimJob& operator=(const SimJob&) = delete;

  // A communicator over these world ranks; returns its index. 0 is the world, made by itself.
  int communicator(std::vector<Rank> ranks);
  // Its shape, as algorithms see it: hosts by the fabric.
  const Shape& shape(int communicator) const;

  // Runs the calls to their end, whatever it is. programs[r] is that of world rank r; none: every
  // rank makes all calls of its communicators in the order given. The outcome is by world rank. The
  // transfers of a rank that ended with an error are given up: its buffers are left alone from then
  // on. After a failure, ranks that are alive may go on with further calls.
  //
  // Throws Error for calls that cannot be; and when virtual time stands still before all is over.
  std::vector<SimOutcome> run(std::span<const SimCall> calls,
                              std::span<const SimProgram> programs = {});

  // Lets what is still under way in the fabric happen.
  void settle();
  const SimFabric& fabric() const;
  std::uint64_t retries() const;  // messages that arrived changed and were asked for again

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace weft
