// Shared-memory transport between the ranks of one machine.
//
// A message is a 64-byte cell in a ring in the receiver's arena. The cell has the tag, and either
// the data (up to 40 bytes) or its location: a slot of the sender's pool, weft::alloc memory (the
// receiver maps it: no copy at all), or the sender's own memory, which the receiver reads by
// cross-memory attach (process_vm_readv). The receiver acknowledges cells in any order; this frees
// the cell and its slot, and completes a send that was read in place.
#pragma once

#include <memory>
#include <span>

#include "topo/topology.h"
#include "transport/job/bootstrap.h"
#include "transport/transport.h"

namespace weft {

// Up to this number of members on a machine, members map each other's memory at setup, so that
// errors appear at the start. With more members, a peer's memory is mapped at the first message to
// or from the peer.
namespace shm {
inline constexpr std::size_t kMappedAtOnce = 64;
}

// Makes the transport; collective over the job. `members` are the world ranks of this machine
// (equal Place::machine), ascending, including this one; the same list on all members. Throws Error
// if memory cannot be mapped. WEFT_SHM_COPY=slots|cma fixes how ordinary memory is sent (default:
// by size).
std::unique_ptr<Transport> make_shm_transport(Job& job, const Topology& topology,
                                              std::span<const Rank> members,
                                              std::size_t at_once = shm::kMappedAtOnce);

}  // namespace weft
