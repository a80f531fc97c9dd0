// Calls with blocks of different sizes that have memory of a GPU, or are in the order of a stream.
//
// They take a detour through host memory: as a whole, since only the ranks together know the sizes,
// and cutting all blocks alike would need them to agree first.
#include <fmt/format.h>

#include <algorithm>

#include "coll/arguments.h"
#include "coll/device_begin.h"
#include "coll/device_detour.h"
#include "coll/device_lane.h"

namespace weft {

Status run_blocks(DeviceLane& lane, const DeviceOperation& op) {
  Communicator& wire = lane.wire();
  Call call = op.call;
  const int gpu = std::max(op.mine.in.gpu, op.mine.out.gpu);
  std::unique_ptr<Detour> detour;
  if (gpu >= 0)
    detour = detour_of_blocks(lane.device(), gpu, op.collective, call, lane.group().me, op.root,
                              lane.group().ranks.size(), lane.group().core->options.timeout);
  const Blocks blocks(call.counts, call.offsets);
  const Reduction reduction{call.op, call.factor};
  Status status;
  switch (op.collective) {
    case Collective::kAllGather:
      status = wire.all_gather_v(call.in, call.out, blocks, call.type);
      break;
    case Collective::kReduceScatter:
      status = wire.reduce_scatter_v(call.in, call.out, blocks, call.type, reduction);
      break;
    case Collective::kGather:
      status = wire.gather_v(call.in, call.out, blocks, call.type, op.root);
      break;
    case Collective::kScatter:
      status = wire.scatter_v(call.in, call.out, blocks, call.type, op.root);
      break;
    case Collective::kAllToAll:
      status = wire.all_to_all_v(call.in, blocks, call.out,
                                 Blocks(call.recv_counts, call.recv_offsets), call.type);
      break;
    default:
      throw Error(fmt::format("{} has no blocks of different sizes", name(op.collective)));
  }
  if (status.ok() && detour) detour->land();
  return status;
}

}  // namespace weft
