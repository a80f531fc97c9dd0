// Finds out that ranks disagree about the call that they run, and fails with the arguments of both.
//
// A message meets its receive by communicator, number of the collective, round and ordinal, so most
// disagreements end in a receive that gets another head than it expects. Where the ranks' plans
// have different shapes, a rank may send to a peer that posts no receive; when nothing moves, the
// peer searches for such messages.
#include <algorithm>
#include <array>
#include <chrono>
#include <thread>

#include "coll/engine/signature.h"
#include "coll/runtime/core.h"

namespace weft {
namespace {

// The bits of a tag that say which collective of which communicator.
constexpr std::uint64_t kPlaceMask = ~((std::uint64_t{1} << (kRoundBits + kOrdinalBits)) - 1);

// How long a message of the wrong size waits for the one that says why.
constexpr std::chrono::milliseconds kHeadTime{1000};

// A rank that only sends may be thousands of collectives ahead, where the numbers in tags have come
// round: what it sends there is of a later collective, and says nothing about this one.
bool comes_later(const Head& mine, const Head& theirs) {
  constexpr std::uint64_t kLap = std::uint64_t{1} << kSequenceBits;
  const std::uint64_t apart = theirs.about[1] - mine.about[1];
  return apart != 0 && apart >> kSignatureSequenceBits == 0 && apart % kLap == 0;
}

}  // namespace

namespace {

// Both sides of what a peer passed and this rank did, in the same task.
std::string both_sides(Rank me, const Run& run, Rank peer, const Head& theirs) {
  return disagreement(me, run.head_for(peer, theirs), peer, theirs, run.counts());
}

}  // namespace

bool Core::fail_disputed(const Head& mine, Rank peer, std::size_t link) {
  Head theirs;
  if (!links[link]->disputed(peer, theirs)) return false;
  fail({Code::kMismatch, disagreement(job->rank(), mine, peer, theirs), peer});
  return true;
}

// Rounds and messages may overtake each other, so one of another size can be here before the one
// that brings the peer's head.
bool Core::fail_mismatch(const Task* op) {
  const auto until = std::chrono::steady_clock::now() + kHeadTime;
  do {
    for (const Rank peer : op->group->ranks) {
      if (peer == job->rank()) continue;
      const int l = link_of(job->rank(), peer);
      Head theirs;
      if (!links[static_cast<std::size_t>(l)]->disputed(peer, theirs) ||
          theirs.sign == op->run.head_for(peer, theirs).sign)
        continue;
      fail({Code::kMismatch, both_sides(job->rank(), op->run, peer, theirs), peer});
      return true;
    }
    if (const Status status = disagreement_status(); !status.ok()) {
      fail(status);
      return true;
    }
    if (job->failed()) {
      fail(job->failure());
      return true;
    }
    std::array<Completion, 64> batch;
    for (const std::size_t l : polled) {
      const std::size_t n = links[l]->poll(batch);
      for (std::size_t i = 0; i < n; ++i) {
        const auto id = static_cast<std::uint32_t>(batch[i].id >> 32);
        Task* other = place_of(id);
        if (other && other->id == id && other->kind == Task::Kind::kPlan) other->complete(batch[i]);
      }
    }
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  } while (std::chrono::steady_clock::now() < until);
  return false;
}

void Core::fail_on_board(const GroupState& g, const Head& mine, int member) {
  const Rank peer = g.ranks[static_cast<std::size_t>(member)];
  const Head theirs = g.board->head(member, g.board_round);
  // The peer may be behind: what this rank passed there says more.
  const Past* past = std::find_if(g.past.begin(), g.past.end(), [&](const Past& p) {
    return p.head.sign && same_place(p.head, theirs);
  });
  const Head& ours = past == g.past.end() ? mine : past->head;
  fail({Code::kMismatch, disagreement(job->rank(), ours, peer, theirs), peer});
}

bool Core::fail_on_leftover(const GroupState& g) {
  // The last but one: what is left of it had the time of one collective to arrive.
  const Past& past = g.past[(g.next_past + g.past.size() - 2) % g.past.size()];
  if (past.head.sign == 0) return false;
  Head theirs;
  for (const std::size_t l : polled) {
    const Rank peer = links[l]->unclaimed(kNoRank, past.tag, kPlaceMask, theirs);
    if (peer == kNoRank || comes_later(past.head, theirs)) continue;
    fail({Code::kMismatch, disagreement(job->rank(), past.head, peer, theirs), peer});
    return true;
  }
  return false;
}

Status Core::leftover_status() {
  for (const auto& [id, g] : groups) {
    if (!g) continue;
    for (const Past& past : g->past)
      for (std::size_t l = 0; l < links.size() && past.head.sign; ++l) {
        Head theirs;
        const Rank peer = links[l]->unclaimed(kNoRank, past.tag, kPlaceMask, theirs);
        if (peer != kNoRank && !comes_later(past.head, theirs))
          return {Code::kMismatch, disagreement(job->rank(), past.head, peer, theirs), peer};
      }
  }
  return {};
}

Status Core::disagreement_status() {
  const Rank me = job->rank();
  Status found;
  const auto look = [&](const GroupState& g, std::uint64_t tag, const Head& usual, const Run* run) {
    mutex.assert_held();
    for (const Rank peer : g.ranks) {
      if (peer == me) continue;
      Head theirs;
      Transport* link = links[static_cast<std::size_t>(link_of(me, peer))];
      if (link->unclaimed(peer, tag, kPlaceMask, theirs) == kNoRank) continue;
      const Head& mine = run ? run->head_for(peer, theirs) : usual;
      if (theirs.sign == mine.sign || comes_later(mine, theirs)) continue;
      found = {Code::kMismatch,
               run ? both_sides(me, *run, peer, theirs) : disagreement(me, mine, peer, theirs),
               peer};
      return;
    }
  };
  // What other ranks sent in the user's task that this one is a part of: they passed host
  // memory.
  const auto look_at_whole = [&](const GroupState::PartOf& whole) {
    if (whole.record && whole.tag) look(*whole.group, whole.tag, whole.head, nullptr);
  };
  const auto look_at = [&](const Task& op, const Head& mine, const Run* run) {
    look(*op.group, op.call.tag, mine, run);
    for (const Past& past : op.group->past)
      if (past.head.sign && found.ok()) look(*op.group, past.tag, past.head, nullptr);
  };
  // On the board of g, what others published and this rank did not yet look at.
  const auto look_at_board = [&](const GroupState& g, std::uint32_t round, const Head& mine,
                                 bool same) {
    for (std::size_t i = 0; i < g.ranks.size() && g.board; ++i) {
      if (g.ranks[i] == me || !g.board->read(static_cast<int>(i), round)) continue;
      const Head theirs = g.board->head(static_cast<int>(i), round);
      if (theirs.sign == mine.sign || (same && !same_place(theirs, mine))) continue;
      found = {Code::kMismatch, disagreement(me, mine, g.ranks[i], theirs), g.ranks[i]};
      return;
    }
  };
  for (const Task* op : active) {
    if (op->kind != Task::Kind::kPlan || !found.ok()) continue;
    if (const auto& whole = op->group->part_of; whole.record && whole.tag) {
      look_at_board(*whole.group, whole.group->board_round + 1, whole.head, true);
      if (found.ok()) look_at_whole(whole);
      if (!found.ok()) break;
    }
    look_at_board(*op->group, op->group->board_round + 1, op->run.head(), true);
    for (const Past& past : op->group->past)
      if (past.head.sign && found.ok())
        look_at_board(*op->group, op->group->board_round + 1, past.head, true);
  }
  for (const Task* op : active)
    if (op->kind == Task::Kind::kPlan && found.ok()) look_at(*op, op->run.head(), &op->run);
  for (const GroupState* g : boards_busy)
    if (!g->board_queue.empty() && found.ok())
      look_at_board(*g, g->board_round, g->board_queue.front()->call.head, false);
  for (const GroupState* g : boards_busy)
    if (!g->board_queue.empty() && found.ok())
      look_at(*g->board_queue.front(), g->board_queue.front()->call.head, nullptr);
  return found;
}

}  // namespace weft
