// Plays a job's own traffic with the ranks that there are, and times its calls.
#pragma once

#include <vector>

#include "coll/api/communicator.h"
#include "perf/validate/job_traffic.h"

namespace weft::fabric {

// Calls of a part and passes of a beat that fit in a time.
struct Rhythm {
  std::uint64_t times = 1;
  std::vector<std::uint64_t> calls;  // by part of the beat
};

// Shortens the beats of a step that would take `step_s` to about `budget_s`: fewer passes first,
// then fewer calls of a pass. Each part is called three times, or as often as the job does. Pure.
std::vector<Rhythm> shorten(const std::vector<TrafficBeat>& beats, double step_s, double budget_s);

// Plays `traffic` for about budget_s, folded as `played` says, and fills in what was played, what
// it took (the slowest rank's median) and what the measured links allow. `samples`, `fleet` and the
// budget count on rank 0. Messages longer than a second of the predicted time or 64 MiB are played
// in that size. Collective. Throws JobFailed.
void play(World& world, const JobTraffic& traffic, const FoldedJob& job,
          const std::vector<FleetHost>& fleet, const Samples& samples, double budget_s,
          JobPlayed& played);

}  // namespace weft::fabric
