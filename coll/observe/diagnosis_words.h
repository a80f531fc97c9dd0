// What a diagnosis says of a rank, of a call and of a link, in words.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "coll/observe/rank_snapshot.h"

namespace weft::words {

// The last call of that communicator and kind; of a message, one with `from` the other way. nullptr
// when there is none.
const OperationReport* last_alike(const RankSnapshot& on, const OperationReport& o, Rank from);

std::string link_name(const RankSnapshot& t, const PeerProgress& p);
// The links of these bits; of none, that of the pair.
std::vector<std::string> link_names(const RankSnapshot& t, const PeerProgress& p, std::uint32_t on);
// What the ports at both ends of a link say about it; empty where they say nothing.
std::string counted(const std::string& link, const RankSnapshot& a, const RankSnapshot& b);

// "rank 5 never called all_reduce #124 (last: #123, 41 s ago; ...)" and the like. waiter: the rank
// that waits for it in `op`; theirs: the rank's own part of that call, or nullptr.
std::string dead(const RankSnapshot& t);
std::string stopped(const RankSnapshot& t, const OperationReport& op, const OperationReport* theirs,
                    Rank waiter);
std::string not_called(const RankSnapshot& t, const OperationReport& op, Rank waiter);
// op: the rank's own
std::string not_waiting(const RankSnapshot& t, const OperationReport& op);
// ", in device memory" and the like, of a call that other ranks made with another kind. device:
// some of them in device memory.
std::string memory(const OperationReport& op, bool device);

}  // namespace weft::words
