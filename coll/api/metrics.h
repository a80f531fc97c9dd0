// The counters of one rank, for programs (World::metrics()) and for Prometheus.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "coll/types.h"
#include "topo/base/status.h"

namespace weft {

// All counters start when the World is made. Traffic counts the bytes that messages carry, and the
// bytes that a small collective reads from a peer's board in shared memory (sent by that peer).
struct Metrics {
  Rank rank = 0;
  int size = 1;
  struct Calls {
    Collective collective;
    std::uint64_t calls = 0, failures = 0;
    std::uint64_t bytes = 0;  // the sum over all calls of count times the element's size
  };
  std::vector<Calls> calls;  // one entry per collective that was called
  struct Traffic {
    Rank peer;
    std::string link;  // the pair's own link: "shm", "rail 0 (eth0)"
    std::uint64_t bytes_sent = 0, bytes_received = 0;
    std::uint64_t messages_sent = 0, messages_received = 0;
  };
  std::vector<Traffic> traffic;  // one entry per link and peer that carried messages
  struct Rail {
    std::string link;  // "rail 0 (eth0)"
    std::uint64_t bytes_sent = 0;
  };
  std::vector<Rail> rails;    // spread and resent messages count for the rail that carried them
  std::uint64_t stalls = 0;   // times without progress for 5 ms while a task waited
  double stalled_s = 0;       // total length of all stalls
  std::uint64_t naps = 0;     // times that a waiting thread slept
  std::uint64_t retries = 0;  // messages that integrity mode resent
  // Lanes (a rail to one peer, transport/rails/rails.h) that failed and were taken out, lanes that
  // were taken back, and the messages and bytes that another rail carried instead.
  std::uint64_t rails_taken_out = 0, rails_taken_back = 0, replayed = 0, replayed_bytes = 0;
  struct Outage {
    int rail;
    Rank peer;
    std::string cause;
    bool back = false;  // the lane was taken back since
  };
  std::vector<Outage> outages;  // the last outage of each lane that was taken out
  // Peers whose messages arrive, but that answer the rails' UDP datagrams on no rail: towards these
  // peers, rails cannot replace each other.
  std::vector<Rank> unheard;
  // An algorithm that `auto` picked, its predicted time and its measured time. A sample is timed.
  struct Pick {
    Collective collective;
    std::size_t bytes;  // upper end of the size class; the lower end is half of it
    int ranks;
    std::string algorithm, runner_up;
    double predicted_us = 0, runner_up_us = 0;
    std::uint64_t measured = 0;  // calls that were timed
    double mean_us = 0, min_us = 0;
  };
  std::vector<Pick> picks;
};

// The metrics in Prometheus' text exposition format; all names begin with weft_.
std::string to_prometheus(const Metrics& metrics);

}  // namespace weft
