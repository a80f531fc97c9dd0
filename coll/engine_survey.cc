// How far a run is with each peer: for the flight recorder, when it waits.
#include <map>
#include <utility>

#include "coll/engine.h"

namespace weft {

std::uint64_t Run::rounds_done() const { return next_round_ - lanes_busy_; }

std::vector<PeerProgress> Run::survey() const {
  std::map<std::pair<Rank, int>, PeerProgress> peers;
  const auto done_before = static_cast<std::uint32_t>(rounds_done());
  for (std::uint32_t node = 0; node < nodes_; ++node) {
    const Node& n = plan_->nodes[node];
    if (n.kind == Node::Kind::kReduce) continue;
    PeerProgress& p = peers[{n.peer, n.link}];
    p.peer = n.peer;
    p.link = n.link;
    std::uint32_t posted = done_before, done = done_before;
    for (std::uint32_t lane = 0; lane < nlanes_; ++lane) {
      if (lanes_[lane].remaining == 0) continue;
      // Nothing it waits for, and not under way: it has ended.
      const bool under_way = posted_[index(lane, node)];
      const bool ended = !under_way && pending_[index(lane, node)] == 0;
      posted += under_way || ended;
      done += ended;
    }
    const bool send = n.kind == Node::Kind::kSend || n.kind == Node::Kind::kSendJoined;
    (send ? p.sends_posted : p.recvs_posted) += posted;
    (send ? p.sends_done : p.recvs_done) += done;
  }
  std::vector<PeerProgress> all;
  for (const auto& [key, p] : peers)
    if (p.receives()) all.push_back(p);
  for (const auto& [key, p] : peers)
    if (!p.receives() && p.sends()) all.push_back(p);
  for (const auto& [key, p] : peers)
    if (!p.receives() && !p.sends()) all.push_back(p);
  return all;
}

}  // namespace weft
