// Simulates the ranks of one host for those of all hosts, or the first rank of each host for those
// of all rails, where hosts or rails do alike.
//
// What a rank sends to others than these comes back as what one of these gets from them: the
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

enum class Alike : bool { kHosts, kRails };

// Which messages the ranks that are simulated get for those that they send to others.
class OneHost {
 public:
  struct Message {
    Rank from = kNoRank, to = kNoRank;
    std::uint32_t ordinal = 0;
  };
  // Whether hosts are all equal, rank after rank.
  static bool applies(const Shape& shape);

  // `first`: the plans of the ranks that are simulated; not used after finish().
  OneHost(Alike alike, int per_host, std::vector<const Plan*> first)
      : alike_(alike), per_host_(per_host), first_(std::move(first)), as_(first_.size()) {}
  Alike alike() const { return alike_; }
  // The rank that stands for r, and the place of this one among those that are simulated.
  Rank as(Rank r) const { return alike_ == Alike::kHosts ? r % per_host_ : r - r % per_host_; }
  std::size_t place(Rank r) const {
    return static_cast<std::size_t>(alike_ == Alike::kHosts ? r % per_host_ : r / per_host_);
  }
  // The ranks that are simulated, and of others those that they send to.
  std::vector<Rank> ranks() const;
  std::vector<Rank> peers() const;
  // Takes the messages that another rank gets from those that are simulated. Returns false where
  // its plan is not that of the one that stands for it but for which of its peers are alike and
  // which chunks are moved.
  bool add(const Plan& plan);
  // Ends adding. Returns whether each message to another rank comes back as another one.
  bool finish();
  // The links of the ranks that are simulated, and others that these use.
  std::vector<std::unique_ptr<Transport>> links(SimFabric& fabric) const;

 private:
  bool other(Rank r) const { return as(r) != r; }

  Alike alike_;
  int per_host_;
  std::vector<const Plan*> first_;
  std::vector<std::unordered_map<std::uint64_t, Message>> as_;  // by place; by peer and ordinal
};

}  // namespace weft
