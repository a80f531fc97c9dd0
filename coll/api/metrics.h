// Counters of one rank, for programs (World::metrics) and for Prometheus.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "coll/types.h"
#include "topo/base/status.h"

namespace weft {

// Since the World was made. Traffic is what messages carry, and what a rank reads of another one's
// data in small collectives on boards in shared memory (which count as sent there).
struct Metrics {
  Rank rank = 0;
  int size = 1;
  struct Calls {
    Collective collective;
    std::uint64_t calls = 0, failures = 0;
    std::uint64_t bytes = 0;  // count times the size of an element, over all calls
  };
  std::vector<Calls> calls;  // of collectives that were called
  struct Traffic {
    Rank peer;
    std::string link;  // "shm", "rail 0 (eth0)": the one of the pair; `rails` says what went where
    std::uint64_t bytes_sent = 0, bytes_received = 0;
    std::uint64_t messages_sent = 0, messages_received = 0;
  };
  std::vector<Traffic> traffic;  // of pairs that exchanged something
  struct Rail {
    std::string link;  // "rail 0 (eth0)"
    std::uint64_t bytes_sent = 0;
  };
  std::vector<Rail> rails;    // messages spread over rails or sent again where they really went
  std::uint64_t stalls = 0;   // times that nothing moved for 5 ms while an operation waited
  double stalled_s = 0;       // all together
  std::uint64_t naps = 0;     // times a waiting rank went to sleep
  std::uint64_t retries = 0;  // messages that were sent once more
  // Rails that failed (transport/rails/rails.h): lanes with a peer that were taken out and back,
  // and the messages that went over another one instead.
  std::uint64_t rails_taken_out = 0, rails_taken_back = 0, replayed = 0, replayed_bytes = 0;
  struct Outage {
    int rail;
    Rank peer;
    std::string cause;
    bool back = false;  // taken back since
  };
  std::vector<Outage> outages;  // the last one of each lane that was taken out
  // Ranks whose messages come, and that answer on no rail what rails ask each other (by UDP): with
  // these, none stands in for another.
  std::vector<Rank> unheard;
  // What `auto` picked, and how long that really takes: a sample of the calls is timed.
  struct Pick {
    Collective collective;
    std::size_t bytes;  // messages up to this, and larger than half of it
    int ranks;
    std::string algorithm, runner_up;
    double predicted_us = 0, runner_up_us = 0;
    std::uint64_t measured = 0;  // calls that were timed
    double mean_us = 0, min_us = 0;
  };
  std::vector<Pick> picks;
};

// Text exposition format, all names begin with weft_.
std::string to_prometheus(const Metrics& metrics);

}  // namespace weft
