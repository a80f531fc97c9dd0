// What the wires share: a queue of completions until the user polls them, and (not in shared
// memory) the record of a peer's failures.
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

// A queue of completions, first in, first out.
class Completions {
 public:
  void add(const Completion& one) { all_.push_back(one); }
  void add(std::uint64_t id, Code code) { add({.id = id, .code = code}); }
  std::size_t size() const { return all_.size() - handed_; }
  bool empty() const { return all_.empty(); }
  // Moves the oldest completions to `out` and returns their number.
  std::size_t hand_out(std::span<Completion> out) {
    if (empty()) return 0;
    const std::size_t n = std::min(out.size(), size());
    std::copy_n(begin(), n, out.begin());
    handed_ += n;
    forget_handed();
    return n;
  }
  // Drops completions whose id has these upper 32 bits: see Transport::cancel(). Calls
  // dropped(completion) for each.
  template <class Dropped>
  void forget(std::uint32_t id_high, Dropped dropped) {
    all_.erase(std::remove_if(begin(), all_.end(),
                              [&](const Completion& c) {
                                if (c.id >> 32 != id_high) return false;
                                dropped(c);
                                return true;
                              }),
               all_.end());
    forget_handed();
  }
  void forget(std::uint32_t id_high) {
    forget(id_high, [](const Completion&) {});
  }

 private:
  void forget_handed() {
    if (size() != 0) return;
    all_.clear();
    handed_ = 0;
  }
  std::vector<Completion>::iterator begin() {
    return all_.begin() + static_cast<std::ptrdiff_t>(handed_);
  }
  std::vector<Completion> all_;  // [handed_, size) wait for poll(); either empty or one waits
  std::size_t handed_ = 0;
};

struct PeerRecord {
  Rank rank = kNoRank;
  std::string where;  // "rank 3 on host b"
  Status failure;     // why every transfer with the peer fails
  Status note;        // why one transfer failed while others still work
  Head disputed;      // the head of the peer's message that did not match the receive

  const Status& cause() const { return failure.ok() ? note : failure; }
  // Takes down that a message is not the one that the receive means.
  void disagree(const Transfer& receive, std::size_t bytes, const Head* theirs,
                const std::string& wire);
};

}  // namespace weft
