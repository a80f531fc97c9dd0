// Finds which ranks of a machine can map each other's memory. Sandboxes, user namespaces and
// security modules can forbid it between processes of one machine and user.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "topo/base/status.h"

namespace weft::shm {

// Returns one line: the path by which other ranks of the machine can map this process's memory, or
// the reason why there is none.
std::string memory_offer();

// Tries the offers of the ranks `others`, all on this machine. Returns "" if all can be mapped,
// otherwise a line with the ranks that cannot and the reason of the first.
std::string refusals(std::span<const Rank> others, std::span<const std::string> offers);

// Returns for each rank the lowest rank of its group. The ranks of a group can map each other's
// memory. said[r] is refusals() of rank r; machine[r] is equal for ranks of one machine. Throws
// Error on a malformed line.
std::vector<Rank> memory_groups(std::span<const std::string> machine,
                                std::span<const std::string> said);

// Returns the reason in a line of refusals(): "the memory of rank 3 (/proc/71/fd/5): Permission
// denied"; "" for "".
std::string reason_of(std::string_view refusals);

}  // namespace weft::shm
