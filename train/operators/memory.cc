// The out-of-memory error. Does not depend on tensors.
#include "train/operators/memory.h"

#include <fmt/format.h>

#include <cstddef>

#include "topo/base/status.h"

namespace weft::train {

void out_of_memory(std::size_t count, std::size_t bytes_of_each) {
  throw Error(
      fmt::format("out of memory: a tensor of {} numbers needs {:.1f} GB more; use fewer "
                  "--positions, a smaller "
                  "--micro-batch or --width, or split them: --tp",
                  count, static_cast<double>(count) * static_cast<double>(bytes_of_each) / 1e9));
}

}  // namespace weft::train
