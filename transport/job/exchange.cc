// An all-gather in which failing ranks also take part. Does not interpret the exchanged bytes.
#include "transport/job/exchange.h"

#include <fmt/format.h>

namespace weft {
namespace {

// The first byte of a rank's contribution; the rank's value or its error follows.
constexpr char kSays = 's';
constexpr char kFailed = 'e';

}  // namespace

std::string rank_on_host(const Topology& topology, Rank rank) {
  return rank < topology.nranks()
             ? fmt::format("rank {} on host {}", rank, topology.host_name(topology.host(rank)))
             : fmt::format("rank {}", rank);
}

std::vector<std::string> exchange(Job& job, const Topology& topology,
                                  const std::function<std::string()>& say) {
  std::string mine;
  try {
    mine = kSays + say();
  } catch (const Error& error) {
    mine = kFailed + std::string(error.what());
  }
  std::vector<std::string> all = job.all_gather(mine);
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (!all[r].starts_with(kSays))
      throw Error(fmt::format("{}: {}", rank_on_host(topology, static_cast<Rank>(r)),
                              all[r].empty() ? "it sent nothing" : all[r].substr(1)));
    all[r].erase(0, 1);
  }
  return all;
}

}  // namespace weft
