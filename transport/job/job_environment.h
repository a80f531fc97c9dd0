// The parts of job_from_environment(): one function per launcher.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "topo/base/environment.h"
#include "transport/job/bootstrap.h"

namespace weft {

// RANK and WORLD_SIZE are set.
bool torchrun_present();
// torchrun's agent usually owns MASTER_PORT itself, so rank 0 takes the first free one of
// torchrun_ports(). The secret is WEFT_SECRET, or else derived from what torchrun gives every
// rank (run id, address, port): that keeps accidents out, but not a person who can guess these.
void read_torchrun(JobSpec& spec);
// Different ports between 10000 and 32767 (below those that the kernel hands out), the same on
// every rank of the job.
std::vector<std::uint16_t> torchrun_ports(std::uint16_t master_port, std::string_view run_id);

// PMIX_NAMESPACE and PMIX_RANK are set.
bool pmix_present();
#if WEFT_HAVE_PMIX
// Rank and size from PMIx; rank 0's addresses, port and a random secret go through it. PMIx is
// initialised once and finalised when the process exits. Throws Error.
void read_pmix(JobSpec& spec);
#endif

}  // namespace weft
