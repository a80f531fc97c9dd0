// Which ranks of a machine can map each other's memory. The kernel decides: sandboxes, user
// namespaces and security modules refuse what the same machine and user would allow.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "topo/base/status.h"

namespace weft::shm {

// Returns where this process has memory to map, for the other ranks of its machine, or why it has
// none. One line.
std::string memory_offer();

// Tries the offers of the ranks `others`, all of this machine. Returns "" where all can be mapped,
// else a line that names the ranks that cannot, and why the first of them cannot.
std::string refusals(std::span<const Rank> others, std::span<const std::string> offers);

// Returns for each rank the lowest rank of its group: all of a group can map each other's memory.
// said[r] is refusals() of rank r; `machine` has equal texts for ranks of one machine. Throws Error
// on a malformed line.
std::vector<Rank> memory_groups(std::span<const std::string> machine,
                                std::span<const std::string> said);

// Returns the reason in a line of refusals(): "the memory of rank 3 (/proc/71/fd/5): Permission
// denied"; "" for "".
std::string reason_of(std::string_view refusals);

}  // namespace weft::shm
