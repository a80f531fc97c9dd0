// The cost model predicts the time of a schedule on links of measured latency and bandwidth,
// computes lower bounds for all schedules, and selects an algorithm.
//
// Times are in microseconds, sizes in bytes. `bytes` is the size of the whole message: of all
// chunks together (for all_gather, reduce_scatter, gather and scatter the blocks of all ranks; for
// all_to_all the blocks of one rank, but in functions that take schedules the blocks of all ranks).
// All functions of this file are pure. Functions for the whole job ignore the shape's own rank:
// with the same CostModel every rank of a communicator gets the same result, bit for bit.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "coll/machine.h"
#include "coll/schedule/algorithm.h"
#include "coll/schedule/schedule.h"
#include "coll/types.h"

namespace weft {

struct LinkCost {
  double alpha_us = 0;     // latency of a message
  double us_per_byte = 0;  // in one direction
  double step_us = 0;      // work of the sender, and of the receiver, per message, in addition to
                           // CostModel::step_us
};

// The costs that the model uses. costs_of() derives them from a Machine; the defaults here are
// examples.
struct CostModel {
  LinkCost host{0.5, 1e-4};   // between two ranks of a host; 1e-4 us/B = 10 GB/s
  LinkCost rail{5, 8e-4, 1};  // between hosts, on a rail of average speed; 8e-4 us/B = 10 Gb/s
  // Cost of all messages between two hosts that change rails, in addition to the ports of both
  // rails. us_per_byte 0: such messages cost the same as others.
  LinkCost spine{0, 0};
  // The uplink of a leaf on each rail, per direction, in addition to the rail ports; 0: uplinks are
  // never a bottleneck. Used if the shape contains the leaves.
  double uplink_us_per_byte = 0;
  // Time to reduce received bytes into the result in one pass. Adjacent recv_reduce steps into the
  // same chunks share one pass if their sources are on this host.
  double reduce_us_per_byte = 5e-5;
  // With host_ports: a core's time to copy bytes to their destination. host_copy applies to bytes
  // from ranks of this host that are not reduced, rail_copy to all bytes that arrive along a rail
  // (0: the NIC writes them to their destination).
  double host_copy_us_per_byte = 0, rail_copy_us_per_byte = 0;
  double memory_us_per_byte = 0;  // for all ranks of a host together; 0: memory is not shared
  double step_us = 0.2;           // the engine's and the transport's work per message
  // Relative slowdown of a port for each further message that arrives from another host at the same
  // time.
  double fan_in_penalty = 0.02;
  // Ranks per core. If ranks share cores, the work on a message at either end waits until its rank
  // is scheduled: the model then adds the work of all ranks, not only the work on the longest
  // chain.
  double oversubscription = 1;
  double eager_bytes = 8192;  // sends of messages of at least this size wait for the receive
  // Bytes within a host use separate ports (GPU links, DMA), concurrently with the ranks' work.
  bool host_ports = false;
  bool sockets = false;    // the rails are sockets, whose work per message varies
  int rails_per_host = 0;  // 0: one for each rank of the host
  // Bytes of the message per round of the schedule. 0: between hosts the slice of the engine
  // (tuning.h), within a host 4 MiB.
  std::size_t round_bytes = 0;
};

// The costs of a machine's links and cores.
CostModel costs_of(const Machine& machine);

struct Prediction {
  double time_us = 0;
  double alpha_us = 0;  // the latency part of the critical path of one round
  double rail_us = 0;   // time for which the busiest rail port is busy, over all rounds
  double work_us = 0;   // all ranks' work on messages between hosts (LinkCost::step_us of rail)
  // Time for which the busiest rank, or the host's memory, copies and reduces.
  double host_us = 0;
  std::string limiting;  // "latency", "rail" or "host": the largest of the three
};

// Simulates the schedules once: a message is sent when its data is ready, the sender's and the
// receiver's rail ports process one message at a time, a rank copies and reduces one message at a
// time. Returns the time of a pipeline of `rounds` rounds, each with 1/rounds of the message: the
// time of the first round plus, for each further round, the time of the busiest port or rank.
//
// `some`: the schedules of all ranks, or of some ranks (the ranks of one host, or a single rank).
// The model assumes that a rank outside `some` sends its i-th message to a rank in `some` when that
// rank sends its own i-th message. This is correct for algorithms in which all ranks have the same
// pattern of steps.
Prediction predict(std::span<const Schedule> some, const Shape& shape, std::size_t bytes,
                   std::size_t element_size, int rounds, const CostModel& model);
// Predicts from the schedule of a single rank.
Prediction predict(const Schedule& own, const Shape& shape, std::size_t bytes,
                   std::size_t element_size, int rounds, const CostModel& model);
// Predicts the time of an algorithm. Between hosts, unless the model sets the bytes of a round, the
// message is sliced as in the engine, and its first rounds are simulated with as many rounds in
// flight as in the engine. Simulates all ranks if they have few steps together, otherwise the ranks
// of one host (the root's, if there is a root), or the first and the last rank.
Prediction predict(const Algorithm& algorithm, const Shape& shape, std::size_t bytes,
                   std::size_t element_size, const CostModel& model);

// The number of messages that a typical rank sends and receives per round, and the number of
// rounds.
struct Messages {
  double each_round = 0, rounds = 1;
  int lanes = 1;
  double all() const { return each_round * rounds; }
};
Messages messages_of(const Algorithm& algorithm, const Shape& shape, std::size_t bytes,
                     const CostModel& model);

// Returns a cheap lower bound of an algorithm's time, based on the sends and receives of one rank.
double floor_us(const Algorithm& algorithm, const Shape& shape, std::size_t bytes,
                const CostModel& model);

// Returns the minimum time to transfer the bytes, for any algorithm; 0 for a barrier. With H > 1
// hosts, each host moves f times the message through its rails: f = 2 (H-1)/H for all_reduce,
// (H-1)/H for all_gather and reduce_scatter, 1 for broadcast; gather and scatter move the blocks of
// all hosts except the root's. Within one host, ranks take the role of hosts and memory the role of
// rails. If hosts are unequal, the slowest host determines f: for all_reduce it is 1 on that host,
// and the mean over all rails is 2 (H-1) / rails. Slow ports reduce the number of rails by the
// missing share of their rate. The uplinks of a leaf carry at least as many bytes as if the leaf
// were one host.
double lower_bound_us(Collective collective, const Shape& shape, std::size_t bytes,
                      const CostModel& model);

// The minimum number of bytes that must cross between leaves of the shape, summed over all leaves;
// 0 if the shape has only one leaf.
double least_between_leaves(Collective collective, const Shape& shape, std::size_t bytes);

// A lower bound from all resources: no algorithm is faster than `us`.
struct Bound {
  double us = 0;
  // The resource that limits `us`: "rail", "host" (a rank's links, those within the host and its
  // rail together, for the bytes that it must send or receive), "core" (the bytes that a rank must
  // reduce and copy), "memory" (of a host, into which all these bytes are written), or "latency" if
  // it exceeds all other bounds.
  std::string limiting;
};
Bound bound_of(Collective collective, const Shape& shape, std::size_t bytes,
               const CostModel& model);

// Above this number of ranks the model simulates fewer ranks, steps and algorithms, so that a
// choice takes at most a few milliseconds.
inline constexpr int kManyRanks = 512;

struct Rated {
  const Algorithm* algorithm;
  Prediction prediction;
};
// Predicts all algorithms that support the shape, in the order of the registry. If an algorithm's
// floor_us() is more than twice another algorithm's time, the prediction is floor_us().
std::vector<Rated> rate(Collective collective, const Shape& shape, std::size_t bytes,
                        const CostModel& model);

struct Pick {
  const Algorithm* algorithm = nullptr;
  Prediction prediction;
  const Algorithm* runner_up = nullptr;  // nullptr if only one algorithm applies
  Prediction runner_up_prediction;
};

inline constexpr double kAsGood = 1.01;  // predictions whose ratio is below this are equal
// kAsGood with slow ports: an algorithm with many hops takes up to 6 % longer than predicted.
inline constexpr double kAsGoodWithSlow = 1.05;

// Selects the algorithm with the shortest predicted time. Predictions are accurate to 1 % at best,
// so among the algorithms within 1 % of the best the first in the registry is selected. From 1 MiB
// on, an algorithm that crosses between rails is replaced by a rail-aware one whose predicted time
// is within 5 % of it. If ranks share cores, scheduling affects a short message as much as the
// algorithm does: among the algorithms within 10 %, the one with the least work is selected. With
// slow ports, the one with the fewest hops among those within 5 % is selected. The runner-up is the
// fastest other algorithm whose schedule differs from the selected one. Takes up to some tens of
// milliseconds at 1,024 ranks: cache the result by size class.
Pick pick(std::vector<Rated> all, const Shape& shape, std::size_t bytes, const CostModel& model);
inline Pick pick(Collective collective, const Shape& shape, std::size_t bytes,
                 const CostModel& model) {
  return pick(rate(collective, shape, bytes, model), shape, bytes, model);
}

}  // namespace weft
