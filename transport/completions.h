// What the transports between hosts (tcp, ucx, verbs) keep alike: completions until they are
// polled, and what is known of a peer.
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

// In the order in which they came.
class Completions {
 public:
  void add(std::uint64_t id, Code code) { all_.push_back({.id = id, .code = code}); }
  std::size_t size() const { return all_.size() - handed_; }
  bool empty() const { return all_.empty(); }
  // Fills `out` and returns how many.
  std::size_t hand_out(std::span<Completion> out) {
    if (empty()) return 0;
    const std::size_t n = std::min(out.size(), size());
    std::copy_n(begin(), n, out.begin());
    handed_ += n;
    forget_handed();
    return n;
  }
  // Those whose id has these upper 32 bits: see Transport::cancel().
  void forget(std::uint32_t id_high) {
    all_.erase(std::remove_if(begin(), all_.end(),
                              [=](const Completion& c) { return c.id >> 32 == id_high; }),
               all_.end());
    forget_handed();
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
  std::vector<Completion> all_;  // waiting: [handed_, size), at least one unless it is empty
  std::size_t handed_ = 0;
};

struct PeerRecord {
  Rank rank = kNoRank;
  std::string where;  // "rank 3 on host b"
  Status failure;     // why nothing works with this peer any more
  Status note;        // why one transfer failed while the others are fine
  Head disputed;      // what it sent where something else was expected

  const Status& cause() const { return failure.ok() ? note : failure; }
};

}  // namespace weft
