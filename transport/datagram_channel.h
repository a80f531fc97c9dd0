// Datagrams between ranks along a rail, beside its transport. Rails (rails/rails.h) uses these
// datagrams to ask whether a rail is alive, and the two ends of a pair agree by datagrams on what
// to do when the rail is dead.
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
  virtual bool receive(Datagram& datagram) noexcept = 0;  // false: no datagram waits
  // True when this host's device of the rail has a link, or when that is unknown.
  virtual bool link_up(int rail) noexcept = 0;
  // Asks a simulated clock to poll again within `us`. Real jobs poll anyway and ignore the call.
  virtual void wake_in(std::int64_t us) noexcept { (void)us; }
  // Adds the file descriptors that become readable when a datagram arrives.
  virtual void arm(std::vector<int>& fds) noexcept { (void)fds; }
};

}  // namespace weft
