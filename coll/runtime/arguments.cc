// Checks arguments against the footprint of each collective, and words the errors. This file reads
// sizes and addresses, never the data.
#include "coll/runtime/arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <string>

#include "coll/api/communicator.h"
#include "coll/footprint.h"

namespace weft {
namespace {

bool overlap(const void* a, std::size_t a_bytes, const void* b, std::size_t b_bytes) {
  const auto x = reinterpret_cast<std::uintptr_t>(a), y = reinterpret_cast<std::uintptr_t>(b);
  return a_bytes && b_bytes && x < y + b_bytes && y < x + a_bytes;
}

using Spans = std::span<const std::size_t>;

// The offset of block i, in elements.
std::size_t begin_of(const Call& call, bool received, std::size_t i) {
  if (!call.is_vector) return i * call.count;
  const Spans offsets = received ? call.recv_offsets : call.offsets;
  if (!offsets.empty()) return offsets[i];
  const Spans counts = received ? call.recv_counts : call.counts;
  return std::accumulate(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(i),
                         std::size_t{0});
}

// Elements up to the end of the last block.
std::size_t extent(const Call& call, bool received, std::size_t n) {
  if (!call.is_vector) return n * call.count;
  std::size_t end = 0;
  const Spans counts = received ? call.recv_counts : call.counts;
  for (std::size_t i = 0; i < n; ++i)
    if (counts[i]) end = std::max(end, begin_of(call, received, i) + counts[i]);
  return end;
}

// Empty, or why the blocks are invalid: there must be one per rank, all must fit in memory, and
// blocks that are written must not overlap.
std::string why_refused(Spans counts, Spans offsets, std::size_t n, std::size_t most, bool written,
                        const char* which) {
  if (counts.size() != n)
    return fmt::format("{}counts has {} entries; give one for each of the {} ranks", which,
                       counts.size(), n);
  if (!offsets.empty() && offsets.size() != n)
    return fmt::format("{}offsets has {} entries; give one for each of the {} ranks, or none",
                       which, offsets.size(), n);
  std::size_t sum = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const std::size_t at = offsets.empty() ? sum : offsets[i];
    if (counts[i] > most || at > most - counts[i])
      return fmt::format("{}counts[{}] is {}, from element {} on: more than memory can hold", which,
                         i, counts[i], at);
    sum = offsets.empty() ? sum + counts[i] : 0;
  }
  if (!written || offsets.empty()) return {};
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < n; ++i)
    if (counts[i]) order.push_back(i);
  std::ranges::sort(order, {}, [&](std::size_t i) { return offsets[i]; });
  for (std::size_t k = 1; k < order.size(); ++k)
    if (offsets[order[k]] - offsets[order[k - 1]] < counts[order[k - 1]])
      return fmt::format("the blocks of ranks {} and {} overlap in out; give other {}offsets",
                         order[k - 1], order[k], which);
  return {};
}

// How much a rank reads and writes, in elements.
struct Sizes {
  std::size_t in, out;
};
Sizes sizes(Collective c, const Call& call, Rank root, Rank rank, std::size_t n) {
  const auto elements = [&](Part part, bool received) {
    if (part == Part::kAll) return extent(call, received, n);
    if (part == Part::kNothing) return std::size_t{0};
    return call.is_vector ? call.counts[static_cast<std::size_t>(rank)] : call.count;
  };
  const Footprint f = footprint(c, rank, root);
  return {elements(f.in, false), elements(f.out, call.is_vector && c == Collective::kAllToAll)};
}

// How to call the collective in place.
const char* in_place_form(Collective c, bool is_vector) {
  const Footprint f = footprint(c);
  if (f.in == f.out)
    return is_vector ? "in == out, with the same counts and offsets both ways" : "in == out";
  if (f.out == Part::kAll)
    return is_vector ? "in == out + the offset of this rank's block" : "in == out + rank * count";
  return is_vector ? "out == in + the offset of this rank's block" : "out == in + rank * count";
}

// Empty, or why the operator is undefined for the type, with an alternative.
std::string why_undefined(RedOp op, double factor, DType type) {
  if (!defined(op, type))
    return fmt::format("{} is not defined for {}; {}", name(op), name(type),
                       is_bitwise(op)      ? "use an integer type of the same size"
                       : op == RedOp::kAvg ? "use uint8, or sum (which is `or` for bool)"
                                           : "use uint8, or bit_and");
  if (op != RedOp::kPreMulSum || is_floating(type)) return {};
  // The factor must be an integer of at most 64 bits; the product may wrap around in any case.
  if (!(std::trunc(factor) == factor && factor >= -0x1p63 && factor < 0x1p64))
    return fmt::format(
        "premul_sum of {} with the factor {}: an integer type takes a factor that "
        "is a whole number; use a floating type",
        name(type), factor);
  return {};
}

}  // namespace

