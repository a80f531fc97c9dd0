// Makes signatures, and describes how two of them differ. This file is independent of how
// signatures travel between ranks.
#include "coll/engine/signature.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

#include "coll/engine/engine.h"
#include "coll/engine/plan.h"
#include "coll/schedule/algorithm.h"

namespace weft {
namespace {

// One block's part of the digest. The digest is the sum of all parts, so a change can be located.
std::uint64_t part_of_digest(std::size_t i, std::uint64_t count) {
  std::uint64_t x = (count + 1) * 0x9e3779b97f4a7c15u + (i + 1) * 0xc2b2ae3d27d4eb4fu;
  x = (x ^ x >> 31) * 0xbf58476d1ce4e5b9u;
  return (x ^ x >> 29) * 0x94d049bb133111ebu >> 32;
}
std::uint64_t digest_of(std::span<const std::size_t> counts) {
  std::uint64_t digest = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) digest += part_of_digest(i, counts[i]);
  return digest;
}

// The decoded fields of a head.
struct Fields : CallDescriptor {
  explicit Fields(const Head& h)
      : pairs(by_pairs(h)),
        algorithm(static_cast<int>(h.about[2] >> 24 & 0xff) - 1),
        elements(h.about[3] >> 32),
        plan(static_cast<std::uint32_t>(h.about[3])) {
    comm = static_cast<std::uint32_t>(h.about[1] >> kSignatureSequenceBits);
    sequence = h.about[1] & kSignatureSequenceMask;
    collective = static_cast<Collective>(h.about[2] & 0xff);
    is_vector = weft::is_vector(h);
    lane = h.about[2] & kLaneBit;
    on_device = h.about[2] & kDeviceBit;
    type = static_cast<DType>(h.about[2] >> 8 & 0xff);
    op = static_cast<RedOp>(h.about[2] >> 16 & 0xf);
    codec = static_cast<Codec>(h.about[2] >> 20 & 0x3);
    root = root_of(h);
    set_word(h.about[0]);
  }
  bool pairs;
  int algorithm;
  std::uint64_t elements;
  std::uint32_t plan;
};

std::string algorithm_name(int index) {
  if (index < 0) return "on the board";
  const auto all = algorithms();
  if (static_cast<std::size_t>(index) >= all.size()) return fmt::format("as algorithm {}", index);
  return fmt::format("as {}", all[static_cast<std::size_t>(index)].name);
}

std::string whole_call(const Fields& f) {
  if (f.collective == Collective::kBarrier) return full_title(f);
  if (f.pairs) return fmt::format("{} with {} for rank {}", full_title(f), quantity(f), f.root);
  return fmt::format("{} of {}", full_title(f), arguments(f, false));
}

// Finds the counts of rank_a that rank_b passed differently, as far as the digest shows: one count,
// or two that were swapped. Empty if the answer is ambiguous.
std::string changed_counts(Rank rank_a, const Fields& a, std::span<const std::size_t> counts,
                           Rank rank_b, const Fields& b) {
  constexpr std::uint64_t kMask = (std::uint64_t{1} << (64 - kSumBits)) - 1;
  const std::uint64_t digest = digest_of(counts), more = b.count - a.count;
  std::vector<std::string> found;
  const auto is_theirs = [&](std::uint64_t change) {
    return ((digest + change) & kMask) == b.digest;
  };
  for (std::size_t i = 0; i < counts.size() && more != 0; ++i)
    if (const std::uint64_t theirs = counts[i] + more;
        theirs <= kSumMask && is_theirs(part_of_digest(i, theirs) - part_of_digest(i, counts[i])))
      found.push_back(fmt::format("rank {} passed counts[{}] = {}, rank {} passed {}", rank_a, i,
                                  counts[i], rank_b, theirs));
  for (std::size_t i = 0; i < counts.size() && more == 0; ++i)
    for (std::size_t k = 0; k < i; ++k)
      if (counts[i] != counts[k] &&
          is_theirs(part_of_digest(i, counts[k]) - part_of_digest(i, counts[i]) +
                    part_of_digest(k, counts[i]) - part_of_digest(k, counts[k])))
        found.push_back(fmt::format(
            "rank {} passed counts[{}] = {} and counts[{}] = {}, rank {} passed {} and {}", rank_a,
            k, counts[k], i, counts[i], rank_b, counts[i], counts[k]));
  return found.size() == 1 ? found[0] : std::string();
}

}  // namespace

