// Datagrams between ranks along a rail, in addition to its transport. Rails (rails/rails.h) uses
// them to probe rails, and to agree with a peer on recovery when a rail has failed.
//
// A datagram may be lost, late, repeated or out of order, but its bytes and its sender are genuine.
// No call waits. One thread uses the channel at a time.
#pragma once

#include <chrono>
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
  virtual std::int64_t now_us() noexcept {  // a clock that never goes back
    using namespace std::chrono;
    return duration_cast<microseconds>(steady_clock::now().time_since_epoch()).count();
  }
  virtual void send(Rank to, int rail, std::string_view bytes) noexcept = 0;
  virtual bool receive(Datagram& datagram) noexcept = 0;  // false: no datagram is queued
  // True if this host's device of the rail has a link, or if the link state is unknown.
  virtual bool link_up(int rail) noexcept = 0;
  // Asks a simulated clock to poll again within `us`. Real jobs poll anyway and ignore the call.
  virtual void wake_in(std::int64_t us) noexcept { (void)us; }
  // Adds the file descriptors that become readable when a datagram arrives.
  virtual void arm(std::vector<int>& fds) noexcept { (void)fds; }
};

}  // namespace weft
