// BoardTask: a small collective between ranks that share memory. Each rank publishes its data on
// the board, and all ranks read it.
#pragma once

#include <utility>
#include <vector>

#include "coll/runtime/core.h"

namespace weft {

// Publishes this rank's message on the group's board and begins a round of the board.
void publish_on_board(GroupState& g, Collective c, const Call& call, Rank root);
// Whether every member has published its message of the board's current round.
bool board_ready(const GroupState& g);
// The result of board_finish().
struct BoardOutcome {
  int diverging = -1;  // a member whose call differs from this rank's: `out` is not written
  bool done() const { return diverging < 0; }
};
// Computes this rank's result from the members' messages, once board_ready().
BoardOutcome board_finish(GroupState& g, Collective c, const Call& call, Rank root);

class BoardTask final : public Task {
 public:
  // Starts the collective with this number. record: of a call whose message is on the board
  // already, which is only possible for the group's first task; else 0. blocks: the memory of a
  // vector call's spans.
  static BoardTask* begin(GroupState& g, const PreparedRef& prepared, std::uint64_t number,
                          std::uint64_t record, const Call& call, std::vector<std::size_t>&& blocks)
      WEFT_REQUIRES(core_held);
  void complete(const Completion&) override {}  // it has no transfers
  Step progress() override WEFT_REQUIRES(core_held);
  void done() override WEFT_REQUIRES(core_held);
  void cancel() override WEFT_REQUIRES(core_held) { group->board_queue.clear(); }
  Rank waiting_for() const override;
  bool survey(Recorder::Stalled& how_far) const override;
  Status failure() const override WEFT_REQUIRES(core_held) {
    return {Code::kMismatch, title(what())};
  }
  Status mismatch() const override WEFT_REQUIRES(core_held);

 private:
  BoardTask(std::vector<std::size_t>&& blocks, bool published)
      : blocks_(std::move(blocks)), published_(published) {}
  bool first() const { return group->board_queue.front() == this; }
  void publish() WEFT_REQUIRES(core_held);

  const std::vector<std::size_t> blocks_;
  bool published_;
  int diverging_ = -1;
};

}  // namespace weft
