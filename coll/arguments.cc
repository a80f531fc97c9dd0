#include "coll/arguments.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

namespace weft {
namespace {

bool overlap(const void* a, std::size_t a_bytes, const void* b, std::size_t b_bytes) {
  const auto x = reinterpret_cast<std::uintptr_t>(a), y = reinterpret_cast<std::uintptr_t>(b);
  return a_bytes && b_bytes && x < y + b_bytes && y < x + a_bytes;
}

// What a collective reads and writes, in elements.
struct Sizes {
  std::size_t in, out;
};
Sizes sizes(Collective c, std::size_t count, std::size_t n) {
  switch (c) {
    case Collective::kAllGather:
      return {count, count * n};
    case Collective::kReduceScatter:
      return {count * n, count};
    default:
      return {count, count};
  }
}

// Empty, or why the operator does not go with the type, and what does.
std::string why_undefined(RedOp op, double factor, DType type) {
  if (!defined(op, type))
    return fmt::format("{} is not defined for {}; {}", name(op), name(type),
                       is_bitwise(op)      ? "use an integer type of the same size"
                       : op == RedOp::kAvg ? "use uint8, or sum (which is `or` for bool)"
                                           : "use uint8, or bit_and");
  if (op == RedOp::kPreMulSum) return "premul_sum is not supported yet; scale the input";
  if (op != RedOp::kPreMulSum || is_floating(type)) return {};
  // Whole, and within 64 bits: what it is multiplied with wraps around in any case.
  if (!(std::trunc(factor) == factor && factor >= -0x1p63 && factor < 0x1p64))
    return fmt::format(
        "premul_sum of {} with the factor {}: an integer type takes a factor that "
        "is a whole number; use a floating type",
        name(type), factor);
  return {};
}

}  // namespace

Status check_arguments(Collective c, const Call& call, Rank root, Rank rank, std::size_t n,
                       bool& in_place) {
  const auto fail = [&](std::string what) {
    return Status(Code::kInvalidArgument, fmt::format("{}: {}", name(c), what));
  };
  in_place = false;
  if (c == Collective::kBarrier) return {};
  if (reduces(c))
    if (std::string why = why_undefined(call.op, call.factor, call.type); !why.empty())
      return fail(std::move(why));
  const std::size_t element = size_of(call.type);
  std::size_t all = 0;  // bytes of the larger buffer at most
  if (__builtin_mul_overflow(call.count, element * n, &all) ||
      all > std::numeric_limits<std::size_t>::max() / 2)
    return fail(
        fmt::format("count {} of {} is more than memory can hold", call.count, name(call.type)));
  if (root < 0 || static_cast<std::size_t>(root) >= n)
    return fail(fmt::format("root {} is not a rank of this communicator (0..{})", root, n - 1));
  const auto [in, out] = sizes(c, call.count, n);
  const bool reads = c != Collective::kBroadcast || rank == root;
  if (reads && in && !call.in) return fail(fmt::format("in is null, count is {}", call.count));
  if (out && !call.out) return fail(fmt::format("out is null, count is {}", call.count));
  if (!reads) {
    in_place = true;
    return {};
  }
  const auto me = static_cast<std::size_t>(rank);
  const auto* from = static_cast<const std::byte*>(call.in);
  const auto* to = static_cast<const std::byte*>(call.out);
  switch (c) {
    case Collective::kAllGather:
      in_place = from == to + me * in * element;
      break;
    case Collective::kReduceScatter:
      in_place = to == from + me * out * element;
      break;
    default:
      in_place = from == to;
      break;
  }
  if (!in_place && overlap(from, in * element, to, out * element))
    return fail(fmt::format("in and out overlap; pass {} for in place, or separate buffers",
                            c == Collective::kAllGather       ? "in == out + rank * count"
                            : c == Collective::kReduceScatter ? "out == in + rank * count"
                                                              : "in == out"));
  return {};
}

Status check_message(bool send, const void* data, std::size_t count, DType type, Rank peer,
                     std::size_t n) {
  const auto fail = [&](std::string what) {
    return Status(Code::kInvalidArgument, fmt::format("{}: {}", send ? "send" : "recv", what));
  };
  if (peer < 0 || static_cast<std::size_t>(peer) >= n)
    return fail(fmt::format("rank {} is not a rank of this communicator (0..{})", peer, n - 1));
  if (count > std::numeric_limits<std::size_t>::max() / 2 / size_of(type))
    return fail(fmt::format("count {} of {} is more than memory can hold", count, name(type)));
  if (count && !data) return fail(fmt::format("data is null, count is {}", count));
  return {};
}

}  // namespace weft
