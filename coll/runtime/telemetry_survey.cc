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
  for (const Task* op : core_.tasks) {
    Recorder::Stalled s;
    if (!op->survey(s)) continue;
    s.number = op->record & ~kPart;
    if (op->record & kPart) {
      // Of several parts under way the one that the others wait for.
      const auto known = std::ranges::find(stalled, s.number, &Recorder::Stalled::number);
      if (known != stalled.end() && known->part < s.part) continue;
      if (known != stalled.end()) stalled.erase(known);
    } else {
      s.part = 0;
    }
    for (PeerProgress& p : s.peers) {
      const auto found = in_use.find({op->id, p.peer, p.link - core_.first_rail_link});
      if (found == in_use.end()) continue;
      p.sends_on = found->second.sends << core_.first_rail_link;
      p.recvs_on = found->second.recvs << core_.first_rail_link;
    }
    stalled.push_back(std::move(s));
  }
  recorder_.stalled(stalled);
}

}  // namespace weft
