// Transport between the ranks of one machine, in shared memory.
//
// A message is a 64-byte cell in a ring that the receiver owns: its flag and tag, and either the
// bytes themselves (up to 40) or where they are: in a slot of the sender's pool, in memory of
// weft::alloc (mapped by the receiver, no copy at all), or in the sender's own memory, to be read
// by cross-memory attach (process_vm_readv). The receiver marks the cells it is done with, in any
// order; that frees cells and slots, and completes sends whose bytes were read in place.
#pragma once

#include <memory>
#include <span>

#include "topo/topology.h"
#include "transport/job/bootstrap.h"
#include "transport/transport.h"

namespace weft {

// Collective over the job. `members` are the world ranks, ascending, this one included, that run
// on this machine (equal Place::machine) and pass the same list. Throws Error when their memory
// cannot be mapped. WEFT_SHM_COPY=slots|cma fixes how malloc memory travels (default: by size).
std::unique_ptr<Transport> make_shm_transport(Job& job, const Topology& topology,
                                              std::span<const Rank> members);

}  // namespace weft
