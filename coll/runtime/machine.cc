// What the ranks of a machine tell each other at the start: their cores, and whose memory they can
// map. Does not know the transport that uses it.
#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "coll/runtime/core.h"
#include "topo/base/log.h"
#include "transport/shm/reach.h"

namespace weft {
namespace {

// The cores this process may use, one bit each.
cpu_set_t usable_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) {
    CPU_ZERO(&set);
    CPU_SET(0, &set);
  }
  return set;
}

}  // namespace

std::vector<Rank> Core::meet_machine(const std::vector<std::string>& offers) {
  const int n = job->size();
  const Rank me = job->rank();
  std::vector<Rank> others;
  std::vector<std::string> machines;
  for (Rank r = 0; r < n; ++r) {
    machines.push_back(topology->place(r).machine);
    if (r != me && machines.back() == topology->place(me).machine) others.push_back(r);
  }
  const cpu_set_t mine = usable_cores();
  const auto said = job->all_gather(std::string(reinterpret_cast<const char*>(&mine), sizeof mine) +
                                    shm::refusals(others, offers));

  // More ranks than cores? Launchers bind each rank to a few: what counts is all of theirs
  // together.
  cpu_set_t together;
  CPU_ZERO(&together);
  int here = 0;
  std::vector<std::string> refused;
  for (Rank r = 0; r < n; ++r) {
    const std::string& text = said[static_cast<std::size_t>(r)];
    if (text.size() < sizeof mine)
      throw Error(fmt::format("rank {} speaks another version of weft", r));
    refused.push_back(text.substr(sizeof mine));
    if (!topology->same_kernel(r, me)) continue;
    ++here;
    cpu_set_t theirs;
    std::memcpy(&theirs, text.data(), sizeof theirs);
    CPU_OR(&together, &together, &theirs);
  }
  oversubscription = std::max(1.0, static_cast<double>(here) / std::max(1, CPU_COUNT(&together)));
  oversubscribed = oversubscription > 1;

  for (Rank r = 0; r < n; ++r) {
    const std::string why = shm::reason_of(refused[static_cast<std::size_t>(r)]);
    if (why.empty()) continue;
    if (options.transport == "shm")
      throw Error(
          fmt::format("transport shm: rank {} cannot map {}; --transport auto takes tcp "
                      "between them",
                      r, why));
    if (me == 0) log().warn("weft: rank {} cannot map {}: no shared memory between them", r, why);
    break;
  }
  return shm::memory_groups(machines, refused);
}

}  // namespace weft
