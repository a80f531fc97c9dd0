// Simulates the ranks of one host for those of all hosts, where all hosts do alike.
//
// What a rank sends to other hosts comes back as what a rank of its host gets from them: the
// message that a rank like it sends with the same step. Knows no algorithm.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "coll/engine/plan.h"
#include "coll/schedule/algorithm.h"
#include "transport/sim/sim.h"

namespace weft {

// Which messages the ranks of the first host get for those that they send to other hosts.
class OneHost {
 public:
  struct Message {
    Rank from = kNoRank, to = kNoRank;
    std::uint32_t ordinal = 0;
  };
  // By rank: the rank of the first host that stands for it. Empty where hosts are not all equal,
  // rank after rank.
  static std::vector<Rank> same_as(const Shape& shape);

  // The plans of the first host, by rank; not used after finish().
  explicit OneHost(std::vector<const Plan*> first) : first_(std::move(first)), as_(first_.size()) {}
  // The ranks of other hosts that the first host's send to.
  std::vector<Rank> peers() const;
  // Takes the messages that a rank of another host gets from the first. Returns false where its
  // plan is not that of the first host's rank but for its peers' hosts and which chunks are moved.
  bool add(const Plan& plan);
  // Ends adding. Returns whether each message to another host comes back as another one.
  bool finish();
  // The links of the first host's ranks, and others that these use.
  std::vector<std::unique_ptr<Transport>> links(SimFabric& fabric) const;

 private:
  int per_host() const { return static_cast<int>(as_.size()); }

  std::vector<const Plan*> first_;
  std::vector<std::unordered_map<std::uint64_t, Message>> as_;  // by rank; by peer and ordinal
};

}  // namespace weft
