// The cost model predicts how long a schedule takes on links of measured latency and bandwidth,
// bounds what any schedule can reach, and picks an algorithm.
//
// Times are in microseconds, sizes in bytes. `bytes` is the whole message: all chunks together
// (for all_gather, reduce_scatter, gather and scatter the blocks of all ranks; for all_to_all the
// blocks of one rank, but of all ranks in functions that take schedules). Every function here is
// pure. Functions for the whole job ignore the shape's own rank: with the same CostModel
// every rank of a communicator gets the same answer, bit for bit.
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

// The costs that the model charges. costs_of() takes them from a Machine; the numbers here are
// examples.
struct CostModel {
  LinkCost host{0.5, 1e-4};   // between two ranks of a host; 1e-4 us/B = 10 GB/s
  LinkCost rail{5, 8e-4, 1};  // between hosts, on a rail of average speed; 8e-4 us/B = 10 Gb/s
  // From one host to another, for all messages that change rails, in addition to the ports of both
  // rails; us_per_byte 0: such messages cost no more than others.
  LinkCost spine{0, 0};
  // The uplink of a leaf on each rail, per direction, in addition to the rail ports; 0: never
  // short. Used if the shape knows the leaves.
  double uplink_us_per_byte = 0;
  // A pass over the result that combines received bytes into it. Adjacent recv_reduce steps into
  // the same chunks whose sources are on this host share one pass.
  double reduce_us_per_byte = 5e-5;
  // With host_ports: a core's time to copy bytes to their destination, those from ranks of this
  // host that are not reduced, and all that arrive along a rail (0: the NIC places them).
  double host_copy_us_per_byte = 0, rail_copy_us_per_byte = 0;
  double memory_us_per_byte = 0;  // for all ranks of a host together; 0: memory is not shared
  double step_us = 0.2;           // the engine's and the transport's work per message
  // Fraction by which a port slows down for each further message that arrives from another host at
  // the same time.
  double fan_in_penalty = 0.02;
  // Ranks per core. If ranks share cores, a message's work at either end waits for its turn: the
  // model counts the work of all ranks, not only the work along the longest chain.
  double oversubscription = 1;
  double eager_bytes = 8192;  // messages of at least this size leave only when they can be received
  // Bytes inside a host use separate ports (GPU links, DMA), concurrently with the ranks' work.
  bool host_ports = false;
  bool sockets = false;    // the rails are sockets, whose work per message varies
  int rails_per_host = 0;  // 0: one for each rank of the host
  // Bytes of the message per round of the schedule; 0: between hosts as the engine slices it
  // (tuning.h), inside a host 4 MiB.
  std::size_t round_bytes = 0;
};

// The costs of a machine's links and cores.
CostModel costs_of(const Machine& machine);

struct Prediction {
  double time_us = 0;
  double alpha_us = 0;   // the latency part of the critical path of one round
  double rail_us = 0;    // how long the busiest rail port is busy, over all rounds
  double work_us = 0;    // all ranks' work on messages between hosts (LinkCost::step_us of rail)
  double host_us = 0;    // how long the busiest rank, or the host's memory, copies and reduces
  std::string limiting;  // "latency", "rail" or "host": the largest of the three
};

// Plays the schedules once: a message leaves when its data is ready, the sender's and the
// receiver's rail ports take one message at a time, a rank copies and reduces one at a time.
// Returns the time of a pipeline of `rounds` rounds, each with 1/rounds of the message: the time of
// the first round plus, for each further round, the time of the busiest port or rank.
//
// `some`: the schedules of all ranks, or of some ranks (those of one host, a single rank). A rank
// outside `some` is assumed to send its i-th message to a rank inside when that rank sends its own
// i-th message: right for algorithms whose ranks all have the same pattern of steps.
Prediction predict(std::span<const Schedule> some, const Shape& shape, std::size_t bytes,
                   std::size_t element_size, int rounds, const CostModel& model);
// As above, with the schedule of a single rank.
Prediction predict(const Schedule& own, const Shape& shape, std::size_t bytes,
                   std::size_t element_size, int rounds, const CostModel& model);
