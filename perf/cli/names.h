// Parses the names of collectives, types, operators and algorithms; errors list the valid names.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "coll/schedule/algorithm.h"
#include "coll/types.h"
#include "topo/topology.h"

namespace weft {

std::span<const Collective> all_collectives();
std::string collective_names();  // "all_reduce, all_gather, ..."
std::string dtype_names();
std::string redop_names();

// The next three functions parse names. They throw Error naming the text and listing the allowed
// words.
Collective collective_named(std::string_view text);
std::vector<DType> dtypes_named(std::string_view flag, std::string_view text);  // "all" too
std::vector<RedOp> redops_named(std::string_view flag, std::string_view text);

// Throws Error unless the algorithm is "auto" or an algorithm of this collective.
void check_algorithm(Collective collective, std::string_view algorithm);
// Throws Error unless the algorithm works for this shape.
void check_applies(Collective collective, std::string_view algorithm, const Shape& shape);

Shape shape_of(const Topology& topology, Rank rank, Rank root);
// Returns the shape of a job. Ranks are assigned to hosts in contiguous blocks of equal size (the
// first hosts may have one more rank).
Shape shape_of(int ranks, int hosts, Rank rank, Rank root);

}  // namespace weft
