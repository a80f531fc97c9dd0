// Cutting: how the engine cuts a call into rounds and messages.
#pragma once

#include <cstddef>

#include "coll/schedule/algorithm.h"
#include "coll/select/cost.h"
#include "coll/select/tuning.h"

namespace weft {

// How the engine slices a message between hosts.
struct Cutting {
  bool split = false;  // steps are split into messages of one chunk
  Rounds rounds;
};

// Whether rounds are simulated in the order of the engine. False if processor work and its order on
// a rank determine the time: there are too few cores, cores move all bytes of a host, or rails are
// sockets.
bool as_engine(const Shape& shape, const CostModel& model);

// `own`: the schedule of the shape's rank.
Cutting cutting_of(const Algorithm& algorithm, const Schedule& own, Shape shape, std::size_t bytes,
                   const CostModel& model);

}  // namespace weft
