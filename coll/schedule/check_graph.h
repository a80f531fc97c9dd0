// The graph of all ranks' steps, for the checker: what must happen before what.
//
// A step is two events. kPosted: a send hands over the values of its chunks; a receive takes the
// message from its channel. kDone: the send's chunks may be written again; the receive has changed
// its chunks. The order between events:
//
//   step        posted -> done
//   data        done of every earlier step of this rank that touches a chunk of the step, where
//               one of the two writes it -> done of a recv_reduce (its message waits in scratch or
//               as a view meanwhile), posted of the others
//   FIFO        the sends of a channel are posted in order; a receive is posted when the one before
//               it on its channel is done (so that one message of scratch per channel suffices),
//               and where that is part of a reduction, all of this
//   transfer    posted of the i-th send -> posted of the i-th receive
//   joined      what posted of a step waits for as to its data, posted of the first step of its
//               message waits for, too
//   credits     c > 0: posted of receive i - c -> done of send i; c = 0: posted of receive i ->
//               done of send i (rendezvous)
//
// A send never blocks the steps after it except through its data and its channel, so two ranks that
// send to each other before they receive are no deadlock. The engine enforces the data order and
// the transfers; FIFO and credits are the least that any transport grants, so a schedule without a
// cycle here runs on all of them. Some that are rejected here might run on a transport with more.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "coll/schedule/schedule.h"

namespace weft {

class StepGraph {
 public:
  enum Event : std::uint8_t { kPosted, kDone };

  // The schedules must be well-formed (peers and chunks in range) and outlive the graph. Steps are
  // numbered through all ranks.
  explicit StepGraph(std::span<const Schedule> schedules);

  // Pairs the transfers. The fault: a step without partner, or partners with different chunks.
  std::string match();
  // After match(): visits the events in an order that respects the graph, until a visit returns a
  // fault. Where events are left that wait for each other, the fault tells who waits for whom.
  std::string run(int credits, const std::function<std::string(int step, Event)>& visit) const;

  int nsteps() const { return static_cast<int>(owner_.size()); }
  Rank owner(int step) const { return owner_[step]; }
  const Step& step(int step) const {
    return schedules_[owner_[step]].steps[step - offset_[owner_[step]]];
  }
  int partner(int step) const { return partner_[step]; }
  int global(Rank rank, int step) const { return offset_[rank] + step; }
  std::string describe(int step) const;  // "step 3 of rank 0 (send to 1, chunks [0,2), channel 0)"

 private:
  template <class F>
  void each_edge(int credits, F f) const;
  template <class F>
  void each_data_edge(Rank rank, F f) const;
  int head(int step) const;
  std::string deadlock(int credits, const std::vector<int>& waiting) const;

  std::span<const Schedule> schedules_;
  std::vector<int> offset_;    // of each rank's first step
  std::vector<Rank> owner_;    // by step
  std::vector<int> partner_;   // by step: the other end of the transfer
  std::vector<int> previous_;  // by step: the one before on its channel and direction, or -1
  std::vector<int> last_;      // by step: the last one of its reduction; of the others itself
  // The sends, channel after channel, and where each channel begins.
  std::vector<int> sends_, channel_begin_;
};

}  // namespace weft
