// Turns the constants of tuning.h into slices.
// Does not know the job's transports.
#include "coll/select/tuning.h"

#include <algorithm>

namespace weft {

Slicing slicing_for(const Tuning& t, const Plan& plan, std::size_t total_bytes) {
  auto chunks = static_cast<std::size_t>(plan.nchunks);
  if (plan.collective == Collective::kAllToAll)  // the bytes are those of one rank's blocks
    chunks /= static_cast<std::size_t>(plan.schedule.nranks);
  const std::size_t chunk = total_bytes / std::max<std::size_t>(1, chunks);
  const bool rail = plan.network;
  const auto rounds =
      static_cast<std::size_t>(rail ? t.rail_rounds_per_message : t.host_rounds_per_message);
  Slicing s;
  s.slice_bytes = std::clamp(chunk / rounds, rail ? t.rail_slice_min : t.host_slice_min,
                             rail ? t.rail_slice_max : t.host_slice_max);
  s.rounds_in_flight = 4;
  return s;
}

}  // namespace weft
