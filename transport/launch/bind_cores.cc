// Binds a rank to its share of the cores with sched_setaffinity. Does not consider NUMA.
#include "transport/launch/bind_cores.h"

#include <sched.h>

#include <vector>

namespace weft {

void bind_to_share(Rank rank, int ranks) {
  cpu_set_t all, mine;
  if (sched_getaffinity(0, sizeof all, &all) != 0) return;
  std::vector<int> cores;
  for (int c = 0; c < CPU_SETSIZE; ++c)
    if (CPU_ISSET(c, &all)) cores.push_back(c);
  const int n = static_cast<int>(cores.size());
  CPU_ZERO(&mine);
  if (ranks >= n) {
    CPU_SET(cores[static_cast<std::size_t>(rank % n)], &mine);
  } else {
    for (int i = rank * n / ranks; i < (rank + 1) * n / ranks; ++i)
      CPU_SET(cores[static_cast<std::size_t>(i)], &mine);
  }
  sched_setaffinity(0, sizeof mine, &mine);  // ignored: a failure only slows the rank
}

}  // namespace weft
