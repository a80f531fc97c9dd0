// What the ranks of a device operation tell each other before it starts.
#pragma once

#include <cstddef>
#include <cstdint>

#include "coll/types.h"
#include "transport/gpu/device_peers.h"
#include "transport/transport.h"

namespace weft {

struct DeviceRecord {
  // Of signature(), with its place among the communicator's calls or captures: what must be the
  // same on all ranks.
  Head call;
  Head before = {};  // of the call before it; sign 0: there is none
  // Of each rank.
  double factor = 1;
  std::uint64_t longest = 0;     // elements of the longest block that it knows of
  std::int32_t on_device = 0;    // some buffer of this rank is device or managed memory
  std::int32_t staged_only = 0;  // no way around host memory for this rank
  std::uint64_t ways = 0;  // bits: how it could exchange this with other hosts (gpu/gpudirect.h)
  DeviceAddress in, out;
};

}  // namespace weft
