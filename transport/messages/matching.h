// Matches the messages of one peer with its posted receives. A transport has one Matching per peer;
// `Kept` is the data that it stores of an unexpected message. Matching does not copy data.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "transport/messages/tag_table.h"
#include "transport/messages/unexpected_limit.h"
#include "transport/transport.h"

namespace weft {

// A posted receive.
struct Receive {
  Transfer transfer;
  std::size_t arrived = 0;  // bytes of the message received so far
  std::uint32_t crc = 0;    // Head::crc of the message
};

// Describes how a message differs from what the receive expects.
std::string disagreement(const Transfer& receive, std::size_t bytes);

// Returns whether a message of this size with this head (nullptr: without) matches the receive.
inline bool agrees(const Transfer& receive, std::size_t bytes, const Head* theirs) {
  const std::uint64_t expected = receive.head ? receive.head->sign : 0;
  return bytes == receive.bytes && expected == (theirs ? theirs->sign : 0);
}

template <class Kept>
class Matching {
 public:
  // An unexpected message. Its address is stable until it is dropped.
  struct Unexpected {
    std::uint64_t tag = 0;
    std::size_t bytes = 0;  // size of the message
    bool headed = false;
    Head head;
    bool wanted = false;  // `receive` was posted while the message was still arriving
    Receive receive;
    std::size_t memory = 0;  // counted against the limit
    Kept kept;

    const Head* head_or_null() const { return headed ? &head : nullptr; }
  };

  // ---- receives: hashed by tag

  void post(const Receive& receive) {
    if (free_ == kNone) {
      free_ = static_cast<std::uint32_t>(posted_.size());
      posted_.emplace_back();
    }
    const std::uint32_t at = free_;
    Posted& one = posted_[at];
    free_ = one.next;
    one = {receive, kNone, at, ++posts_};
    if (const std::uint32_t first = by_tag_.insert(receive.transfer.tag, at); first != kNone)
      posted_[std::exchange(posted_[first].last, at)].next = at;
  }
  // Returns the oldest receive of the tag, or nullptr. The pointer is valid until the next call
  // that adds or removes a receive.
  Receive* find(std::uint64_t tag) {
    const std::uint32_t first = by_tag_.find(tag);
    return first == kNone ? nullptr : &posted_[first];
  }
  // Removes the receive that find() returned, and returns it.
  Receive take(const Receive* found) {
    const Receive taken = *found;
    const std::uint64_t tag = taken.transfer.tag;
    const auto at = static_cast<std::uint32_t>(static_cast<const Posted*>(found) - posted_.data());
    Posted& one = posted_[at];
    if (one.next == kNone) {
      by_tag_.erase(tag);
    } else {
      posted_[one.next].last = one.last;
      by_tag_.set(tag, one.next);
    }
    one.number = 0;
    one.next = std::exchange(free_, at);
    return taken;
  }
  // Removes the receives for which which(transfer) is true.
  template <class Which>
  void cancel(Which which) {
    for (const Receive& one : take_all())
      if (!which(one.transfer)) post(one);
    for (auto& [tag, one] : unexpected_)
      if (one.wanted && which(one.receive.transfer)) one.wanted = false;
  }
  // Removes all receives, the oldest first, and calls end(id) for each.
  template <class End>
  void end_receives(End end) {
    for (const Receive& one : take_all()) end(one.transfer.id);
    for (auto& [tag, one] : unexpected_)
      if (std::exchange(one.wanted, false)) end(one.receive.transfer.id);
  }
  // Returns whether which(transfer) is true for any receive.
  template <class Which>
  bool any_receive(Which which) const {
    return std::ranges::any_of(posted_,
                               [&](const Posted& p) { return p.number && which(p.transfer); });
  }
  // Returns the receives, the oldest first.
  std::vector<Receive> receives() const {
    std::vector<Posted> all;
    for (const Posted& one : posted_)
      if (one.number != 0) all.push_back(one);
    std::ranges::sort(all, {}, &Posted::number);
    return {all.begin(), all.end()};
  }

  // ---- unexpected messages; messages of one tag are in the order of arrival