// Predicts an algorithm. Between hosts, unless the model sets the bytes of a round, the message is
// sliced as the engine slices it, and its first rounds are played with as many in flight as in the
// engine. Plays all ranks if they have few steps together, otherwise those of one host (the root's,
// if there is a root), or of the first and the last.
Prediction predict(const Algorithm& algorithm, const Shape& shape, std::size_t bytes,
                   std::size_t element_size, const CostModel& model);

// The messages that a typical rank sends and receives per round, and the number of rounds.
struct Messages {
  double each_round = 0, rounds = 1;
  int lanes = 1;
  double all() const { return each_round * rounds; }
};
Messages messages_of(const Algorithm& algorithm, const Shape& shape, std::size_t bytes,
                     const CostModel& model);

// Returns a cheap lower bound on an algorithm's time, from what one rank sends and receives.
double floor_us(const Algorithm& algorithm, const Shape& shape, std::size_t bytes,
                const CostModel& model);

// Returns the time that the bytes alone need, whatever the algorithm; 0 for a barrier. With H > 1
// hosts, each host moves f times the message through its rails: f = 2 (H-1)/H for all_reduce,
// (H-1)/H for all_gather and reduce_scatter, 1 for broadcast; gather and scatter move what the
// root's host lacks. Inside one host, ranks act as hosts and memory as rails. Among unequal hosts
// the slowest decides: f of all_reduce is 1 there, and the mean over all rails 2 (H-1) / rails.
// Slow ports count the same way, as rails that are missing by the rate that they lack. The uplinks
// of a leaf carry at least what they would if the leaf were a host.
double lower_bound_us(Collective collective, const Shape& shape, std::size_t bytes,
                      const CostModel& model);

// The fewest bytes that must cross from one leaf of the shape to another, all leaves together; 0 if
// the shape has only one leaf.
double least_between_leaves(Collective collective, const Shape& shape, std::size_t bytes);

// A lower bound from all resources: no algorithm is faster.
struct Bound {
  double us = 0;
  // What limits `us`: "rail", "host" (a rank's links, inside the host and its rail together, for
  // the bytes that it must send or receive), "core" (what a rank must reduce and copy), "memory"
  // (of a host, to which all of that is written), or "latency" if that alone takes longer.
  std::string limiting;
};
Bound bound_of(Collective collective, const Shape& shape, std::size_t bytes,
               const CostModel& model);

// Above this many ranks, fewer ranks, steps and algorithms are played, so that a choice takes at
// most a few milliseconds.
inline constexpr int kManyRanks = 512;

struct Rated {
  const Algorithm* algorithm;
  Prediction prediction;
};
// Predicts all algorithms that apply, in the order of the registry. An algorithm whose floor_us()
// is more than twice another's time has that floor as its prediction.
std::vector<Rated> rate(Collective collective, const Shape& shape, std::size_t bytes,
                        const CostModel& model);

struct Pick {
  const Algorithm* algorithm = nullptr;
  Prediction prediction;
  const Algorithm* runner_up = nullptr;  // nullptr if only one algorithm applies
  Prediction runner_up_prediction;
};

inline constexpr double kAsGood = 1.01;  // predictions closer than this are equal
// The same with slow ports: an algorithm of many hops takes up to 6 % longer than predicted.
inline constexpr double kAsGoodWithSlow = 1.05;

// Picks the algorithm with the shortest predicted time. Predictions are good to 1 % at best: among
// the algorithms that close to the best, the first in the registry wins. From 1 MiB on, an
// algorithm that leaves its rails loses to one that keeps to them and is predicted within 5 % of
// it. If ranks share cores, their turns decide as much for a short message: among the algorithms
// within 10 %, the one with the least work wins; with slow ports, the one with the fewest hops
// among those within 5 %. The runner-up is the fastest of the others whose schedule differs from
// the winner's. Takes up to some tens of milliseconds at 1,024 ranks: cache the pick by size class.
Pick pick(std::vector<Rated> all, const Shape& shape, std::size_t bytes, const CostModel& model);
inline Pick pick(Collective collective, const Shape& shape, std::size_t bytes,
                 const CostModel& model) {
  return pick(rate(collective, shape, bytes, model), shape, bytes, model);
}

}  // namespace weft
