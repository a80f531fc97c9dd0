// Functions of a World and its communicators for commands and tests, not for programs. Not
// installed.
#pragma once

#include <cstddef>
#include <string_view>

#include "coll/api/communicator.h"
#include "coll/select/cost.h"
#include "transport/job/bootstrap.h"

namespace weft {

struct Internals {
  // The World's job, for gathers on the control plane. The job lives as long as the World.
  static Job& job(World& world) { return world.job(); }
  // After a call of job() threw: returns the failure of the job, and reports it to all ranks. If
  // necessary, diagnoses the ranks that did not take part. ok: the call threw for another reason.
  static Status gather_status(World& world, const Error& thrown) {
    return world.gather_status(thrown);
  }
  // As World::from_environment(), but works on a broken fabric: it does not measure the costs of
  // links, and if the port of an RDMA rail is down, `auto` takes tcp.
  static std::unique_ptr<World> unmeasured(const WorldOptions& options) {
    return World::unmeasured(options);
  }
  // Measures the costs of links, for a World made by unmeasured(). Every rank calls it, with no
  // task under way. Throws StatusError.
  static void measure_costs(World& world) { world.measure_costs(); }
  // The costs of links, as measured by measure_costs() or by the constructor of the World; the same
  // on every rank.
  static CostModel costs(World& world);
  // The links and cores from which costs() are derived.
  static Machine machine(World& world);
  // Labels the communicator in the trace of WEFT_TRACE with the program's name for it ("tensor").
  static void name_communicator(Communicator& comm, std::string_view name);
  // Makes threads that wait in weft call `between`, without any lock, while nothing moves, for
  // programs with other work to progress. `between` must not use weft.
  static void while_waiting(World& world, void (*between)());
  // Replaces WorldOptions::timeout for the calls that follow.
  static void set_timeout(World& world, std::chrono::milliseconds timeout);
  // Starts the progress thread, as WorldOptions::progress_thread does. Throws Error.
  static void start_progress_thread(World& world);
  // Records that an algorithm took `us` microseconds for messages of `total_bytes` (all blocks
  // together), as measured by `weft tune`: `auto` uses the time from now on, and it is saved in the
  // profile (coll/select/profile.h). Every rank passes the same arguments, with no task under way.
  // Throws Error when the collective has no such algorithm.
  static void learn(Communicator& comm, Collective collective, std::size_t total_bytes,
                    std::string_view algorithm, double us) {
    comm.learn(collective, total_bytes, algorithm, us);
  }
};

inline Job& job_of(World& world) { return Internals::job(world); }

}  // namespace weft
