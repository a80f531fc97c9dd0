// Stalls: tells the flight recorder how far each task of a rank is while the rank waits.
// This file does not judge who is to blame.
#include <algorithm>

#include "coll/runtime/core.h"
#include "coll/runtime/telemetry.h"

namespace weft {
namespace {

// Who waits for less is not worth a look: a slow slice, a descheduled peer.
constexpr std::chrono::milliseconds kStall{5};
// From then on what has arrived has been told of, and what is under way stands still.
constexpr std::chrono::milliseconds kSettled{200};

}  // namespace

void Telemetry::waiting(std::chrono::nanoseconds idle) noexcept {
  if (idle < kStall) return;
  if (!recorder_.is_stalled()) {
    counters_.stalls.add();
    stalled_at_ = std::chrono::steady_clock::now() - idle;
    settled_ = false;
  } else if (settled_ || idle < kSettled) {
    return;
  }
  settled_ = idle >= kSettled;
  survey();
}

void Telemetry::end_stall() noexcept {
  recorder_.moving();
  const auto stalled = std::chrono::steady_clock::now() - stalled_at_;
  counters_.stalled_ns.add(static_cast<std::uint64_t>(stalled.count()));
}

void Telemetry::survey() {
  core_.mutex.assert_held();
  const auto in_use = core_.rails ? core_.rails->in_use() : decltype(core_.rails->in_use()){};
  std::vector<Recorder::Stalled> stalled;
  for (const Task* op : core_.active) {
    Recorder::Stalled s;
    s.number = op->record & ~kPart;
    if (op->record & kPart) {
      // Of several parts under way the one that the others wait for.
      s.part = op->start + 1;
      const auto known = std::ranges::find(stalled, s.number, &Recorder::Stalled::number);
      if (known != stalled.end() && known->part < s.part) continue;
      if (known != stalled.end()) stalled.erase(known);
    }
    if (op->kind == Task::Kind::kPlan) {
      s.rounds = op->run.rounds();
      s.rounds_done = op->run.rounds_done();
      for (const Run::Progress& p : op->run.survey())
        s.peers.push_back(
            {p.peer, p.link, p.sends_posted, p.sends_done, p.recvs_posted, p.recvs_done});
    } else {
      PeerProgress p;
      p.peer = op->group->ranks[static_cast<std::size_t>(op->root)];
      p.link = core_.link_of(core_.job->rank(), p.peer);
      (op->sends ? p.sends_posted : p.recvs_posted) = std::max(op->slices_posted, 1u);
      (op->sends ? p.sends_done : p.recvs_done) = op->slices - op->slices_left;
      s.peers.push_back(p);
    }
    for (PeerProgress& p : s.peers) {
      const auto found = in_use.find({op->id, p.peer, p.link - core_.first_rail_link});
      if (found == in_use.end()) continue;
      p.sends_on = found->second.sends << core_.first_rail_link;
      p.recvs_on = found->second.recvs << core_.first_rail_link;
    }
    stalled.push_back(std::move(s));
  }
  for (const GroupState* g : core_.boards_busy) {
    if (g->board_queue.empty()) continue;
    Recorder::Stalled s;
    s.number = g->board_queue.front()->record;
    s.rounds = 1;
    for (const bool missing : {true, false})
      for (std::size_t i = 0; i < g->ranks.size(); ++i) {
        if (static_cast<Rank>(i) == g->me) continue;
        const bool here = g->board->read(static_cast<int>(i), g->board_round) != nullptr;
        if (here == missing) continue;
        PeerProgress p;
        p.peer = g->ranks[i];
        p.sends_posted = p.sends_done = p.recvs_posted = 1;
        p.recvs_done = here;
        s.peers.push_back(p);
      }
    stalled.push_back(std::move(s));
  }
  recorder_.stalled(stalled);
}

}  // namespace weft
