// What the ranks of a device operation tell each other before it starts.
#pragma once

#include <cstddef>
#include <cstdint>

#include "coll/types.h"
#include "transport/device_peers.h"
#include "transport/transport.h"

namespace weft {

struct DeviceRecord {
  Head call;         // of signature(), with its place among the communicator's calls
  Head before = {};  // of the call before it; sign 0: there is none
  // Must be the same on all ranks.
  std::uint64_t number = 0;  // of the operation in its lane; of a capture
  std::uint64_t count = 0;
  std::int32_t collective = 0, type = 0, op = 0, root = 0;
  std::uint64_t uneven = 0;  // 1: blocks of different sizes; `count` is 0
  // Of each rank.
  double factor = 1;
  std::uint64_t longest = 0;     // elements of the longest block that it knows of
  std::int32_t on_device = 0;    // some buffer of this rank is device or managed memory
  std::int32_t staged_only = 0;  // no way around host memory for this rank
  std::uint64_t ways = 0;  // bits: how it could exchange this with other hosts (device_gpudirect.h)
  DeviceAddress in, out;
};

}  // namespace weft
