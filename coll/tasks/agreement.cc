// Searches transports and boards for messages of calls that this rank does not run.
//
// A message matches a receive by communicator, number of the collective, round and ordinal, so most
// disagreements show as a receive that gets an unexpected head. If the ranks' plans have different
// shapes, a rank may send to a peer that posts no receive; in a stall, the peer searches for such
// messages.
#include "coll/tasks/agreement.h"

#include <algorithm>

#include "coll/engine/signature.h"

namespace weft {
namespace {

// A rank that only sends may be thousands of collectives ahead, so that the numbers in tags wrap
// around: such a message belongs to a later collective and shows no mismatch.
bool comes_later(const Head& mine, const Head& theirs) {
  constexpr std::uint64_t kLap = std::uint64_t{1} << kSequenceBits;
  const std::uint64_t apart = theirs.about[1] - mine.about[1];
  return apart != 0 && apart >> kSignatureSequenceBits == 0 && apart % kLap == 0;
}

// counts: this rank's counts in the vector collective with the head `mine`.
Status differ(const Core& core, const Head& mine, Rank peer, const Head& theirs,
              std::span<const std::size_t> counts = {}) {
  return {Code::kMismatch, disagreement(core.job->rank(), mine, peer, theirs, counts), peer};
}

std::span<const std::size_t> counts_of(const Run* run) {
  return run ? run->counts() : std::span<const std::size_t>();
}

// Finds an unexpected message of a peer with this tag's collective but another head.
Status unexpected(const GroupState& g, std::uint64_t tag, const Head& usual,
                  const Run* run = nullptr) WEFT_REQUIRES(core_held) {
  const Core& core = *g.core;
  for (const Rank peer : g.ranks) {
    if (peer == core.job->rank()) continue;
    Head theirs;
    if (core.links.to(peer).unexpected(peer, tag, kPlaceMask, theirs) == kNoRank) continue;
    const Head& mine = run ? run->head_for(peer, theirs) : usual;
    if (theirs.sign != mine.sign && !comes_later(mine, theirs))
      return differ(core, mine, peer, theirs, counts_of(run));
  }
  return {};
}

// Checks the messages that peers published on g's board in a round that this rank has not read.
// same: only messages with the same number as `mine` count.
Status unread(const GroupState& g, std::uint32_t round, const Head& mine, bool same,
              std::span<const std::size_t> counts = {}) {
  for (std::size_t i = 0; i < g.ranks.size() && g.board; ++i) {
    if (static_cast<Rank>(i) == g.me || !g.board->read(static_cast<int>(i), round)) continue;
    const Head theirs = g.board->head(static_cast<int>(i), round);
    if (theirs.sign != mine.sign && !(same && !same_place(theirs, mine)))
      return differ(*g.core, mine, g.ranks[i], theirs, counts);
  }
  return {};
}

}  // namespace

Status disputed_call(const GroupState& g, const Run& run) {
  const Core& core = *g.core;
  for (const Rank peer : g.ranks) {
    if (peer == core.job->rank()) continue;
    Head theirs;
    if (!core.links.to(peer).disputed(peer, theirs)) continue;
    const Head& mine = run.head_for(peer, theirs);
    if (theirs.sign != mine.sign) return differ(core, mine, peer, theirs, run.counts());
  }
  return {};
}

Status disputed_message(const Core& core, const Head& mine, Rank peer) {
  Head theirs;
  return core.links.to(peer).disputed(peer, theirs) ? differ(core, mine, peer, theirs) : Status();
}

Status unexpected_message(const Task& task, const Run* run) {
  const GroupState& g = *task.group;
  const Head& mine = run ? run->head() : task.call.head;
  Status found;
  const auto look = [&](const Status& s) {
    if (found.ok()) found = s;
    return found.ok();
  };
  // Other ranks may have run the user's whole call differently: on host memory, or uncompressed. A
  // captured call has no tag; a compressed one may have tag 0.
  const auto& whole = g.part_of;
  if (whole.record && (whole.tag || whole.prepared->of.codec != Codec::kNone) &&
      !(look(unread(*whole.group, whole.group->board_round + 1, whole.head, true)) &&
        look(unexpected(*whole.group, whole.tag, whole.head))))
    return found;
  if (run) {
    look(unread(g, g.board_round + 1, mine, true));
    for (const Past& past : g.past)
      if (past.head.sign && found.ok()) look(unread(g, g.board_round + 1, past.head, true));
  } else {
    look(unread(g, g.board_round, mine, false, task.call.counts));
  }
  if (found.ok()) look(unexpected(g, task.call.tag, mine, run));
  for (const Past& past : g.past)
    if (past.head.sign && found.ok()) look(unexpected(g, past.tag, past.head));
  return found;
}

Status diverging_on_board(const Task& task, int member) {
  const GroupState& g = *task.group;
  const Head theirs = g.board->head(member, g.board_round);
  // The peer may be behind: then compare with this rank's own call of the same number.
  const Past* past = std::ranges::find_if(
      g.past, [&](const Past& p) { return p.head.sign && same_place(p.head, theirs); });
  const Rank peer = g.ranks[static_cast<std::size_t>(member)];
  if (past != g.past.end()) return differ(*g.core, past->head, peer, theirs);
  return differ(*g.core, task.call.head, peer, theirs, task.call.counts);
}

Status unexpected_after(const Core& core, const Past& past, Transport& of) {
  Head theirs;
  const Rank peer = of.unexpected(kNoRank, past.tag, kPlaceMask, theirs);
  if (peer == kNoRank || comes_later(past.head, theirs)) return {};
  return differ(core, past.head, peer, theirs);
}

Status unexpected_at_end(const Core& core) {
  for (const auto& [id, g] : core.groups.all) {
    if (!g || g->broken) continue;
    for (const Past& past : g->past)
      for (Transport* link : core.links.all)
        if (past.head.sign)
          if (Status s = unexpected_after(core, past, *link); !s.ok()) return s;
  }
  return {};
}

}  // namespace weft
