// Expected results of collectives, element by element.
#include "tests/coll/reference.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "support/jobs/payload.h"

namespace weft::testing {

std::size_t Question::in_elements(int r) const {
  switch (collective) {
    case Collective::kAllGather:
    case Collective::kGather:
      return block(r);
    case Collective::kReduceScatter:
      return begin(n);
    case Collective::kScatter:
      return r == root ? begin(n) : 0;
    case Collective::kBroadcast:
      return r == root ? count : 0;
    case Collective::kAllToAll:
      return sent_at(r, n);
    case Collective::kBarrier:
      return 0;
    default:
      return count;
  }
}

std::size_t Question::out_elements(int r) const {
  switch (collective) {
    case Collective::kAllGather:
      return begin(n);
    case Collective::kGather:
      return r == root ? begin(n) : 0;
    case Collective::kReduceScatter:
    case Collective::kScatter:
      return block(r);
    case Collective::kReduce:
      return r == root ? count : 0;
    case Collective::kAllToAll:
      return received_at(r, n);
    case Collective::kBarrier:
      return 0;
    default:
      return count;
  }
}

double Question::input(int r, std::size_t i) const {
  return reduces(collective) ? operand(r, i, type, op) : value(r, i);
}

std::size_t Question::end_of(int r, int block) const {
  switch (collective) {
    case Collective::kAllGather:
    case Collective::kGather:
      return begin(block + 1);
    case Collective::kAllToAll:
      return received_at(r, block + 1);
    default:
      return out_elements(r);
  }
}

std::size_t Question::origin(int r, int block) const {
  switch (collective) {
    case Collective::kReduceScatter:
    case Collective::kScatter:
      return begin(r);
    case Collective::kAllGather:
    case Collective::kGather:
      return -begin(block);
    case Collective::kAllToAll:
      return sent_at(block, r) - received_at(r, block);
    default:
      return 0;
  }
}

double Question::output(std::size_t operand, int block) const {
  switch (collective) {
    case Collective::kAllReduce:
    case Collective::kReduce:
    case Collective::kReduceScatter:
      return reduced(n, operand, type, op);
    case Collective::kAllGather:
    case Collective::kGather:
    case Collective::kAllToAll:
      return value(block, operand);
    default:
      return value(root, operand);
  }
}

std::string Question::words() const {
  return fmt::format("{}{} of {} x {} {} over {} ranks, root {}{}", name(collective),
                     is_vector() ? "_v" : "", count, name(type),
                     reduces(collective) ? name(op) : "", n, root, in_place ? ", in place" : "");
}

RankData::RankData(const Question& q, int r, std::size_t shift, std::pmr::memory_resource* memory)
    : q_(q), r_(r), in_memory_(memory), out_memory_(memory) {
  const std::size_t e = size_of(q.type);
  const std::size_t in_bytes = q.in_elements(r) * e, out_bytes = q.out_elements(r) * e;
  std::size_t in_at = 0, out_at = 0, whole = std::max(in_bytes, out_bytes);
  if (q.in_place && in_bytes && out_bytes) {
    if (q.collective == Collective::kAllGather || q.collective == Collective::kGather)
      in_at = q.begin(r) * e;
    if (q.collective == Collective::kReduceScatter || q.collective == Collective::kScatter)
      out_at = q.begin(r) * e;
  }
  in_memory_.assign(whole + 2 * kGuard + shift, kPoison);
  out_memory_.assign(out_bytes + 2 * kGuard + shift, kPoison);
  in = in_memory_.data() + kGuard + shift + in_at;
  out = (shares() ? in_memory_.data() : out_memory_.data()) + kGuard + shift + out_at;
  for (std::size_t i = 0, n = q.in_elements(r); i < n; ++i) put(in, i, q.type, q.input(r, i));
  before_.assign(in_memory_.begin(), in_memory_.end());
}

// Defined here, since this file is optimized: in other files, destroying a vector calls a function
// per byte.
RankData::~RankData() = default;
RankData::RankData(RankData&&) = default;

std::string RankData::check() const {
  const std::size_t e = size_of(q_.type), n = q_.out_elements(r_);
  std::byte want[8];
  // Handles whole blocks, not elements: these tests spend most of their time here.
  std::size_t i = 0;
  for (int block = 0; i < n; ++block) {
    const std::size_t origin = q_.origin(r_, block);
    for (const std::size_t end = q_.end_of(r_, block); i < end; ++i) {
      put(want, 0, q_.type, q_.output(i + origin, block));
      if (std::memcmp(want, out + i * e, e) != 0)
        return fmt::format("rank {}: element {} of {} is wrong", r_, i, n);
    }
  }
  const std::pmr::vector<std::byte>& written = shares() ? in_memory_ : out_memory_;
  const auto first = static_cast<std::size_t>(out - written.data());
  // In place, memory outside the result may be input, which may have changed; only memory that is
  // neither input nor result must be unchanged.
  const std::size_t input = in_begin(), input_end = shares() ? input + q_.in_elements(r_) * e : 0;
  for (std::size_t at = 0; at < written.size(); ++at) {
    if (at == first) at += n * e;
    if ((at < input || at >= input_end) && at < written.size() && written[at] != kPoison)
      return fmt::format("rank {}: wrote byte {} beside the result", r_, at);
  }
  if (!shares() && !std::ranges::equal(in_memory_, before_))
    return fmt::format("rank {}: input changed", r_);
  return {};
}

}  // namespace weft::testing
