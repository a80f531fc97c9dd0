// Input and expected output of collectives on device memory.
#include "support/device/device_ranks.h"
#include "support/jobs/payload.h"

namespace weft::testing {
namespace {

double expected(const DeviceCase& c, std::size_t me, int n, std::size_t i) {
  switch (c.collective) {
    case Collective::kAllReduce:
    case Collective::kReduce:
      return reduced(n, i, c.type, c.op);
    case Collective::kReduceScatter:
      return reduced(n, me * c.count + i, c.type, c.op);
    case Collective::kAllGather:
    case Collective::kGather:
      return operand(static_cast<int>(i / c.count), i % c.count, c.type, c.op);
    case Collective::kScatter:
      return operand(c.root, me * c.count + i, c.type, c.op);
    case Collective::kAllToAll:
      return operand(static_cast<int>(i / c.count), me * c.count + i % c.count, c.type, c.op);
    default:
      return operand(c.root, i, c.type, c.op);
  }
}

}  // namespace

void put_operands(std::byte* to, const DeviceCase& c, Rank me, std::size_t elements) {
  for (std::size_t i = 0; i < elements; ++i) put(to, i, c.type, operand(me, i, c.type, c.op));
}

void put_expected(std::byte* to, const DeviceCase& c, Rank me, int n, std::size_t elements) {
  for (std::size_t i = 0; i < elements; ++i)
    put(to, i, c.type, expected(c, static_cast<std::size_t>(me), n, i));
}

}  // namespace weft::testing