bool check_arguments(Collective c, const Call& call, Rank root, Rank rank, std::size_t n,
                     bool& in_place, Status& status) {
  const auto fail = [&](const std::string& what) {
    status = {Code::kInvalidArgument,
              fmt::format("{}{}: {}", name(c), call.is_vector ? "_v" : "", what)};
    return false;
  };
  in_place = false;
  if (c == Collective::kBarrier) return true;
  if (reduces(c) && (call.op == RedOp::kPreMulSum || !defined(call.op, call.type)))
    if (std::string why = why_undefined(call.op, call.factor, call.type); !why.empty())
      return fail(why);
  const std::size_t element = size_of(call.type);
  // A shift works because every type's size is a power of two.
  const std::size_t most = std::numeric_limits<std::size_t>::max() / 2 >> std::countr_zero(element);
  if (root < 0 || static_cast<std::size_t>(root) >= n)
    return fail(fmt::format("root {} is not a rank of this communicator (0..{})", root, n - 1));
  if (call.is_vector) {
    const bool exchange = c == Collective::kAllToAll;
    const bool writes = c == Collective::kAllGather || (c == Collective::kGather && rank == root);
    std::string why =
        why_refused(call.counts, call.offsets, n, most, writes, exchange ? "send_" : "");
    if (why.empty() && exchange)
      why = why_refused(call.recv_counts, call.recv_offsets, n, most, true, "recv_");
    const auto me = static_cast<std::size_t>(rank);
    if (why.empty() && exchange && call.counts[me] != call.recv_counts[me])
      why = fmt::format(
          "send_counts[{0}] is {1}, recv_counts[{0}] is {2}: what a rank sends to "
          "itself is what it receives from itself",
          rank, call.counts[me], call.recv_counts[me]);
    if (!why.empty()) return fail(why);
  } else if (std::size_t all = 0; __builtin_mul_overflow(call.count, n, &all) || all > most) {
    return fail(
        fmt::format("count {} of {} is more than memory can hold", call.count, name(call.type)));
  }
  const auto [in, out] = sizes(c, call, root, rank, n);
  if (in && !call.in) return fail(fmt::format("in is null; it is read, {} elements", in));
  if (out && !call.out) return fail(fmt::format("out is null; it is written, {} elements", out));
  if (in == 0 || out == 0) {
    in_place = true;  // one buffer is not used
    return true;
  }
  const std::size_t mine = begin_of(call, false, static_cast<std::size_t>(rank)) * element;
  const auto* from = static_cast<const std::byte*>(call.in);
  const auto* to = static_cast<const std::byte*>(call.out);
  const Footprint f = footprint(c);
  in_place = f.in == f.out         ? from == to
             : f.out == Part::kAll ? from == to + mine
                                   : to == from + mine;
  if (in_place && call.is_vector && c == Collective::kAllToAll)
    for (std::size_t i = 0; i < n; ++i)
      in_place = in_place && call.counts[i] == call.recv_counts[i] &&
                 begin_of(call, false, i) == begin_of(call, true, i);
  // This rank's block is written while the other blocks are still being sent.
  const auto me = static_cast<std::size_t>(rank);
  for (std::size_t i = 0; i < n && in_place && call.is_vector && c == Collective::kReduceScatter;
       ++i)
    if (i != me && overlap(to, out * element, from + begin_of(call, false, i) * element,
                           call.counts[i] * element))
      return fail(
          fmt::format("in place, and the blocks of ranks {} and {} overlap; give other "
                      "offsets, or a separate out",
                      std::min(i, me), std::max(i, me)));
  if (!in_place && overlap(from, in * element, to, out * element))
    return fail(fmt::format("in and out overlap; pass {} for in place, or separate buffers",
                            in_place_form(c, call.is_vector)));
  return true;
}

std::size_t total_bytes(Collective c, const Call& call, std::size_t n) {
  const std::size_t element = size_of(call.type);
  if (!call.is_vector) return call.count * element * (by_blocks(c) ? n : 1);
  std::size_t sum = std::accumulate(call.counts.begin(), call.counts.end(), std::size_t{0});
  if (c != Collective::kAllToAll) return sum * element;
  sum += std::accumulate(call.recv_counts.begin(), call.recv_counts.end(), std::size_t{0});
  return sum ? std::numeric_limits<std::size_t>::max() / 2 : 0;
}

std::vector<std::size_t> own_blocks(Call& call, std::size_t n) {
  if (!call.is_vector) return {};
  const bool exchange = !call.recv_counts.empty();
  std::vector<std::size_t> all((exchange ? 4 : 2) * n);
  const Call given = call;
  for (std::size_t i = 0; i < n; ++i) {
    all[i] = given.counts[i];
    all[n + i] = begin_of(given, false, i);
    if (!exchange) continue;
    all[2 * n + i] = given.recv_counts[i];
    all[3 * n + i] = begin_of(given, true, i);
  }
  const Spans spans(all);
  call.counts = spans.subspan(0, n);
  call.offsets = spans.subspan(n, n);
  if (exchange) {
    call.recv_counts = spans.subspan(2 * n, n);
    call.recv_offsets = spans.subspan(3 * n, n);
  }
  return all;
}

Status empty_communicator(std::string_view call) {
  return {Code::kInvalidArgument,
          fmt::format("{}: this Communicator is empty: moved from, or of a rank without a color",
                      call)};
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

Status check_own_messages(const char* call, std::span<const Message> messages, Rank me,
                          std::vector<std::pair<std::size_t, std::size_t>>& pairs) {
  std::vector<std::size_t> sent, received;
  for (std::size_t i = 0; i < messages.size(); ++i)
    if (messages[i].peer == me) (messages[i].sends ? sent : received).push_back(i);
  if (sent.size() != received.size())
    return {Code::kInvalidArgument,
            fmt::format("{}: {} messages are sent to this rank itself and {} received; give as "
                        "many of both, in one exchange",
                        call, sent.size(), received.size())};
  const auto bytes = [&](std::size_t i) { return messages[i].count * size_of(messages[i].type); };
  for (std::size_t i = 0; i < sent.size(); ++i) {
    if (bytes(sent[i]) != bytes(received[i]))
      return {Code::kInvalidArgument,
              fmt::format("{}: message {} to this rank itself has {} bytes, and its receive {}; "
                          "give the same",
                          call, i, bytes(sent[i]), bytes(received[i]))};
    pairs.emplace_back(sent[i], received[i]);
  }
  return {};
}

}  // namespace weft
