// Deals blocks of equal cost out to the stages of a pipeline. This file does not know what a block
// computes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace weft::train {

// Returns how many of `blocks` consecutive blocks each stage gets, so that the slowest stage is as
// fast as can be. beside: what else each stage computes (embedding, head), in blocks. Each stage
// gets one block at least; of equal stages the first ones get more.
inline std::vector<std::size_t> balance_blocks(std::size_t blocks, std::vector<double> beside) {
  std::vector<std::size_t> counts(beside.size(), 1);
  for (double& cost : beside) ++cost;
  for (std::size_t dealt = counts.size(); dealt < blocks; ++dealt) {
    const auto least = std::min_element(beside.begin(), beside.end());
    ++*least;
    ++counts[static_cast<std::size_t>(least - beside.begin())];
  }
  return counts;
}

}  // namespace weft::train
