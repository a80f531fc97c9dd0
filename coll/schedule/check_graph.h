// The checker's graph of all ranks' steps: a partial order of events.
//
// A step is two events. kPosted: a send takes the values of its chunks; a receive takes the message
// from its channel. kDone: the send's chunks may be written again; the receive has changed its
// chunks. The order between events:
//
//   step        posted -> done
//   data        done of every earlier step of this rank that touches a chunk of the step, where
//               one of the two writes the chunk -> posted of the step, or done of a recv_reduce,
//               whose message waits in scratch or as a view meanwhile
//   places      done of every step that touches a chunk -> as above, of the first step that writes
//               the chunk that takes its place (Schedule::place)
//   FIFO        the sends of a channel are posted in order; a receive is posted when the previous
//               receive on its channel is done, with the whole reduction it belongs to (so one
//               message of scratch per channel suffices)
//   transfer    posted of the i-th send -> posted of the i-th receive
//   joined      posted of the first step of a message waits for the data of all its steps
//   credits     c > 0: posted of receive i - c -> done of send i; c = 0: posted of receive i ->
//               done of send i (synchronous)
//
// A send blocks later steps only through its data and its channel, so two ranks that send to each
// other before they receive do not deadlock. The engine enforces the data order and the transfers.
// FIFO and credits are the minimum that any transport guarantees, so a schedule without a cycle in
// this graph runs on every transport. A transport with stronger guarantees might run a schedule
// that the checker rejects.
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

  // The schedules must be well-formed (peers and chunks in range) and outlive the graph. The graph
  // numbers the steps of all ranks in one sequence.
  explicit StepGraph(std::span<const Schedule> schedules);

  // Pairs the transfers. Returns the fault, if any: a step without a partner, or partners with
  // different chunks.
  std::string match();
  // Visits the events in an order that respects the graph, until a visit returns a fault. Requires
  // match(). For a deadlock, the returned fault lists the steps of the cycle, each with the step it
  // waits for.
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
  std::vector<int> offset_;   // number of each rank's first step
  std::vector<Rank> owner_;   // by step
  std::vector<int> partner_;  // by step: the other end of the transfer
  // By step: the previous step on the same channel and in the same direction, or -1.
  std::vector<int> previous_;
  std::vector<int> last_;  // by step: the last step of its reduction, otherwise the step itself
  // The sends, sorted by channel, and the index at which each channel begins.
  std::vector<int> sends_, channel_begin_;
};

}  // namespace weft
