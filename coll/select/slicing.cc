// How the engine cuts a call into rounds and messages, for predictions. This file does not depend
// on how rounds are simulated.
#include "coll/select/slicing.h"

#include <algorithm>
#include <cstddef>

#include "coll/engine/plan.h"
#include "coll/schedule/building_blocks.h"

namespace weft {
namespace {

// The number of messages of a step; joined steps share one message unless they are split.
double messages_of(const Step& step, const Cutting& cut) {
  return cut.split ? step.at.count : step.joined ? 0 : 1;
}

}  // namespace

bool as_engine(const Shape& shape, const CostModel& model) {
  return model.round_bytes == 0 && !model.sockets && model.oversubscription <= 1 &&
         (shape.hosts.size() > 1 || model.host_ports);
}

Cutting cutting_of(const Algorithm& algorithm, const Schedule& own, Shape shape, std::size_t bytes,
                   const CostModel& model) {
  const Collective collective = algorithm.collective;
  Cutting cut;
  shape.rank = outlined_rank(collective, shape);
  const Schedule one = shape.rank == own.rank ? own : algorithm.build(shape);
  const bool packed = by_blocks(collective) && wants_packed(bytes, one);
  cut.split = by_blocks(collective) && !packed;
  if (packed) return cut;  // in one round
  auto chunks = static_cast<std::size_t>(one.nchunks);
  if (collective == Collective::kAllToAll) chunks /= static_cast<std::size_t>(shape.nranks);
  const double chunk = static_cast<double>(bytes) / static_cast<double>(chunks);
  if (shape.hosts.size() < 2) {
    cut.rounds = rounds_in_host({}, collective, chunk, chunks);
    return cut;
  }
  const auto outline = [&](bool split) {
    return outline_of(collective, shape, split, [&](Rank r) -> Schedule {
      shape.rank = r;
      return r == one.rank ? one : algorithm.build(shape);
    });
  };
  Outline taken = outline(cut.split);
  if (cut.split)
    if (const Outline packed_rounds = outline(false);
        packs_rounds({}, collective, packed_rounds, taken, chunk, chunks, model)) {
      taken = packed_rounds;
      cut.split = false;
    }
  cut.rounds = rounds_for({}, collective, taken, chunk, chunks, model);
  return cut;
}

Messages messages_of(const Algorithm& algorithm, const Shape& any, std::size_t bytes,
                     const CostModel& model) {
  Shape shape = any;
  shape.rank = outlined_rank(algorithm.collective, shape);
  Cutting cut;
  if (as_engine(shape, model))
    cut = cutting_of(algorithm, algorithm.build(shape), shape, bytes, model);
  shape.rank = shape.nranks - 1;
  Messages messages{0, cut.rounds.rounds, std::max(1, cut.rounds.slicing.rounds_in_flight)};
  for (const Step& step : algorithm.build(shape).steps)
    messages.each_round += messages_of(step, cut);
  return messages;
}

namespace {

// The core time for one rank's messages, over all rounds.
double work_us_of(const Schedule& own, const Layout& layout, const Cutting& cut,
                  const CostModel& model) {
  double us = 0;
  for (const Step& step : own.steps) {
    const bool near = layout.host_of(step.peer) == layout.host_of(own.rank);
    us += messages_of(step, cut) * (model.step_us + (near ? model.host : model.rail).step_us);
  }
  return us * cut.rounds.rounds;
}

}  // namespace

double floor_us(const Algorithm& algorithm, const Shape& any, std::size_t bytes,
                const CostModel& model) {
  Shape shape = any;
  shape.rank = rooted(algorithm.collective) ? shape.root : 0;
  shape.slow_ports.clear();  // slow ports never make a collective faster
  const Layout layout(shape);
  const Schedule s = algorithm.build(shape);
  Cutting cut;
  if (as_engine(shape, model)) cut = cutting_of(algorithm, s, shape, bytes, model);
  double chunks[2][2] = {};  // [near][sent]
  for (const Step& step : s.steps)
    chunks[layout.host_of(step.peer) == layout.host_of(s.rank)][step.op == Op::kSend] +=
        step.at.count;
  const double all =
      static_cast<double>(bytes) *
      (algorithm.collective == Collective::kAllToAll ? static_cast<double>(shape.nranks) : 1.0);
  const double chunk = all / s.nchunks;
  const double rail_us = std::max(chunks[0][0], chunks[0][1]) * chunk * model.rail.us_per_byte;
  // Without host ports, the receivers read the data within a host.
  const double near = model.host_ports ? std::max(chunks[1][0], chunks[1][1]) : chunks[1][0];
  const double host_us = near * chunk * model.host.us_per_byte;
  return std::max({rail_us, host_us, work_us_of(s, layout, cut, model)});
}

}  // namespace weft
