// What the commands and the tests need of a World and its communicators, and programs do not.
#pragma once

#include <cstddef>
#include <string_view>

#include "coll/api/communicator.h"
#include "transport/job/bootstrap.h"

namespace weft {

struct Internals {
  // The job, for gathers beside the collectives. It lives as long as the World.
  static Job& job(World& world) { return world.job(); }
  // Where a call of job() threw: the failure of the job, after a look at where the ranks are that
  // did not come (the hang verdict), which all ranks then hear of. ok: the call threw for another
  // reason.
  static Status gather_status(World& world, const Error& thrown) {
    return world.gather_status(thrown);
  }
  // How long an algorithm took for messages of `total_bytes` (of all blocks together), as `weft
  // tune` measured it: `auto` goes by this time from now on, and the profile keeps it
  // (coll/select/profile.h). Every rank passes the same, with no operation under way. Throws Error
  // when the collective has no such algorithm.
  static void learn(Communicator& comm, Collective collective, std::size_t total_bytes,
                    std::string_view algorithm, double us) {
    comm.learn(collective, total_bytes, algorithm, us);
  }
};

inline Job& job_of(World& world) { return Internals::job(world); }

}  // namespace weft
