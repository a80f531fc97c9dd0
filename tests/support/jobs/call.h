// Runs a collective given as a value of Collective, on any memory.
#pragma once

#include <cstddef>

#include "coll/api/communicator.h"

namespace weft::testing {

inline Status call(Communicator comm, Collective collective, const void* in, void* out,
                   std::size_t count, DType type, const Reduction& op, Rank root) {
  switch (collective) {
    case Collective::kAllReduce:
      return comm.all_reduce(in, out, count, type, op);
    case Collective::kAllGather:
      return comm.all_gather(in, out, count, type);
    case Collective::kReduceScatter:
      return comm.reduce_scatter(in, out, count, type, op);
    case Collective::kBroadcast:
      return comm.broadcast(in, out, count, type, root);
    case Collective::kReduce:
      return comm.reduce(in, out, count, type, op, root);
    case Collective::kGather:
      return comm.gather(in, out, count, type, root);
    case Collective::kScatter:
      return comm.scatter(in, out, count, type, root);
    case Collective::kAllToAll:
      return comm.all_to_all(in, out, count, type);
    default:
      return comm.barrier();
  }
}

}  // namespace weft::testing
