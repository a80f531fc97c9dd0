// A record is what a rank of a device task sends to the other ranks before the task starts.
#pragma once

#include <cstddef>
#include <cstdint>

#include "coll/types.h"
#include "transport/gpu/device_peers.h"
#include "transport/transport.h"

namespace weft {

struct DeviceRecord {
  // The signature() of the call, with its number among the communicator's calls or captures: the
  // part of the record that must be the same on all ranks.
  Head call;
  Head before = {};  // head of the previous call; sign 0: none
  // The fields below may differ from rank to rank.
  double factor = 1;
  std::uint64_t longest = 0;     // elements of the longest block known to the rank
  std::int32_t on_device = 0;    // some buffer of this rank is device or managed memory
  std::int32_t staged_only = 0;  // this rank needs the path through host memory
  std::uint64_t ways = 0;        // bits: open ways to other hosts (gpu/gpudirect.h)
  DeviceAddress in, out;
};

}  // namespace weft
