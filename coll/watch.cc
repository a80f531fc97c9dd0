#include "coll/watch.h"

#include <fmt/format.h>

#include "coll/core.h"

namespace weft {
namespace {

// Who waits for less is not worth a look: a slow slice, a descheduled peer.
constexpr std::chrono::milliseconds kStall{5};

std::vector<std::string> link_names(const Core& core) {
  std::vector<std::string> names;
  for (int l = 0; l < static_cast<int>(core.links.size()); ++l) {
    if (l == core.shm_link) {
      names.emplace_back("shm");
      continue;
    }
    const auto rail = static_cast<std::size_t>(l - core.first_rail_link);
    const auto& rails = core.topology->place(core.job->rank()).rails;
    names.push_back(rail < rails.size() ? fmt::format("rail {} ({})", rail, rails[rail].name)
                                        : fmt::format("rail {}", rail));
  }
  return names;
}

book::Record record_of(const GroupState& g) {
  book::Record o{};
  o.comm = g.id;
  o.leader = g.ranks.front();
  o.members = static_cast<std::int32_t>(g.ranks.size());
  o.state = static_cast<std::uint8_t>(OpState::kStarted);
  return o;
}

}  // namespace

Watch::Watch(Core& core) : core_(core), recorder_(*core.job, *core.topology, link_names(core)) {}

std::uint64_t Watch::begin(const GroupState& g, Collective c, const Call& call, Rank root,
                           std::uint64_t sequence) noexcept {
  book::Record o = record_of(g);
  o.sequence = sequence;
  o.count = call.count;
  o.collective = static_cast<std::uint8_t>(c);
  o.type = static_cast<std::uint8_t>(call.type);
  o.op = static_cast<std::uint8_t>(call.op);
  o.root = root;
  return recorder_.begin(o);
}

std::uint64_t Watch::begin_message(const GroupState& g, bool send, std::size_t bytes, Rank peer,
                                   std::uint64_t sequence) noexcept {
  book::Record o = record_of(g);
  o.sequence = sequence;
  o.count = bytes;
  o.collective = static_cast<std::uint8_t>(Collective::kSendRecv);
  o.state |= book::kMessage;
  if (send) o.state |= book::kSends;
  o.root = g.ranks[static_cast<std::size_t>(peer)];
  return recorder_.begin(o);
}

void Watch::end(const Operation& op) noexcept {
  recorder_.end(op.record, op.status.ok() ? OpState::kDone : OpState::kFailed);
}

void Watch::waiting(std::chrono::nanoseconds idle) noexcept {
  if (idle < kStall || recorder_.is_stalled()) return;
  survey();
}

void Watch::survey() {
  std::vector<Recorder::Stalled> stalled;
  for (const Operation* op : core_.active) {
    Recorder::Stalled s;
    s.number = op->record;
    if (op->kind == Operation::Kind::kPlan) {
      s.rounds = op->run.rounds();
      s.rounds_done = op->run.rounds_done();
      s.peers = op->run.survey();
    } else {
      PeerProgress p;
      p.peer = op->group->ranks[static_cast<std::size_t>(op->root)];
      p.link = core_.link_of(core_.job->rank(), p.peer);
      (op->sends ? p.sends_posted : p.recvs_posted) = 1;
      s.peers.push_back(p);
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
