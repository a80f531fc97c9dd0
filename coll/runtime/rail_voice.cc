#include "coll/runtime/rail_voice.h"

#include <fmt/format.h>
#include <unistd.h>

#include <sstream>
#include <string>
#include <utility>

#include "topo/base/log.h"
#include "topo/base/status.h"

namespace weft {

RailVoice::RailVoice(Job& job, const Topology& topology)
    : own_(static_cast<std::size_t>(topology.nrails())), rails_(own_) {
  const Rank me = job.rank();
  const Rank first = topology.ranks_of(topology.host(me)).front();
  const std::size_t bytes = own_.size() * sizeof(Rail);
  std::string where;
  std::unique_ptr<SharedRegion> region;
  try {
    if (me == first) {
      region = std::make_unique<SharedRegion>(SharedRegion::create(bytes, "weft-rails"));
      where = fmt::format("{} {}", getpid(), region->fd());
    }
  } catch (const Error& e) {
    log().debug("weft: rank {}: {}", me, e.what());
  }
  const auto all = job.all_gather(where);
  try {
    std::istringstream theirs(all[static_cast<std::size_t>(first)]);
    pid_t pid = 0;
    int fd = 0;
    if (me != first && theirs >> pid >> fd &&
        topology.place(me).machine == topology.place(first).machine)
      region = std::make_unique<SharedRegion>(SharedRegion::open(pid, fd, bytes));
  } catch (const Error& e) {
    log().debug("weft: rank {}: speaks for itself: {}", me, e.what());
  }
  job.all_gather("");  // the first one may go away only when all have opened it
  if (!region) return;
  shared_ = std::move(region);
  Rail* const rails = reinterpret_cast<Rail*>(shared_->data());
  // New memory is zero, which is what a counter of nothing is.
  rails_ = {rails, own_.size()};
}

bool RailVoice::out(int rail, bool seen_here) noexcept {
  Rail& r = rails_[static_cast<std::size_t>(rail)];
  if (r.lanes_out.fetch_add(1) != 0 || !seen_here) return false;
  r.told = 1;
  return true;
}

bool RailVoice::back(int rail) noexcept {
  Rail& r = rails_[static_cast<std::size_t>(rail)];
  return r.lanes_out.fetch_sub(1) == 1 && r.told.exchange(0) != 0;
}

}  // namespace weft
