// Formats the sentences of a diagnosis about a rank, a call and a link.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "coll/observe/rank_snapshot.h"

namespace weft::words {

// Returns the rank's last call with the communicator and kind of `o`; for a message, the last
// message with `from` in the opposite direction. nullptr if none is found.
const OperationReport* last_alike(const RankSnapshot& on, const OperationReport& o, Rank from);

std::string link_name(const RankSnapshot& t, const PeerProgress& p);
// The names of the links whose bits are set in `on`; if no bit is set, the link between the two
// ranks.
std::vector<std::string> link_names(const RankSnapshot& t, const PeerProgress& p, std::uint32_t on);
// The signs of trouble in the counters of the ports at both ends of a link; empty if there are
// none.
std::string counted(const std::string& link, const RankSnapshot& a, const RankSnapshot& b);

std::string dead(const RankSnapshot& t);
// waiter: a rank that waits in `op`; theirs: the stopped rank's own part of the call, or nullptr.
std::string stopped(const RankSnapshot& t, const OperationReport& op, const OperationReport* theirs,
                    Rank waiter);
// "rank 5 never called all_reduce #124 (last: #123, 41 s ago; ...)". waiter: waits in `op`.
std::string not_called(const RankSnapshot& t, const OperationReport& op, Rank waiter);
// op: the rank's own part of the call.
std::string not_waiting(const RankSnapshot& t, const OperationReport& op);
// ", in device memory" or similar, for a call in which ranks passed different kinds of memory.
// device: at least one rank passed device memory.
std::string memory(const OperationReport& op, bool device);

}  // namespace weft::words
