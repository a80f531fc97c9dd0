// Reports on a run: its progress with each peer, for the flight recorder and for errors, and its
// traffic, for the counters.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "coll/engine/engine.h"
#include "coll/engine/signature.h"

namespace weft {

std::uint64_t Run::rounds_done() const { return next_round_ - lanes_busy_; }

// A block of 0 elements takes part in no round.
bool Run::moves_nothing(const Node& node) const {
  if (!call_->is_vector || !blocks()) return false;
  const auto empty = [&](const Piece& p) { return block_count(p.block) == 0; };
  return std::all_of(plan_->pieces.begin() + node.at.first, plan_->pieces.begin() + node.at.end(),
                     empty);
}

std::vector<Run::Progress> Run::survey() const {
  std::map<std::pair<Rank, int>, Progress> peers;
  const auto done_before = static_cast<std::uint32_t>(rounds_done());
  for (std::uint32_t node = 0; node < nodes_; ++node) {
    const Node& n = plan_->nodes[node];
    if (n.kind == Node::Kind::kReduce || moves_nothing(n)) continue;
    Progress& p = peers[{n.peer, n.link}];
    p.peer = n.peer;
    p.link = n.link;
    std::uint32_t posted = done_before, done = done_before;
    for (std::uint32_t lane = 0; lane < nlanes_; ++lane) {
      if (lanes_[lane].remaining == 0) continue;
      // A node that is not posted and waits for no other node has ended.
      const Point& at = point(lane, node);
      const bool under_way = at.posted == kPosted;
      const bool ended = !under_way && at.pending == 0;
      posted += under_way || ended;
      done += ended;
    }
    const bool send = n.kind == Node::Kind::kSend || n.kind == Node::Kind::kSendJoined;
    (send ? p.sends_posted : p.recvs_posted) += posted;
    (send ? p.sends_done : p.recvs_done) += done;
  }
  std::vector<Progress> all;
  for (const auto& [key, p] : peers)
    if (p.receives()) all.push_back(p);
  for (const auto& [key, p] : peers)
    if (!p.receives() && p.sends()) all.push_back(p);
  for (const auto& [key, p] : peers)
    if (!p.receives() && !p.sends()) all.push_back(p);
  return all;
}

void Run::count_traffic() {
  std::map<std::pair<Rank, int>, Traffic> all;
  for (std::size_t i = 0; i < nodes_; ++i) {
    const Node& n = plan_->nodes[i];
    if (n.kind == Node::Kind::kReduce || rounds_ == 0) continue;
    Traffic& t = all.try_emplace({n.peer, n.link}, Traffic{n.peer, n.link}).first->second;
    std::uint64_t whole = extents_[0][i].bytes, last = extents_[1][i].bytes;
    std::uint64_t before_last = rounds_ - 1;
    if (call_->is_vector && blocks()) {  // a node moves one chunk then
      const Piece& p = plan_->pieces[static_cast<std::size_t>(n.at.first)];
      const auto part = [&](std::size_t elements) {
        return (p.end(elements) - p.begin(elements)) * element_;
      };
      const std::size_t all = block_count(p.block);
      before_last = all / segment_;
      whole = part(segment_);
      last = part(all % segment_);
    }
    const std::uint64_t bytes = whole * before_last + last;
    const std::uint64_t messages =
        (whole || barrier_ ? before_last : 0) + (last || barrier_ ? 1 : 0);
    const bool send = n.kind == Node::Kind::kSend || n.kind == Node::Kind::kSendJoined;
    (send ? t.bytes_sent : t.bytes_received) += bytes;
    (send ? t.messages_sent : t.messages_received) += messages;
  }
  for (const auto& [key, t] : all) traffic_.push_back(t);
}

std::string Run::failed_step() const {
  const Node& n = plan_->nodes[failed_node_];
  return fmt::format("chunks [{},{}) of round {}, channel {}", n.at.first, n.at.end(),
                     failed_round_, n.ordinal >> kChannelShift);
}

Rank Run::waiting_for() const {
  Rank sending_to = kNoRank;
  for (std::uint32_t lane = 0; lane < nlanes_; ++lane) {
    if (lanes_[lane].remaining == 0) continue;
    for (std::uint32_t node = 0; node < nodes_; ++node) {
      if (point(lane, node).posted != kPosted) continue;
      const Node::Kind kind = plan_->nodes[node].kind;
      if (kind != Node::Kind::kSend && kind != Node::Kind::kSendJoined)
        return plan_->nodes[node].peer;
      sending_to = plan_->nodes[node].peer;
    }
  }
  return sending_to;
}

const Head& Run::head_for(Rank peer, const Head& theirs) const {
  const auto pair = std::ranges::find(pairs_, peer, &Pair::peer);
  if (pair == pairs_.end()) return call_->head;
  // Some transports return to a sender the head that its receiver expected.
  const bool to_them = by_pairs(theirs) && root_of(theirs) == peer;
  return to_them ? pair->to : pair->from;
}

}  // namespace weft
