// From what users type to collectives, types, operators and algorithms; errors that list what
// there is.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "coll/schedule/algorithm.h"
#include "coll/types.h"
#include "topo/topology.h"

namespace weft {

std::string collective_names();  // "all_reduce, all_gather, ..."
std::string dtype_names();
std::string redop_names();

// All throw Error naming the text and listing what is allowed.
Collective collective_named(std::string_view text);
std::vector<DType> dtypes_named(std::string_view flag, std::string_view text);  // "all" too
std::vector<RedOp> redops_named(std::string_view flag, std::string_view text);

// "auto" or an algorithm of this collective; and one that works for this shape.
void check_algorithm(Collective collective, std::string_view algorithm);
void check_applies(Collective collective, std::string_view algorithm, const Shape& shape);

// Of a job, and of ranks dealt to hosts in equal blocks (the first hosts have one more).
Shape shape_of(const Topology& topology, Rank rank, Rank root);
Shape shape_of(int ranks, int hosts, Rank rank, Rank root);

}  // namespace weft
