// Converts the constants of tuning.h and the cost model into slices and rounds in flight,
// independent of the job's transports.
#include "coll/select/tuning.h"

#include <algorithm>
#include <cmath>

namespace weft {
namespace {

// Shorter slices must be faster by at least this factor, since they need more messages.
constexpr double kAsFast = 1.005;
// Packed rounds must be faster by at least this factor, since they need more scratch.
constexpr double kPackedGain = 1.05;
// If chunks take several paths at once (Outline::crossing), messages wait for each other, and a
// round in flight takes longer than a single round. This matters if scratch limits the rounds in
// flight. Constant and exponent are fitted to simulated reductions of 1 GiB on 32 hosts of 4 and 8
// ranks with slices of 64 to 192 KiB (within 5 %).
constexpr double kCrossing = 1.57, kCrossingPower = 6;

double most_scratch(const Outline& o) {
  return static_cast<double>(o.copied_chunks > 0 ? kPackedScratchMax : kScratchMax);
}

// The prediction for a message in equal rounds, each with up to `slice` bytes of each chunk.
Rounds rounds_of(const Outline& o, double chunk_bytes, double slice, const CostModel& m,
                 int least_lanes) {
  Rounds r;
  r.rounds = std::max(1.0, std::ceil(chunk_bytes / slice));
  const double even = chunk_bytes / r.rounds;
  r.copied_first = even * o.copied_first;
  r.copied_last = even * o.copied_chunks - r.copied_first;
  const double rails = m.rails_per_host > 0 ? m.rails_per_host : o.per_host;
  const double sharing = std::max(1.0, o.per_host / rails);
  const double rail_us = o.rail_chunks * even * m.rail.us_per_byte * sharing;
  const double host_us = o.host_chunks * even * m.host.us_per_byte;
  const double memory_us = o.host_chunks * even * m.memory_us_per_byte * o.per_host;
  const double work_us = o.rail_messages * (m.step_us + m.rail.step_us) +
                         o.host_messages * (m.step_us + m.host.step_us);
  const double copy_us_per_byte = m.host_ports ? m.host_copy_us_per_byte : m.host.us_per_byte;
  const double copy_us = (r.copied_first + r.copied_last) * copy_us_per_byte;
  const double core_us = copy_us + work_us +
                         (m.host_ports ? even * (o.reduced_chunks * m.reduce_us_per_byte +
                                                 o.rail_chunks * m.rail_copy_us_per_byte)
                                       : host_us);
  const double latency_us = o.rail_hops * m.rail.alpha_us + o.host_hops * m.host.alpha_us;
  const double bytes_us = std::max({rail_us, host_us, memory_us});
  // If work, rails and host run concurrently, the shorter ones add only one hop's part to the
  // longest. With o.direct, contributions cross the rails before hosts reduce them, and results
  // cross afterwards.
  const double longest_us = std::max({work_us, rail_us, host_us});
  const double others_us = work_us + rail_us + host_us - longest_us;
  r.first_us = latency_us + copy_us + (o.direct ? rail_us : 0) + longest_us +
               others_us / (o.together ? 1 + o.rail_hops : 1);
  r.stage_us = std::max(bytes_us, core_us);
  // These are more lanes than necessary if no message is ever late.
  double lanes = std::ceil((o.crossing ? 2 : 4) * r.first_us / std::max(r.stage_us, 1e-6));
  lanes = std::clamp<double>(lanes, least_lanes, kMaxLanes);
  const auto lanes_in = [&](int chunks) {
    const double room = std::floor(most_scratch(o) / std::max(1e-6, chunks * even));
    return std::max(1.0, std::min({lanes, room, r.rounds}));
  };
  // A rank that needs more scratch than another rank has fewer rounds in flight (layout.cc).
  r.slicing = {static_cast<std::size_t>(slice), static_cast<int>(lanes_in(o.least_scratch))};
  lanes = lanes_in(o.scratch_chunks);
  if (o.crossing) {
    double pace = std::max(r.stage_us, r.first_us / lanes);
    if (o.scratch_chunks > 0)
      pace = std::pow(std::pow(r.stage_us, kCrossingPower) +
                          std::pow(kCrossing * r.first_us / lanes, kCrossingPower),
                      1 / kCrossingPower);
    // When the round's last piece is sent, it still has as many hops to go as the round has pieces.
    r.time_us = r.first_us + (r.rounds - 1) * pace + rail_us;
  } else {
    // Ports and cores delay each other if both are busy, and so do rounds if few are in flight.
    const double busy_us = std::pow(std::pow(bytes_us, 8) + std::pow(core_us, 8), 1.0 / 8);
    const double held_us = (o.together || o.copied_chunks > 0 ? 1 : 2) * r.first_us / lanes;
    r.flowing_us = latency_us + r.rounds * busy_us;
    r.time_us = r.first_us + (lanes - 1) * busy_us +
                (r.rounds - lanes) * std::cbrt(std::pow(busy_us, 3) + std::pow(held_us, 3));
  }
  return r;
}

// The fastest division into rounds according to the model.
Rounds fastest_rounds(const Tuning& t, const Outline& o, double chunk_bytes,
                      const CostModel& model) {
  // A chunk that is not longer than the shortest slice takes one round with every slice.
  if (chunk_bytes <= static_cast<double>(t.model_slice_min))
    return rounds_of(o, chunk_bytes, static_cast<double>(t.model_slice_max), model,
                     t.rounds_in_flight);
  Rounds best;
  const auto shorter = [&](std::size_t slice) {
    if (o.copied_chunks == 0 && (!o.crossing || o.scratch_chunks == 0)) return slice / 2;
    return (slice & (slice - 1)) == 0 ? slice / 4 * 3 : slice / 3 * 2;
  };
  for (std::size_t slice = t.model_slice_max; slice >= t.model_slice_min; slice = shorter(slice)) {
    const Rounds r =
        rounds_of(o, chunk_bytes, static_cast<double>(slice), model, t.rounds_in_flight);
    const bool fits =
        o.scratch_chunks * std::min(static_cast<double>(slice), chunk_bytes) <= most_scratch(o);
    if (best.time_us != 0 && r.time_us * kAsFast >= best.time_us) continue;
    if (fits || shorter(slice) < t.model_slice_min) best = r;
  }
  return best;
}

// Ranks that forward chunks store different numbers of them in scratch. The total number of chunks,
// which is the same on all ranks, limits the slice.
std::size_t shrunk(const Tuning& t, Collective c, std::size_t slice, std::size_t chunks) {
  if (c == Collective::kAllReduce || c == Collective::kAllGather || c == Collective::kBroadcast)
    return slice;
  while (slice > 1024 && chunks * slice * 2 > t.passed_on_bytes) slice /= 2;
  return slice;
}

Slicing even_slices(const Tuning& t, Collective c, std::size_t chunk, std::size_t chunks,
                    bool rail) {
  const auto rounds =
      static_cast<std::size_t>(rail ? t.rail_rounds_per_message : t.host_rounds_per_message);
  const std::size_t slice = std::clamp(chunk / rounds, rail ? t.rail_slice_min : t.host_slice_min,
                                       rail ? t.rail_slice_max : t.host_slice_max);
  return {shrunk(t, c, slice, chunks), t.rounds_in_flight};
}

Rounds even_rounds(const Tuning& t, Collective c, double chunk_bytes, std::size_t chunks,
                   bool rail) {
  Rounds r;
  r.slicing = even_slices(t, c, static_cast<std::size_t>(chunk_bytes), chunks, rail);
  r.rounds = std::max(1.0, std::ceil(chunk_bytes / static_cast<double>(r.slicing.slice_bytes)));
  return r;
}

}  // namespace

Rounds rounds_for(const Tuning& t, Collective c, const Outline& o, double chunk_bytes,
                  std::size_t chunks, const CostModel& model) {
  // Over sockets, slices use the measured constants.
  if (o.hops_known && !model.sockets) return fastest_rounds(t, o, chunk_bytes, model);
  Rounds r = even_rounds(t, c, chunk_bytes, chunks, true);
  // Results arrive late through slow ports, so more and shorter rounds are in flight.
  if (const std::size_t shortest = t.rail_slice_min; o.direct && r.slicing.slice_bytes > shortest) {
    r.slicing.rounds_in_flight *= static_cast<int>(r.slicing.slice_bytes / shortest);
    r.slicing.slice_bytes = shortest;
    r.rounds = std::max(1.0, std::ceil(chunk_bytes / static_cast<double>(shortest)));
  }
  return r;
}

// In the other collectives of blocks, ranks differ or every rank has blocks of its own. Over
// sockets, the slices are constants.
bool may_pack_rounds(Collective c, const CostModel& model) {
  return (c == Collective::kReduceScatter || c == Collective::kAllGather) && !model.sockets;
}

bool packs_rounds(const Tuning& t, Collective c, const Outline& packed, const Outline& blocks,
                  double chunk_bytes, std::size_t chunks, const CostModel& model) {
  if (!may_pack_rounds(c, model) ||
      packed.rail_messages + packed.host_messages >= blocks.rail_messages + blocks.host_messages)
    return false;
  const Rounds r = rounds_for(t, c, packed, chunk_bytes, chunks, model);
  return std::max(r.time_us, r.flowing_us) * kPackedGain <
         rounds_for(t, c, blocks, chunk_bytes, chunks, model).flowing_us;
}

Rounds rounds_in_host(const Tuning& t, Collective c, double chunk_bytes, std::size_t chunks) {
  return even_rounds(t, c, chunk_bytes, chunks, false);
}

Slicing slicing_for(const Tuning& t, const Plan& plan, std::size_t total_bytes,
                    const CostModel& model) {
  auto chunks = static_cast<std::size_t>(plan.nchunks);
  if (plan.collective == Collective::kAllToAll)  // the bytes are those of one rank's blocks
    chunks /= static_cast<std::size_t>(plan.schedule.nranks);
  const std::size_t chunk = total_bytes / std::max<std::size_t>(1, chunks);
  // A short message is one round.
  if (plan.layout == Plan::Layout::kPacked && may_pack(total_bytes, plan.schedule.nranks))
    return {std::max<std::size_t>(1, total_bytes), 1};
  if (!plan.network || plan.outline.per_host == 0)
    return even_slices(t, plan.collective, chunk, chunks, plan.network);
  Outline outline = plan.outline;
  // A rank first multiplies its whole input into scratch.
  if (plan.premultiplied && plan.layout == Plan::Layout::kBlocks)
    outline.scratch_chunks += static_cast<int>(chunks);
  return rounds_for(t, plan.collective, outline, static_cast<double>(chunk), chunks, model).slicing;
}

}  // namespace weft
