// The registry. To add an algorithm, write a file like ring.cc and add a line to families().
#include "coll/schedule/algorithm.h"

#include "coll/schedule/building_blocks.h"

namespace weft {
namespace {

std::vector<Algorithm> families() {
  std::vector<Algorithm> all;
  for (auto family :
       {direct_algorithms(), ring_algorithms(), recursive_doubling_algorithms(),
        halving_doubling_algorithms(), rail_algorithms(), reduce_algorithms(), rooted_algorithms(),
        gather_scatter_algorithms(), all_to_all_algorithms(), tree_algorithms()})
    all.insert(all.end(), family.begin(), family.end());
  return all;
}

}  // namespace

std::span<const Algorithm> algorithms() {
  static const auto* const all = new std::vector<Algorithm>(families());  // outlives every static
  return *all;                                                            // destructor
}

const Algorithm* find_algorithm(Collective collective, std::string_view name) {
  for (const Algorithm& a : algorithms())
    if (a.collective == collective && a.name == name) return &a;
  return nullptr;
}

std::string algorithm_names(Collective collective) {
  std::string names;
  for (const Algorithm& a : algorithms())
    if (a.collective == collective) names.append(names.empty() ? "" : ", ").append(a.name);
  return names;
}

}  // namespace weft
