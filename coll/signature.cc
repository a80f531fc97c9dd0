#include "coll/signature.h"

#include <fmt/format.h>

#include <bit>
#include <utility>

#include "coll/algorithm.h"
#include "coll/engine.h"
#include "coll/plan.h"

namespace weft {
namespace {

struct Fields {
  explicit Fields(const Head& h)
      : count(h.about[0]),
        communicator(h.about[1] >> kSignatureSequenceBits),
        sequence(h.about[1] & kSignatureSequenceMask),
        collective(static_cast<Collective>(h.about[2] & 0xff)),
        type(static_cast<DType>(h.about[2] >> 8 & 0xff)),
        op(static_cast<RedOp>(h.about[2] >> 16 & 0xff)),
        algorithm(static_cast<int>(h.about[2] >> 24 & 0xff) - 1),
        root(static_cast<Rank>(h.about[2] >> 32)),
        elements(h.about[3] >> 32),
        plan(static_cast<std::uint32_t>(h.about[3])) {}
  std::uint64_t count, communicator, sequence;
  Collective collective;
  DType type;
  RedOp op;
  int algorithm;
  Rank root;
  std::uint64_t elements;
  std::uint32_t plan;
};

// With the width in its name, whatever tools call it.
std::string type_name(DType t) {
  switch (t) {
    case DType::kFloat32:
      return "float32";
    case DType::kFloat64:
      return "float64";
    case DType::kFloat16:
      return "float16";
    default:
      return name(t);
  }
}

std::string algorithm_name(int index) {
  if (index < 0) return "on the board";
  const auto all = algorithms();
  if (static_cast<std::size_t>(index) >= all.size()) return fmt::format("as algorithm {}", index);
  return fmt::format("as {}", all[static_cast<std::size_t>(index)].name);
}

std::string data(const Fields& f) {
  return f.collective == Collective::kBarrier ? "nothing"
                                              : fmt::format("{} x {}", f.count, type_name(f.type));
}

// All the arguments.
std::string arguments(const Fields& f) {
  std::string text = data(f);
  if (reduces(f.collective)) text += fmt::format(", {}", name(f.op));
  if (rooted(f.collective)) text += fmt::format(", root {}", f.root);
  return text;
}

std::string call(const Fields& f) {
  return fmt::format("{} #{}{}", name(f.collective), f.sequence,
                     f.communicator ? fmt::format(" of communicator {}", f.communicator) : "");
}

std::string whole_call(const Fields& f) {
  return f.collective == Collective::kBarrier ? call(f)
                                              : fmt::format("{} of {}", call(f), arguments(f));
}

}  // namespace

void add_cut(Head& head, int algorithm, std::uint32_t plan, std::uint64_t elements) {
  head.about[2] |= static_cast<std::uint64_t>((algorithm + 1) & 0xff) << 24;
  head.about[3] = (elements & 0xffffffffu) << 32 | plan;
}

std::uint32_t common_hash(const Plan& plan) {
  std::uint64_t h = 0x9e3779b97f4a7c15u;
  const auto add = [&h](std::uint64_t x) {
    h = (h ^ x) * 0xbf58476d1ce4e5b9u;
    h ^= h >> 29;
  };
  const Schedule& s = plan.schedule;
  add(static_cast<std::uint64_t>(s.nranks));
  add(static_cast<std::uint64_t>(s.nchunks));
  add(static_cast<std::uint64_t>(plan.layout));
  add(plan.network);
  for (const int b : s.block) add(static_cast<std::uint64_t>(b) + 1);
  for (const double w : s.weight) add(std::bit_cast<std::uint64_t>(w));
  return static_cast<std::uint32_t>(h >> 32);
}

std::string describe(const Head& head) { return whole_call(Fields(head)); }

std::string disagreement(Rank rank_a, const Head& a, Rank rank_b, const Head& b) {
  if (rank_b < rank_a) return disagreement(rank_b, b, rank_a, a);
  const Fields x(a), y(b);
  const auto both = [&](std::string_view verb, const std::string& of_a, const std::string& of_b) {
    return fmt::format("rank {} {} {}, rank {} {} {}", rank_a, verb, of_a, rank_b, verb, of_b);
  };
  if (x.collective == Collective::kSendRecv && y.collective == x.collective && x.root == y.root) {
    const bool to_b = x.root == rank_b;
    return fmt::format("message #{} from rank {} to rank {}: rank {} {} {}, rank {} {} {}",
                       x.sequence, to_b ? rank_a : rank_b, to_b ? rank_b : rank_a, rank_a,
                       to_b ? "sends" : "expects", data(x), rank_b, to_b ? "expects" : "sends",
                       data(y));
  }
  if (x.collective != y.collective || !same_place(a, b))
    return both("called", whole_call(x), whole_call(y));
  if (x.count != y.count || x.type != y.type)
    return fmt::format("{}: {}", call(x), both("passed", data(x), data(y)));
  if (x.op != y.op)
    return fmt::format("{} of {}: {}", call(x), data(x), both("passed", name(x.op), name(y.op)));
  if (x.root != y.root)
    return fmt::format("{} of {}: {}", call(x), data(x),
                       both("passed root", std::to_string(x.root), std::to_string(y.root)));
  if (x.algorithm != y.algorithm)
    return fmt::format("{}: {}; set_algorithm() and WEFT_* must say the same on all ranks",
                       whole_call(x),
                       both("runs it", algorithm_name(x.algorithm), algorithm_name(y.algorithm)));
  if (x.elements != y.elements)
    return fmt::format("{}: {} at a time; tuning must be the same on all ranks", whole_call(x),
                       both("cuts it in", fmt::format("{} elements", x.elements),
                            fmt::format("{} elements", y.elements)));
  return fmt::format(
      "{}: {}; is it the same version of weft with the same settings?", whole_call(x),
      both("has plan", fmt::format("{:08x}", x.plan), fmt::format("{:08x}", y.plan)));
}

}  // namespace weft
