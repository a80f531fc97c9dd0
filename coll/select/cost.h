// The cost model: how long a schedule takes on links of measured latency and bandwidth, what no
// schedule can beat, and which algorithm `auto` picks.
//
// Times are in microseconds, sizes in bytes. `bytes` is the whole message: all chunks together
// (for all_gather, reduce_scatter, gather and scatter the blocks of all ranks; for all_to_all those
// of one rank, except where schedules are given: there those of all). Everything here is a pure
// function of the shape, whose own rank is ignored where the whole job is judged: every rank of a
// communicator gets the same answer, bit for bit, if all give it the same CostModel.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "coll/schedule/algorithm.h"
#include "coll/schedule/schedule.h"
#include "coll/types.h"

namespace weft {

struct LinkCost {
  double alpha_us = 0;     // latency of a message
  double us_per_byte = 0;  // one direction
  double step_us = 0;      // work of the sender, and of the receiver, for a message; on top of
                           // CostModel::step_us
};

struct CostModel {
  LinkCost host{0.5, 1e-4};   // between two ranks of a host; 1e-4 us/B = 10 GB/s
  LinkCost rail{5, 8e-4, 1};  // between hosts, of one rail (of mean speed); 8e-4 us/B = 10 Gb/s
  // To combine what was received, on top of receiving it: a pass over the result. Once for adjacent
  // recv_reduce steps into the same chunks whose sources are on this host.
  double reduce_us_per_byte = 5e-5;
  double memory_us_per_byte = 0;  // of all ranks of a host together; 0: memory is not shared
  double step_us = 0.2;           // the engine's and the transport's work per message
  // Share by which a port gets slower for each message more that comes from different hosts at
  // once.
  double fan_in_penalty = 0.02;
  // Ranks per core. Where ranks share cores, a message's work at either end waits for its turn: the
  // work of all ranks together counts, not only that along the longest chain.
  double oversubscription = 1;
  int rails_per_host = 0;              // 0: one for each rank of the host
  std::size_t round_bytes = 4u << 20;  // the message is run through the schedule in rounds of this
};

struct Prediction {
  double time_us = 0;
  double alpha_us = 0;   // the latency part of the critical path of one round
  double rail_us = 0;    // how long the busiest port of a rail is busy, over all rounds
  double work_us = 0;    // work of all ranks on messages between hosts (LinkCost::step_us of rail)
  double host_us = 0;    // how long the busiest rank copies and reduces (or the host's memory is)
  std::string limiting;  // "latency", "rail" or "host": the largest of the three
};

// Plays the schedules through once: a message leaves when its data is there, the sender's and the
// receiver's rail ports take one message at a time, a rank copies and reduces one at a time. Then
// `rounds` rounds of 1/rounds of the message follow each other as a pipeline: the time of the first
// and, for each other, that of the busiest port or rank.
//
// `some`: those of all ranks, or of some of them (the ranks of one host, a single rank). The i-th
// message to a rank of these from one that is not among them is taken to leave when this rank's own
// i-th message does: right for algorithms in which all ranks do alike.
Prediction predict(std::span<const Schedule> some, const Shape& shape, std::size_t bytes,
                   std::size_t element_size, int rounds, const CostModel& model);
Prediction predict(const Schedule& own, const Shape& shape, std::size_t bytes,
                   std::size_t element_size, int rounds, const CostModel& model);
// Of an algorithm: over all ranks where these are few enough, otherwise over the ranks of the
// (root's) host.
Prediction predict(const Algorithm& algorithm, const Shape& shape, std::size_t bytes,
                   std::size_t element_size, const CostModel& model);

// What the bytes alone need, whatever the algorithm: with H > 1 hosts, f bytes per host through all
// its rails, f = 2 (H-1)/H for all_reduce, (H-1)/H for all_gather and reduce_scatter, 1 for
// broadcast; of a gather or scatter, what the root's host lacks; inside one host, the same with
// ranks for hosts and memory for rails. Of unequal hosts, what the one needs that takes longest; f
// of an all_reduce is 1 there, and the mean over all rails 2 (H-1) / rails. 0 for a barrier.
double lower_bound_us(Collective collective, const Shape& shape, std::size_t bytes,
                      const CostModel& model);

struct Rated {
  const Algorithm* algorithm;
  Prediction prediction;
};
// Of all algorithms that apply, in the order of the registry.
std::vector<Rated> rate(Collective collective, const Shape& shape, std::size_t bytes,
                        const CostModel& model);

struct Pick {
  const Algorithm* algorithm = nullptr;
  Prediction prediction;
  const Algorithm* runner_up = nullptr;  // nullptr where only one algorithm applies
  Prediction runner_up_prediction;
};

// The fastest of those that apply, by prediction: the first of the registry among those within 1 %
// of the best, since that is closer than any prediction. Where ranks share cores, who gets its turn
// when decides as much for a short message: of those within 10 % the one with the least work is
// taken. The runner-up is the fastest of the others
// that does not come out as the very same schedule. Takes milliseconds at large shapes: cache it by
// size class.
Pick pick(std::vector<Rated> all, const Shape& shape, const CostModel& model);
inline Pick pick(Collective collective, const Shape& shape, std::size_t bytes,
                 const CostModel& model) {
  return pick(rate(collective, shape, bytes, model), shape, model);
}

}  // namespace weft
