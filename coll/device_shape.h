// What a collective reads and writes on a rank, as blocks of `count` elements that follow each
// other. All device paths ask here; which block goes where each of them says itself
// (device_direct.cc, device_by_cards.cc).
#pragma once

#include <cstddef>

#include "coll/types.h"
#include "topo/status.h"

namespace weft {

struct DeviceShape {
  std::size_t in = 0, out = 0;  // blocks; 0: the buffer is not looked at on this rank
};

inline DeviceShape device_shape(Collective c, Rank rank, Rank root, std::size_t n) {
  const bool is_root = rank == root;
  switch (c) {
    case Collective::kAllReduce:
      return {1, 1};
    case Collective::kAllGather:
      return {1, n};
    case Collective::kReduceScatter:
      return {n, 1};
    case Collective::kBroadcast:
      return {is_root ? std::size_t{1} : 0, 1};
    case Collective::kReduce:
      return {1, is_root ? std::size_t{1} : 0};
    case Collective::kGather:
      return {1, is_root ? n : 0};
    case Collective::kScatter:
      return {is_root ? n : 0, 1};
    case Collective::kAllToAll:
      return {n, n};
    default:
      return {};
  }
}

}  // namespace weft
