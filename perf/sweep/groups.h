// The groups that a run is split into, each with a collective of its own at the same time: by the
// environment variables that nccl-tests splits by.
#pragma once

#include <string>
#include <vector>

#include "coll/schedule/algorithm.h"
#include "topo/topology.h"

namespace weft {

struct Groups {
  std::string from;         // "NCCL_TESTS_SPLIT=MOD 8"; empty: one group of all ranks
  std::vector<int> colors;  // of each rank of the job; equal ones are a group

  std::vector<int> names() const;  // the colors there are, that of rank 0 first
  std::vector<Rank> members(int color) const;
};

// NCCL_TESTS_SPLIT is AND, OR, MOD or DIV (or &, |, %, /) and a number (255, 0xff, 0b11), which is
// applied to each rank; NCCL_TESTS_SPLIT_MASK is the number of an AND, in hexadecimal digits.
// Throws Error naming the variable where it is something else.
Groups groups_from_environment(int ranks);
Groups groups_of(const std::string& variable, const std::string& value, int ranks);

// The shape of a group, whose ranks are numbered from 0, seen by rank `me` of it.
Shape shape_of(const Topology& topology, const std::vector<Rank>& members, Rank me, Rank root);

}  // namespace weft
