// Code shared by the transports: a queue of completions until the user polls them, and (except in
// shm) the record of a peer's failures.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "topo/base/status.h"
#include "transport/transport.h"

namespace weft {

// A FIFO queue of completions.
class Completions {
 public:
  void add(const Completion& one) {
    if (end_ == all_.size()) [[unlikely]]
      all_.resize(2 * end_ + 16);
    all_[end_++] = one;
  }
  void add(std::uint64_t id, Code code) { add({.id = id, .code = code}); }
  std::size_t size() const { return end_ - handed_; }
  bool empty() const { return end_ == 0; }
  // Moves the oldest completions to `out` and returns their number.
  std::size_t hand_out(std::span<Completion> out) {
    if (empty()) return 0;
    const std::size_t n = std::min(out.size(), size());
    for (std::size_t i = 0; i < n; ++i) out[i] = all_[handed_ + i];
    handed_ += n;
    forget_handed();
    return n;
  }
  // Drops the completions for which which(completion) is true.
  template <class Which>
  void forget_if(Which which) {
    std::size_t kept = handed_;
    for (std::size_t i = handed_; i < end_; ++i)
      if (!which(all_[i])) all_[kept++] = all_[i];
    end_ = kept;
    forget_handed();
  }
  // Drops completions whose id has these upper 32 bits: see Transport::cancel().
  void forget(std::uint32_t id_high) {
    forget_if([=](const Completion& c) { return c.id >> 32 == id_high; });
  }

 private:
  void forget_handed() {
    if (size() == 0) handed_ = end_ = 0;
  }
  std::vector<Completion> all_;
  // [handed_, end_) are pending; both are 0 if no completion is pending
  std::size_t handed_ = 0, end_ = 0;
};

Status no_such_rank(Rank rank, std::size_t ranks, const char* wire);

struct PeerRecord {
  Rank rank = kNoRank;
  std::string where;  // "rank 3 on host b"
  Status failure;     // the reason that every transfer with the peer fails
  Status note;        // why one transfer failed while other transfers with the peer work
  Head disputed;      // the head of the peer's message that did not match the receive

  const Status& cause() const { return failure.ok() ? note : failure; }
  // Records that a message does not match its receive.
  void disagree(const Transfer& receive, std::size_t bytes, const Head* theirs,
                const std::string& wire);
};

// ---- the records of all peers, by world rank

// Returns nullptr if the rank does not exist.
template <class Peer>
Peer* find_peer(std::vector<Peer>& peers, Rank rank) {
  return rank < 0 || static_cast<std::size_t>(rank) >= peers.size()
             ? nullptr
             : &peers[static_cast<std::size_t>(rank)];
}

// See Transport::cause() and Transport::disputed(). `wire` is the transport's name.
template <class Peer>
Status cause_of(const std::vector<Peer>& peers, Rank rank, const char* wire) {
  return rank < 0 || static_cast<std::size_t>(rank) >= peers.size()
             ? no_such_rank(rank, peers.size(), wire)
             : peers[static_cast<std::size_t>(rank)].cause();
}
template <class Peer>
bool disputed_with(const std::vector<Peer>& peers, Rank rank, Head& theirs) {
  if (rank < 0 || static_cast<std::size_t>(rank) >= peers.size()) return false;
  theirs = peers[static_cast<std::size_t>(rank)].disputed;
  return theirs.sign != 0;
}

// Implements Transport::unexpected() for transports whose peers have a Matching.
template <class Peer>
Rank unexpected_of(const std::vector<Peer>& peers, Rank peer, std::uint64_t tag, std::uint64_t mask,
                   Head& theirs) {
  for (const Peer& p : peers)
    if ((peer == kNoRank || p.rank == peer) && p.matching.has_unexpected(tag, mask, theirs))
      return p.rank;
  return kNoRank;
}

}  // namespace weft
