// Who of a host's ranks tells of a rail that failed: one of them, once.
//
// Every rank takes out its own lanes, at about the same time, for one and the same reason. The
// ranks of a host count the lanes that are out, together, in memory that they share.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "topo/topology.h"
#include "transport/job/bootstrap.h"
#include "transport/memory/shared_region.h"

namespace weft {

class RailVoice {
 public:
  // On all ranks at the same time. Ranks of a host that cannot share memory each speak for
  // themselves.
  RailVoice(Job& job, const Topology& topology);

  // A lane of the rail went; or came back. Whether to tell of it: of the first that goes, where it
  // was noticed here (else its other end tells); of the last that comes back, if its going was
  // told.
  bool out(int rail, bool seen_here) noexcept;
  bool back(int rail) noexcept;

 private:
  struct Rail {
    std::atomic<std::uint32_t> lanes_out{0};
    std::atomic<std::uint32_t> told{0};
  };
  std::unique_ptr<SharedRegion> shared_;
  std::vector<Rail> own_;  // where there is no shared memory
  std::span<Rail> rails_;
};

}  // namespace weft
