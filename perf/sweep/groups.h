// The groups of a split run, which run the collective concurrently, from the environment variables
// of nccl-tests.
#pragma once

#include <string>
#include <vector>

#include "coll/schedule/algorithm.h"
#include "topo/topology.h"

namespace weft {

struct Groups {
  std::string from;         // "NCCL_TESTS_SPLIT=MOD 8"; empty: one group of all ranks
  std::vector<int> colors;  // color of each rank of the job; ranks of equal color form a group

  std::vector<int> names() const;  // the distinct colors, first the color of rank 0
  std::vector<Rank> members(int color) const;
};

// NCCL_TESTS_SPLIT is AND, OR, MOD or DIV (or &, |, %, /) and a number (255, 0xff, 0b11): applied
// to a rank, they give its color. NCCL_TESTS_SPLIT_MASK is the operand of AND, in hexadecimal.
// Throws Error naming the variable on any other value.
Groups groups_from_environment(int ranks);
Groups groups_of(const std::string& variable, const std::string& value, int ranks);

// Returns the shape of a group from the view of its rank `me`; ranks of a group are numbered from
// 0.
Shape shape_of(const Topology& topology, const std::vector<Rank>& members, Rank me, Rank root);

}  // namespace weft
