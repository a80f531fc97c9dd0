// Datagrams between ranks along a rail, beside its transport: how Rails (rails.h) asks whether a
// rail is alive, and how the two ends of a pair agree on what to do when it is not.
//
// A datagram may be lost, come late, twice or out of order; one that comes is as it was sent, and
// from whom it says. No call waits. Used by one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "topo/base/status.h"

namespace weft {

struct Datagram {
  Rank from = kNoRank;
  int rail = 0;
  std::string bytes;
};

class DatagramChannel {
 public:
  static constexpr std::size_t kMostBytes = 60000;

  virtual ~DatagramChannel() = default;
  virtual std::int64_t now_us() noexcept = 0;  // of a clock that never goes back
  virtual void send(Rank to, int rail, std::string_view bytes) noexcept = 0;
  virtual bool receive(Datagram& datagram) noexcept = 0;  // false: there is none
  // Whether this host's own device of the rail has a link; true where that is unknown.
  virtual bool link_up(int rail) noexcept = 0;
  // A wish: to be polled again by then. Real jobs poll anyway.
  virtual void wake_in(std::int64_t us) noexcept { (void)us; }
  // Adds what becomes readable when a datagram comes.
  virtual void arm(std::vector<int>& fds) noexcept { (void)fds; }
};

}  // namespace weft
