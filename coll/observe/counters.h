// Counters: the values that Metrics reports. The rank's Core updates them under its lock; the
// control plane's thread may read them at any time.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "coll/api/metrics.h"
#include "coll/select/choice.h"
#include "topo/base/mutex.h"

namespace weft {

// A counter: one thread increments it, any thread reads it.
class Count {
 public:
  void add(std::uint64_t n = 1) noexcept {
    value_.store(value_.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
  }
  std::uint64_t get() const noexcept { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_{0};
};

struct Counters {
  // board_link: index of the link to which board traffic is attributed; -1: there are no boards.
  Counters(Rank rank, int size, std::vector<std::string> links, int board_link);

  struct Call {
    Count calls, failures, bytes;
  };
  std::array<Call, 32> calls;  // indexed by Collective
  struct Traffic {
    Count bytes_sent, bytes_received, messages_sent, messages_received;
  };
  Traffic& traffic(int link, Rank peer) {
    return traffic_[static_cast<std::size_t>(link) * static_cast<std::size_t>(size) +
                    static_cast<std::size_t>(peer)];
  }
  // The bytes and messages that each member of a group sent to, and received from, each other
  // member on the group's board. For the calls counted here, both directions are equal.
  struct BoardTraffic {
    Count messages, bytes;
  };
  // Returns the traffic of the group with these ranks; valid for the lifetime of the counters.
  BoardTraffic& board(const std::vector<Rank>& ranks);
  Count stalls, stalled_ns, naps, retries;
  Count rails_taken_out, rails_taken_back, replayed, replayed_bytes;

  void rail_out(int rail, Rank peer, const std::string& cause);
  void rail_back(int rail, Rank peer);
  void unheard(Rank peer, bool is);
  void picked(Collective c, int size_class, int ranks, const std::vector<Candidate>& candidates);
  void measured(Collective c, int size_class, int ranks, std::string_view algorithm, double us);

  Metrics read() const;

  const Rank rank;
  const int size;
  const std::vector<std::string> links;
  const int board_link;

 private:
  std::vector<Traffic> traffic_;
  mutable Mutex mutex_;
  std::map<std::vector<Rank>, BoardTraffic> boards_ WEFT_GUARDED_BY(mutex_);
  // By rail and peer.
  std::map<std::pair<int, Rank>, Metrics::Outage> outages_ WEFT_GUARDED_BY(mutex_);
  std::set<Rank> unheard_ WEFT_GUARDED_BY(mutex_);
  std::map<std::tuple<Collective, int, int, std::string_view>, Metrics::Pick> picks_
      WEFT_GUARDED_BY(mutex_);
};

}  // namespace weft
