// What must come out of a collective, element by element.
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

double Question::output(int r, std::size_t i, int block_of_i) const {
  switch (collective) {
    case Collective::kAllReduce:
    case Collective::kReduce:
      return reduced(n, i, type, op);
    case Collective::kReduceScatter:
      return reduced(n, begin(r) + i, type, op);
    case Collective::kAllGather:
    case Collective::kGather:
      return value(block_of_i, i - begin(block_of_i));
    case Collective::kScatter:
      return value(root, begin(r) + i);
    case Collective::kAllToAll:
      return value(block_of_i, sent_at(block_of_i, r) + i - received_at(r, block_of_i));
    default:
      return value(root, i);
  }
}

int Question::block_at(int r, std::size_t i) const {
  const bool exchange = collective == Collective::kAllToAll;
  int b = 0;
  while (b + 1 < n && (exchange ? received_at(r, b + 1) : begin(b + 1)) <= i) ++b;
  return b;
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
  for (std::size_t i = 0; i < q.in_elements(r); ++i) put(in, i, q.type, q.input(r, i));
  before_.assign(in_memory_.begin(), in_memory_.end());
}

std::string RankData::check() const {
  const std::size_t e = size_of(q_.type), n = q_.out_elements(r_);
  std::byte want[8];
  int block = n ? q_.block_at(r_, 0) : 0;
  for (std::size_t i = 0; i < n; ++i) {
    if (by_blocks(q_.collective)) {
      const bool exchange = q_.collective == Collective::kAllToAll;
      while (block + 1 < q_.n &&
             (exchange ? q_.received_at(r_, block + 1) : q_.begin(block + 1)) <= i)
        ++block;
    }
    put(want, 0, q_.type, q_.output(r_, i, block));
    if (std::memcmp(want, out + i * e, e) != 0)
      return fmt::format("rank {}: element {} of {} is wrong", r_, i, n);
  }
  const std::pmr::vector<std::byte>& written = shares() ? in_memory_ : out_memory_;
  const auto first = static_cast<std::size_t>(out - written.data());
  for (std::size_t i = 0; i < written.size(); ++i) {
    const bool result = i >= first && i < first + n * e;
    if (result) continue;
    // In place, what is not the result may be input that has been changed on the way; only
    // memory that is neither must be untouched.
    const bool input = shares() && i >= in_begin() && i < in_begin() + q_.in_elements(r_) * e;
    if (!input && written[i] != kPoison)
      return fmt::format("rank {}: wrote byte {} beside the result", r_, i);
  }
  if (!shares() && !std::ranges::equal(in_memory_, before_))
    return fmt::format("rank {}: input changed", r_);
  return {};
}

}  // namespace weft::testing
