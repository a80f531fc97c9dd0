// The parts of job_from_environment(): one function per launcher.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "topo/base/environment.h"
#include "transport/job/bootstrap.h"

namespace weft {

// Returns whether RANK and WORLD_SIZE are set.
bool torchrun_present();
// Fills the spec from torchrun's variables. Since torchrun's agent usually owns MASTER_PORT, rank 0
// listens on the first free port of torchrun_ports(). The secret is WEFT_SECRET or, if unset, a
// hash of run id, address and port: the hash excludes other jobs, but not an attacker who can guess
// these values.
void read_torchrun(JobSpec& spec);
// Returns distinct ports between 10000 and 32767 (below the kernel's ephemeral ports), the same on
// every rank of the job.
std::vector<std::uint16_t> torchrun_ports(std::uint16_t master_port, std::string_view run_id);

// Returns whether PMIX_NAMESPACE and PMIX_RANK are set.
bool pmix_present();
#if WEFT_HAVE_PMIX
// Fills the spec from PMIx, through which rank 0 also publishes its addresses, port and random
// secret to the other ranks. PMIx is initialized once and finalized when the process exits. Throws
// Error.
void read_pmix(JobSpec& spec);
#endif

}  // namespace weft
