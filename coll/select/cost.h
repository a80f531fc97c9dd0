// The cost model predicts how long a schedule takes on links of measured latency and bandwidth,
// bounds what any schedule can reach, and picks an algorithm.
//
// Times are in microseconds, sizes in bytes. `bytes` is the whole message: all chunks together
// (for all_gather, reduce_scatter, gather and scatter the blocks of all ranks; for all_to_all the
// blocks of one rank, but of all ranks in functions that take schedules). Every function here is
// pure. Functions that judge the whole job ignore the shape's own rank: with the same CostModel
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
  double us_per_byte = 0;  // of one direction
  double step_us = 0;      // work of the sender, and of the receiver, for a message; on top of
                           // CostModel::step_us
};

// What the model charges. A Machine says it for what is to be predicted (costs_of()); the numbers
// here are examples.
struct CostModel {
  LinkCost host{0.5, 1e-4};   // between two ranks of a host; 1e-4 us/B = 10 GB/s
  LinkCost rail{5, 8e-4, 1};  // between hosts, by a rail of mean speed; 8e-4 us/B = 10 Gb/s
  // From one host to another, of all messages that change rails, on top of the ports of both rails;
  // us_per_byte 0: such messages cost what others do.
  LinkCost spine{0, 0};
  // Of the uplink of a leaf on each rail, each way, on top of the ports of rails; 0: never short.
  // Counts where the shape knows the leaves.
  double uplink_us_per_byte = 0;
  // A pass over the result, to combine received bytes after receiving them. The pass counts once
  // for adjacent recv_reduce steps into the same chunks whose sources are on this host.
  double reduce_us_per_byte = 5e-5;
  // Where host_ports: a core that takes bytes to where they belong, those that are not reduced from
  // ranks of this host, and all that come along a rail (0: the NIC does).
  double host_copy_us_per_byte = 0, rail_copy_us_per_byte = 0;
  double memory_us_per_byte = 0;  // of all ranks of a host together; 0: memory is not shared
  double step_us = 0.2;           // the engine's and the transport's work per message
  // Share by which a port slows down for each further message that comes from another host at the
  // same time.
  double fan_in_penalty = 0.02;
  // Ranks per core. Where ranks share cores, a message's work at either end waits for its turn: the
  // model counts the work of all ranks, not only the work along the longest chain.
  double oversubscription = 1;
  double eager_bytes = 8192;  // messages of as many bytes leave only when they can be received
  // Bytes inside a host pass ports of their own (GPU links, DMA), beside the work of the ranks.
  bool host_ports = false;
  bool sockets = false;    // the rails are sockets: their messages cost work that varies
  int rails_per_host = 0;  // 0: one for each rank of the host
  // Of the message, per round of the schedule; 0: as the engine cuts a message between hosts
  // (tuning.h), and 4 MiB inside a host.
  std::size_t round_bytes = 0;
};

// What a machine's links and cores are charged.
CostModel costs_of(const Machine& machine);

struct Prediction {
  double time_us = 0;
  double alpha_us = 0;   // the latency part of the critical path of one round
  double rail_us = 0;    // how long the busiest port of a rail is busy, over all rounds
  double work_us = 0;    // all ranks' work on messages between hosts (LinkCost::step_us of rail)
  double host_us = 0;    // how long the busiest rank, or the host's memory, copies and reduces
  std::string limiting;  // "latency", "rail" or "host": the largest of the three
};

// Plays the schedules through once: a message leaves when its data is there, the sender's and the
// receiver's rail ports take one message at a time, a rank copies and reduces one at a time. The
// result is the time of a pipeline of `rounds` rounds, each of 1/rounds of the message: the time of
// the first round plus, for each other round, the time of the busiest port or rank.
//
// `some`: the schedules of all ranks, or of some ranks (those of one host, a single rank). A rank
// outside `some` is assumed to send its i-th message to a rank inside when that rank sends its own
// i-th message: right for algorithms in which all ranks do alike.
Prediction predict(std::span<const Schedule> some, const Shape& shape, std::size_t bytes,
                   std::size_t element_size, int rounds, const CostModel& model);
// The same with the schedule of a single rank.
Prediction predict(const Schedule& own, const Shape& shape, std::size_t bytes,
                   std::size_t element_size, int rounds, const CostModel& model);
