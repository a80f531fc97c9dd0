// A collective's arguments on every rank, and what must come out, computed without weft.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory_resource>
#include <string>
#include <vector>

#include "coll/types.h"
#include "support/payload.h"

namespace weft::testing {

// The factor of every premultiplied sum; payload.h's reduced() knows it.
inline constexpr double kFactor = 2;

struct Question {
  Collective collective = Collective::kAllReduce;
  int n = 1;
  std::size_t count = 0;
  DType type = DType::kFloat32;
  RedOp op = RedOp::kSum;
  bool in_place = false;
  Rank root = 0;
  // Blocks of different sizes: counts[r] is {that of rank r}, or of an all_to_all what r has for
  // each rank. Empty: all have `count`.
  std::vector<std::vector<std::size_t>> counts = {};

  Reduction reduction() const { return {op, op == RedOp::kPreMulSum ? kFactor : 1}; }
  bool uneven() const { return !counts.empty(); }
  // Elements of the block of rank r; in an all_to_all, that `r` has for `s`.
  std::size_t block(int r, int s = 0) const {
    if (!uneven()) return count;
    return counts[static_cast<std::size_t>(r)]
                 [static_cast<std::size_t>(collective == Collective::kAllToAll ? s : 0)];
  }
  // Where the block of rank r begins in the buffer of all blocks.
  std::size_t begin(int r) const {
    std::size_t at = 0;
    for (int i = 0; i < r; ++i) at += block(i);
    return at;
  }
  std::size_t sent_at(int r, int s) const {  // in the input of r, of what it has for s
    std::size_t at = 0;
    for (int i = 0; i < s; ++i) at += block(r, i);
    return at;
  }
  std::size_t received_at(int r, int s) const {  // in the output of r, of what it got from s
    std::size_t at = 0;
    for (int i = 0; i < s; ++i) at += block(i, r);
    return at;
  }

  std::size_t in_elements(int r) const {
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
  std::size_t out_elements(int r) const {
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
  double input(int r, std::size_t i) const {
    return reduces(collective) ? operand(r, i, type, op) : value(r, i);
  }
  // Element i of the result on rank r, which knows in which block it lies.
  double output(int r, std::size_t i, int block_of_i) const {
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
  int block_at(int r, std::size_t i) const {
    const bool exchange = collective == Collective::kAllToAll;
    int b = 0;
    while (b + 1 < n && (exchange ? received_at(r, b + 1) : begin(b + 1)) <= i) ++b;
    return b;
  }
  std::string words() const {
    return fmt::format("{}{} of {} x {} {} over {} ranks, root {}{}", name(collective),
                       uneven() ? "_v" : "", count, name(type), reduces(collective) ? name(op) : "",
                       n, root, in_place ? ", in place" : "");
  }
};

// The buffers of one rank, `shift` bytes past their alignment, with bytes around them that must
// stay as they are.
class RankData {
 public:
  RankData(const Question& q, int r, std::size_t shift = 0,
           std::pmr::memory_resource* memory = std::pmr::get_default_resource())
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
  RankData(RankData&&) = default;  // vectors keep their memory

  // Empty, or what is wrong.
  std::string check() const {
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

  std::byte *in = nullptr, *out = nullptr;

 private:
  static constexpr std::byte kPoison{0xA5};
  static constexpr std::size_t kGuard = 64;
  bool shares() const { return q_.in_place && q_.in_elements(r_) && q_.out_elements(r_); }
  std::size_t in_begin() const { return static_cast<std::size_t>(in - in_memory_.data()); }

  const Question& q_;
  int r_;
  std::pmr::vector<std::byte> in_memory_, out_memory_;
  std::vector<std::byte> before_;
};

}  // namespace weft::testing
