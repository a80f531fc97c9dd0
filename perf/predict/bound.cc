// Computes lower bounds from rates. Does not measure rates.
#include "perf/predict/bound.h"

#include "coll/select/cost.h"

namespace weft {

double rail_bound_us(Collective collective, const Shape& shape, std::uint64_t bytes, int rails,
                     RailRate rate) {
  if (rate.gbps <= 0 || rails < 1 || shape.hosts.size() < 2) return 0;
  const double payload_gbps = rate.gbps * (rate.declared ? rate.payload_share : 1.0);
  CostModel model;
  model.rail.us_per_byte = 8 / (payload_gbps * 1e3);
  model.rails_per_host = rails;
  return lower_bound_us(collective, shape, bytes, model);
}

int writing_ranks(Collective collective, int nranks, bool in_place) {
  switch (collective) {
    case Collective::kGather:
    case Collective::kReduce:
      return 1;
    case Collective::kBroadcast:
      return in_place && nranks > 1 ? nranks - 1 : nranks;
    default:
      return nranks;
  }
}

double memory_bound_us(Collective collective, std::uint64_t bytes, int nranks, bool in_place,
                       MemoryRate rate) {
  if (rate.copy_GBps <= 0 || rate.reduce_GBps <= 0 || nranks < 1) return 0;
  const double n = nranks, s = static_cast<double>(bytes);
  double reduced = 0, copied = 0;
  switch (collective) {
    case Collective::kAllReduce:
    case Collective::kReduce:  // the root's work; other ranks have less
      // A single rank has its result in the input: nothing is reduced, and out of place
      // everything is copied.
      reduced = nranks > 1 ? s / n : 0;
      copied = nranks > 1 ? s - reduced : (in_place ? 0 : s);
      break;
    case Collective::kReduceScatter:
      reduced = nranks > 1 ? s / n : 0;
      copied = nranks > 1 ? 0 : (in_place ? 0 : s);
      break;
    case Collective::kAllGather:
    case Collective::kGather:
    case Collective::kAllToAll:
      copied = in_place ? s * (n - 1) / n : s;
      break;
    case Collective::kBroadcast:
      copied = nranks > 1 || !in_place ? s : 0;
      break;
    case Collective::kSendRecv:
      copied = s;
      break;
    case Collective::kScatter:
      copied = nranks > 1 || !in_place ? s / n : 0;
      break;
    case Collective::kBarrier:
      break;
  }
  return (reduced / rate.reduce_GBps + copied / rate.copy_GBps) / 1e3;
}

}  // namespace weft
