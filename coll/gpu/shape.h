// Says how much a collective reads and writes on a rank, as blocks of `count` elements that follow
// each other. Each device path says itself which block goes where (gpu/direct.cc,
// gpu/hierarchical.cc).
#pragma once

#include <cstddef>

#include "coll/schedule/footprint.h"
#include "coll/types.h"
#include "topo/base/status.h"

namespace weft {

struct DeviceShape {
  std::size_t in = 0, out = 0;  // blocks; 0: the buffer is not looked at on this rank
};

inline DeviceShape device_shape(Collective c, Rank rank, Rank root, std::size_t n) {
  const Footprint f = footprint(c, rank, root);
  return {blocks_in(f.in, n), blocks_in(f.out, n)};
}

}  // namespace weft
