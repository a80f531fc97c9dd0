// Simulates only the ranks of one host if all hosts are alike, or only the first rank of each host
// if all rails are alike.
//
// A message from a simulated rank to a rank that is not simulated is replaced by a message that
// such a rank sends to a simulated rank in the same step. This file is independent of the
// algorithm.
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

// Pairs each message from a simulated rank to another rank with an equivalent message to a
// simulated rank.
class OneHost {
 public:
  struct Message {
    Rank from = kNoRank, to = kNoRank;
    std::uint32_t ordinal = 0;
  };
  // Whether all hosts have the same number of ranks, and ranks are numbered host by host.
  static bool applies(const Shape& shape);

  // `first`: the plans of the simulated ranks; not used after finish().
  OneHost(Alike alike, int per_host, std::vector<const Plan*> first)
      : alike_(alike), per_host_(per_host), first_(std::move(first)), as_(first_.size()) {}
  Alike alike() const { return alike_; }
  // The simulated rank that represents rank r, and its index among the simulated ranks.
  Rank as(Rank r) const { return alike_ == Alike::kHosts ? r % per_host_ : r - r % per_host_; }
  std::size_t place(Rank r) const {
    return static_cast<std::size_t>(alike_ == Alike::kHosts ? r % per_host_ : r / per_host_);
  }
  // The simulated ranks, and the ranks that they exchange messages with.
  std::vector<Rank> ranks() const;
  std::vector<Rank> peers() const;
  // Records the messages that another rank receives from simulated ranks. Returns false if its plan
  // differs from the plan of its representative in more than the choice among alike peers and the
  // chunks that are moved.
  bool add(const Plan& plan);
  // Ends the sequence of add() calls. Returns whether the messages from simulated to other ranks
  // map one-to-one to messages in the opposite direction.
  bool finish();
  // The links of the simulated ranks, and of the other ranks that these links use.
  std::vector<std::unique_ptr<Transport>> links(SimFabric& fabric) const;

 private:
  bool other(Rank r) const { return as(r) != r; }

  Alike alike_;
  int per_host_;
  std::vector<const Plan*> first_;
  std::vector<std::unordered_map<std::uint64_t, Message>> as_;  // by place; by peer and ordinal
};

}  // namespace weft