Head uneven_signature(Collective c, const Call& call, Rank root, Rank me,
                      std::uint32_t communicator, std::uint64_t sequence) {
  const bool pairs = c == Collective::kAllToAll;
  Head head = signature(c, call, pairs ? me : root, communicator, sequence);
  const auto sum = std::accumulate(call.counts.begin(), call.counts.end(), std::uint64_t{0});
  head.about[0] = pairs ? 0 : counts_word(sum, digest_of(call.counts));
  head.about[2] |= kUnevenBit;
  return head;
}

bool by_pairs(const Head& head) {
  return is_vector(head) && static_cast<Collective>(head.about[2] & 0xff) == Collective::kAllToAll;
}

Head pair_signature(const Head& call, Rank receiver, std::uint64_t count) {
  Head head = call;
  head.about[0] = count;
  head.about[2] = (head.about[2] & (kUnevenBit | 0xffffffffu)) |
                  static_cast<std::uint64_t>(static_cast<std::uint32_t>(receiver)) << 32;
  seal(head);
  return head;
}

Rank root_of(const Head& head) { return static_cast<Rank>((head.about[2] & ~kUnevenBit) >> 32); }

std::uint32_t common_hash(const Plan& plan, std::uint64_t first) {
  std::uint64_t h = 0x9e3779b97f4a7c15u;
  const auto add = [&h](std::uint64_t x) {
    h = (h ^ x) * 0xbf58476d1ce4e5b9u;
    h ^= h >> 29;
  };
  const Schedule& s = plan.schedule;
  add(static_cast<std::uint64_t>(s.nranks));
  add(static_cast<std::uint64_t>(plan.nchunks));  // an all_to_all's schedule keeps only its own
  add(static_cast<std::uint64_t>(plan.layout));
  add(plan.network);
  add(first);
  for (const int b : s.block) add(static_cast<std::uint64_t>(b) + 1);
  for (const double w : s.weight) add(std::bit_cast<std::uint64_t>(w));
  return static_cast<std::uint32_t>(h >> 32);
}

