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
  // Drops completions whose id has these upper 32 bits: see Transport::cancel(). Calls
  // dropped(completion) for each.
  template <class Dropped>
  void forget(std::uint32_t id_high, Dropped dropped) {
    std::size_t kept = handed_;
    for (std::size_t i = handed_; i < end_; ++i)
      if (all_[i].id >> 32 == id_high)
        dropped(all_[i]);
      else
        all_[kept++] = all_[i];
    end_ = kept;
    forget_handed();
  }
  void forget(std::uint32_t id_high) {
    forget(id_high, [](const Completion&) {});
  }

 private:
  void forget_handed() {
    if (size() == 0) handed_ = end_ = 0;
  }
  std::vector<Completion> all_;
  std::size_t handed_ = 0, end_ = 0;  // [handed_, end_) wait for poll(); both are 0, or one waits
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
