// The rails that every host has a rank on, and what the ranks of a host do with a message whose
// part l goes along rail l. Knows no algorithm.
#pragma once

#include <set>
#include <vector>

#include "coll/schedule/building_blocks.h"

namespace weft {

// The rails that every host has a rank on, and the rank of each host that stands for each.
class CommonRails {
 public:
  CommonRails(const Shape& shape, const Layout& layout);
  int count() const { return static_cast<int>(rails_.size()); }
  const std::vector<Rank>& rail(int i) const { return rails_[i]; }
  // The ranks of this host: those that stand for rails, then the others.
  std::vector<Rank> host() const;

 private:
  std::vector<std::vector<Rank>> rails_;  // [rail][host]
  std::vector<Rank> here_, others_;
  std::set<Rank> taken_;
};

// Part l of the message goes along rail l of `rails`, cut into `pieces` chunks.
Schedule parts_by_rail(const Shape& shape, int rails, int pieces);

// As direct_reduce_scatter() and direct_all_gather(), where only the first `owners` have parts.
void reduce_to_owners(Schedule& s, Group g, int owners);
void gather_from_owners(Schedule& s, Group g, int owners);

}  // namespace weft