namespace {

// The ranks are the two ends of an all_to_all_v pair or of a message.
std::string by_direction(Rank rank_a, const Fields& x, Rank rank_b, const Fields& y) {
  const bool to_b = x.root == rank_b;
  const std::string what = x.pairs ? full_title(x) + ":" : fmt::format("message #{}", x.sequence);
  return fmt::format("{} from rank {} to rank {}: rank {} {} {}, rank {} {} {}", what,
                     to_b ? rank_a : rank_b, to_b ? rank_b : rank_a, rank_a,
                     to_b ? "sends" : "expects", quantity(x), rank_b, to_b ? "expects" : "sends",
                     quantity(y));
}

// Both ranks passed the same, but a message of rank_b is not one that rank_a expects.
std::string unexpected(Rank rank_a, Rank rank_b, const Fields& x) {
  if (x.collective == Collective::kSendRecv)
    return fmt::format(
        "message #{} between ranks {} and {}: both passed {}, but it arrived with "
        "another size; do both run the same version of weft with the same settings?",
        x.sequence, rank_a, rank_b, quantity(x));
  return fmt::format(
      "{}: both run it {} and passed the same, but rank {} sent rank {} a message that its "
      "schedule does not expect: the schedules do not match; `weft explain` checks those of an "
      "algorithm",
      whole_call(x), algorithm_name(x.algorithm), rank_b, rank_a);
}

std::string in_order(Rank rank_a, const Head& a, Rank rank_b, const Head& b,
                     const std::string& counts) {
  if (rank_b < rank_a) return in_order(rank_b, b, rank_a, a, counts);
  const Fields x(a), y(b);
  const auto both = [&](std::string_view verb, const std::string& of_a, const std::string& of_b) {
    return fmt::format("rank {} {} {}, rank {} {} {}", rank_a, verb, of_a, rank_b, verb, of_b);
  };
  if (x.collective == Collective::kSendRecv && y.collective == x.collective && x.root == y.root)
    return by_direction(rank_a, x, rank_b, y);
  if (x.collective != y.collective || x.is_vector != y.is_vector || !same_place(a, b))
    return both("called", whole_call(x), whole_call(y));
  if (x.pairs && x.root == y.root && (x.count != y.count || x.type != y.type))
    return by_direction(rank_a, x, rank_b, y);
  if (!counts.empty() && x.type == y.type)
    return fmt::format("{} of {}: {}", full_title(x), type_name(x.type), counts);
  if (x.count != y.count || x.type != y.type)
    return fmt::format("{}: {}", full_title(x), both("passed", quantity(x), quantity(y)));
  if (x.digest != y.digest)
    return fmt::format("{} of {}: {}", full_title(x), quantity(x),
                       both("passed", fmt::format("counts with the digest {:06x}", x.digest),
                            fmt::format("counts with {:06x}", y.digest)));
  if (x.lane != y.lane) {
    const bool device = x.on_device || y.on_device;
    const auto memory = [device](const Fields& f) {
      if (device) return f.lane ? "device memory" : "host memory";
      return f.lane ? "a stream" : "no stream";
    };
    return fmt::format("{}: {}; all ranks pass the same kind", whole_call(x),
                       both("passed", memory(x), memory(y)));
  }
  if (x.op != y.op)
    return fmt::format("{} of {}: {}", full_title(x), quantity(x),
                       both("passed", name(x.op), name(y.op)));
  if (x.codec != y.codec) {
    const auto blocks = [](const Fields& f) {
      return f.codec == Codec::kNone ? "no compression" : fmt::format("{} blocks", name(f.codec));
    };
    return fmt::format("{} of {}: {}", full_title(x), quantity(x),
                       both("asked for", blocks(x), blocks(y)));
  }
  if (x.root != y.root)
    return fmt::format("{} of {}: {}", full_title(x), quantity(x),
                       both("passed root", std::to_string(x.root), std::to_string(y.root)));
  if (x.algorithm != y.algorithm)
    return fmt::format("{}: {}; set_algorithm() and WEFT_* must be the same on all ranks",
                       whole_call(x),
                       both("runs it", algorithm_name(x.algorithm), algorithm_name(y.algorithm)));
  if (x.elements != y.elements)
    return fmt::format("{}: {}; tuning must be the same on all ranks", whole_call(x),
                       both("uses rounds of", fmt::format("{} elements", x.elements),
                            fmt::format("{} elements", y.elements)));
  return fmt::format(
      "{}: {}; do both run the same version of weft with the same settings?", whole_call(x),
      both("has plan", fmt::format("{:08x}", x.plan), fmt::format("{:08x}", y.plan)));
}

}  // namespace

std::string disagreement(Rank rank_a, const Head& a, Rank rank_b, const Head& b,
                         std::span<const std::size_t> counts_a) {
  const Fields x(a), y(b);
  if (a.sign == b.sign) return unexpected(rank_a, rank_b, x);
  const bool blocks = x.is_vector && !x.pairs && y.is_vector && !y.pairs && same_place(a, b) &&
                      x.collective == y.collective;
  return in_order(rank_a, a, rank_b, b,
                  blocks && a.about[0] != b.about[0] && !counts_a.empty()
                      ? changed_counts(rank_a, x, counts_a, rank_b, y)
                      : std::string());
}

}  // namespace weft
