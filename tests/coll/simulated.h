// Runs a collective on the simulated fabric, with data.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <vector>

#include "coll/reference.h"
#include "coll/sim/simulate.h"

namespace weft::testing {

// Runs the algorithm with data and compares every byte of every rank.
inline SimResult run_with_data(const Algorithm& a, const Shape& shape, std::size_t count,
                               DType type, const SimFabricOptions& options, bool in_place = false,
                               RedOp op = RedOp::kSum, const Tuning& tuning = {}) {
  const Question q{a.collective, shape.nranks, count, type, op, in_place, shape.root};
  std::vector<RankData> data;
  data.reserve(static_cast<std::size_t>(q.n));
  SimBuffers buffers;
  buffers.op = q.reduction();
  buffers.in_place = in_place;
  for (int r = 0; r < q.n; ++r) {
    data.emplace_back(q, r);
    buffers.in.push_back(data.back().in);
    buffers.out.push_back(data.back().out);
  }
  const SimResult result = simulate(a, shape, count, type, options, tuning, buffers);
  for (const RankData& d : data)
    if (const std::string wrong = d.check(); !wrong.empty()) {
      ADD_FAILURE() << wrong;
      break;
    }
  return result;
}

}  // namespace weft::testing
