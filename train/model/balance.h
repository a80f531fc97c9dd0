// Distributes blocks of equal cost over pipeline stages. Does not depend on the blocks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace weft::train {

// Returns the numbers of consecutive blocks by stage that minimize the time of the slowest stage.
// beside: the cost of the stage's other layers (embedding, head), in blocks. Each stage gets at
// least one block; among equal stages, the first stages get more.
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