// Predicts an algorithm. Between hosts, unless the model says how long a round is, the message is
// cut as the engine cuts it, and its first rounds are played as the engine has them in flight.
// Plays all ranks where they are few, otherwise those of one host (the root's, if there is a root),
// or of the first and the last.
Prediction predict(const Algorithm& algorithm, const Shape& shape, std::size_t bytes,
                   std::size_t element_size, const CostModel& model);

// How many messages a rank like most others sends and receives, and in how many rounds.
struct Messages {
  double each_round = 0, rounds = 1;
  int lanes = 1;
  double all() const { return each_round * rounds; }
};
Messages messages_of(const Algorithm& algorithm, const Shape& shape, std::size_t bytes,
                     const CostModel& model);

// Returns the time below which an algorithm cannot be, by what one rank sends and receives: cheap.
double floor_us(const Algorithm& algorithm, const Shape& shape, std::size_t bytes,
                const CostModel& model);

// Returns the time that the bytes alone need, whatever the algorithm; 0 for a barrier. With H > 1
// hosts, each host moves f times the message through its rails: f = 2 (H-1)/H for all_reduce,
// (H-1)/H for all_gather and reduce_scatter, 1 for broadcast; gather and scatter move what the
// root's host lacks. Inside one host, ranks stand for hosts and memory for rails. The slowest of
// unequal hosts decides: there f of all_reduce is 1, and the mean over all rails 2 (H-1) / rails.
// So it is where a host has slow ports: it has as many rails less as its ports lack of their rates.
// The uplinks of a leaf carry at least what they would if the leaf were a host.
double lower_bound_us(Collective collective, const Shape& shape, std::size_t bytes,
                      const CostModel& model);

// The fewest bytes that must go from one leaf of the shape to another, all leaves together; 0 where
// the shape knows of one leaf only.
double least_between_leaves(Collective collective, const Shape& shape, std::size_t bytes);

// The same with all that counts: whatever the algorithm, no job is faster.
struct Bound {
  double us = 0;
  // What `us` is but for the latency of a message: "rail", "host" (a rank's links, those inside the
  // host and its rail together, and the bytes that it must send or get), "core" (what a rank must
  // reduce and copy) or "memory" (of a host, to which all of that is written). "latency" where that
  // alone is more.
  std::string limiting;
};
Bound bound_of(Collective collective, const Shape& shape, std::size_t bytes,
               const CostModel& model);

// A choice among more ranks than this takes no more than a few milliseconds: fewer ranks, steps and
// algorithms are played.
inline constexpr int kManyRanks = 512;

struct Rated {
  const Algorithm* algorithm;
  Prediction prediction;
};
// Predicts all algorithms that apply, in the order of the registry. Of algorithms that cannot be
// half as fast as another, the prediction is their floor.
std::vector<Rated> rate(Collective collective, const Shape& shape, std::size_t bytes,
                        const CostModel& model);

struct Pick {
  const Algorithm* algorithm = nullptr;
  Prediction prediction;
  const Algorithm* runner_up = nullptr;  // nullptr where only one algorithm applies
  Prediction runner_up_prediction;
};

inline constexpr double kAsGood = 1.01;  // predictions closer than this are equal
// The same where hosts wait for slow ports: an algorithm of many hops takes up to 6 % longer than
// the model says.
inline constexpr double kAsGoodWithSlow = 1.05;

// Picks the algorithm with the shortest predicted time. No prediction is better than 1 %: of the
// algorithms that close to the best, the first of the registry wins. From 1 MiB on, an algorithm
// that leaves its rails is not taken where one that keeps to them is predicted within 10 % of it.
// Where ranks share cores, their turns decide as much for a short message: of the algorithms within
// 10 %, the one with the least work wins; where hosts have slow ports, the one with the fewest hops
// of those within 5 %. The runner-up is the fastest of the others whose schedule differs from the
// winner's. Takes a few milliseconds at 1,024 ranks: cache the pick by size class.
Pick pick(std::vector<Rated> all, const Shape& shape, std::size_t bytes, const CostModel& model);
inline Pick pick(Collective collective, const Shape& shape, std::size_t bytes,
                 const CostModel& model) {
  return pick(rate(collective, shape, bytes, model), shape, bytes, model);
}

}  // namespace weft
