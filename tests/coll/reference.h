// A collective's arguments on every rank, and its expected result, computed without weft.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory_resource>
#include <string>
#include <vector>

#include "coll/types.h"
#include "support/jobs/payload.h"
#include "topo/base/status.h"

namespace weft::testing {

// The factor of every premultiplied sum, also used by reduced() in payload.h.
inline constexpr double kFactor = 2;

struct Question {
  Collective collective = Collective::kAllReduce;
  int n = 1;
  std::size_t count = 0;
  DType type = DType::kFloat32;
  RedOp op = RedOp::kSum;
  bool in_place = false;
  Rank root = 0;
  // Blocks of different sizes: counts[r] is {size of block r} or, for all_to_all_v, r's counts for
  // each rank. Empty: all blocks have `count` elements.
  std::vector<std::vector<std::size_t>> counts = {};

  Reduction reduction() const { return {op, op == RedOp::kPreMulSum ? kFactor : 1}; }
  bool is_vector() const { return !counts.empty(); }
  // Elements of rank r's block; in an all_to_all, of r's block for `s`.
  std::size_t block(int r, int s = 0) const {
    if (!is_vector()) return count;
    return counts[static_cast<std::size_t>(r)]
                 [static_cast<std::size_t>(collective == Collective::kAllToAll ? s : 0)];
  }
  // Offset of rank r's block in the buffer of all blocks.
  std::size_t begin(int r) const {
    std::size_t at = 0;
    for (int i = 0; i < r; ++i) at += block(i);
    return at;
  }
  std::size_t sent_at(int r, int s) const {  // offset in r's input of the block for s
    std::size_t at = 0;
    for (int i = 0; i < s; ++i) at += block(r, i);
    return at;
  }
  std::size_t received_at(int r, int s) const {  // offset in r's output of the block from s
    std::size_t at = 0;
    for (int i = 0; i < s; ++i) at += block(i, r);
    return at;
  }

  std::size_t in_elements(int r) const;
  std::size_t out_elements(int r) const;
  double input(int r, std::size_t i) const;
  // End of the elements of rank r's result that come from rank `block`'s block; the end of the
  // result if it has only one.
  std::size_t end_of(int r, int block) const;
  // Element i of rank r's result, which lies in `block`, combines the operands' elements at i +
  // origin(r, block), modulo 2^64; output() takes that index.
  std::size_t origin(int r, int block) const;
  double output(std::size_t operand, int block) const;
  std::string words() const;
};

// The buffers of one rank, misaligned by `shift` bytes, with guard bytes around them.
class RankData {
 public:
  RankData(const Question& q, int r, std::size_t shift = 0,
           std::pmr::memory_resource* memory = std::pmr::get_default_resource());
  RankData(RankData&&);  // moved vectors keep their memory
  ~RankData();

  // An error message, or empty.
  std::string check() const;

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