  bool has_unexpected() const { return !unexpected_.empty(); }
  // Also adds the unexpected messages to `all`, the sum over all peers of the transport.
  void count_in(std::size_t& all) { all_ = &all; }
  std::size_t unexpected() const { return unexpected_.size(); }
  // Returns whether an unexpected message of `memory` bytes may be stored, given this peer's
  // `limit` and the process's unexpected_total_limit().
  bool allows(std::size_t memory, std::size_t limit) const {
    static const std::size_t total = unexpected_total_limit();
    const std::size_t more = memory + sizeof(Unexpected);
    return memory <= limit && memory_.bytes() + sizeof(Unexpected) <= limit - memory &&
           UnexpectedMemory::of_process() + more <= total;
  }
  // Returns whether the unexpected messages use at least half of a limit.
  bool far_ahead(std::size_t limit) const { return has_unexpected() && takes_half(limit); }
  // Adds an unexpected message of `memory` stored bytes; the caller fills in `head` and `kept`,
  // which may hold the state of an earlier message.
  Unexpected& keep(std::uint64_t tag, std::size_t bytes, std::size_t memory) {
    auto at = unexpected_.end();
    if (spare_.empty()) {
      at = unexpected_.emplace(tag, Unexpected{});
    } else {
      spare_.back().key() = tag;
      at = unexpected_.insert(std::move(spare_.back()));
      spare_.pop_back();
    }
    Unexpected& one = at->second;
    one.tag = tag;
    one.bytes = bytes;
    one.headed = one.wanted = false;
    one.memory = sizeof(Unexpected) + memory;
    memory_.add(one.memory);
    if (all_) ++*all_;
    return one;
  }
  // Updates the memory of a message whose bytes have moved.
  void recount(Unexpected& one, std::size_t memory) {
    memory_.add(std::size_t{0} - one.memory);
    one.memory = sizeof(Unexpected) + memory;
    memory_.add(one.memory);
  }
  // Returns the oldest message of the tag that is not assigned to a receive.
  Unexpected* find_unexpected(std::uint64_t tag) {
    if (unexpected_.empty()) return nullptr;
    for (auto at = unexpected_.lower_bound(tag); at != unexpected_.end() && at->first == tag; ++at)
      if (!at->second.wanted) return &at->second;
    return nullptr;
  }
  void drop(Unexpected* one) {
    for (auto at = unexpected_.lower_bound(one->tag); at != unexpected_.end(); ++at)
      if (&at->second == one) return erase(at);
  }
  // Drops the messages for which which(message) is true.
  template <class Which>
  void drop_if(Which which) {
    for (auto at = unexpected_.begin(); at != unexpected_.end();)
      if (const auto now = at++; which(now->second)) erase(now);
  }
  template <class See>
  void for_each_unexpected(See see) {
    for (auto& [tag, one] : unexpected_) see(one);
  }
  // Searches for a message with a head: see Transport::unexpected().
  bool has_unexpected(std::uint64_t tag, std::uint64_t mask, Head& theirs) const {
    for (const auto& [of, one] : unexpected_) {
      if (one.wanted || !one.headed || one.head.sign == 0 || (of & mask) != (tag & mask)) continue;
      theirs = one.head;
      return true;
    }
    return false;
  }

 private:
  // Number and size of the nodes of dropped messages that are reused; larger nodes are freed.
  static constexpr std::size_t kMostSpare = 16, kMostSpareBytes = 4096;
  using Map = std::multimap<std::uint64_t, Unexpected>;
  static constexpr std::uint32_t kNone = TagTable::kNone;
  // A receive, or a free entry.
  struct Posted : Receive {
    std::uint32_t next = kNone;  // next receive of the same tag; or next free entry
    std::uint32_t last = 0;      // last receive of the same tag; valid in the first
    std::uint64_t number = 0;    // increases with every receive; 0: free entry
  };

  bool takes_half(std::size_t limit) const {
    static const std::size_t total = unexpected_total_limit();
    return memory_.bytes() >= limit / 2 || UnexpectedMemory::of_process() >= total / 2;
  }

  std::vector<Receive> take_all() {
    std::vector<Receive> all = receives();
    for (const Receive& one : all) by_tag_.erase(one.transfer.tag);
    posted_.clear();
    free_ = kNone;
    return all;
  }

  void erase(typename Map::iterator at) {
    memory_.add(std::size_t{0} - at->second.memory);
    if (all_) --*all_;
    if (spare_.size() < kMostSpare && at->second.memory <= sizeof(Unexpected) + kMostSpareBytes)
      spare_.push_back(unexpected_.extract(at));
    else
      unexpected_.erase(at);
  }

  std::vector<Posted> posted_;
  TagTable by_tag_;  // the oldest receive of each tag
  std::uint32_t free_ = kNone;
  std::uint64_t posts_ = 0;
  Map unexpected_;
  std::vector<typename Map::node_type> spare_;  // reused, to avoid allocations
  UnexpectedMemory memory_;                     // of `unexpected_`
  std::size_t* all_ = nullptr;                  // see count_in()
};

}  // namespace weft
