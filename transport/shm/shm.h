// Transport between the ranks of one machine, in shared memory.
//
// A message is a 64-byte cell in a ring that the receiver owns. The cell has the tag, and either
// the data (up to 40 bytes) or the place of the data: a slot of the sender's pool, memory of
// weft::alloc (the receiver maps this: no copy at all), or the sender's own memory, which the
// receiver reads by cross-memory attach (process_vm_readv). The receiver marks finished cells in
// any order; a mark frees the cell and its slot, and completes a send that was read in place.
#pragma once

#include <memory>
#include <span>

#include "topo/topology.h"
#include "transport/job/bootstrap.h"
#include "transport/transport.h"

namespace weft {

// So many members of a machine map each other's memory at once, so that all hear at the start when
// one cannot; more of them map a peer's when the first message goes to or comes from the peer.
namespace shm {
inline constexpr std::size_t kMappedAtOnce = 64;
}

// Makes the transport; collective over the job. `members` are the world ranks of this machine
// (equal Place::machine), ascending, with this rank; all members pass the same list. Throws Error
// when memory cannot be mapped. WEFT_SHM_COPY=slots|cma fixes how malloc memory goes (default:
// by size).
std::unique_ptr<Transport> make_shm_transport(Job& job, const Topology& topology,
                                              std::span<const Rank> members,
                                              std::size_t at_once = shm::kMappedAtOnce);

}  // namespace weft
