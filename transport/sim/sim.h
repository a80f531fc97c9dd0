// A simulated fabric in virtual time, as a Transport.
//
// The engine runs on it without changes. The fabric is a deterministic test bed (delays, reordering
// and failures by seed) and predicts the time of a schedule. It models links, ports and cores, and
// does not depend on collectives. Only one thread may use a fabric and its endpoints.
//
// The model: a small (eager) message leaves when the send is posted, a larger message when the
// receive is posted as well. A message passes the sender's tx port, the spine if it changes rails,
// and the receiver's rx port. A port serves messages one after another, each for bytes / rate;
// contention is modeled as queuing. Switches cut through and have unlimited buffers, so the time of
// a single message is latency + bytes / rate, with the latency of the host, the rail, or the spine
// (between rails). Messages between leaves also pass the uplinks of both leaves on their rail. A
// send completes when its last byte has left, a receive when its last byte has arrived and the
// receiver's core has processed the message. Time is in whole picoseconds; equal inputs give equal
// results.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "transport/transport.h"

namespace weft {

struct SimLink {
  double latency_us = 0;
  double gbps = 0;
};

// A failure at virtual time `at_us`: rank `rank` dies, or, if `rank` is kNoRank, the link of the
// NIC of `host` on `rail` goes down.
struct SimFailure {
  double at_us = 0;
  Rank rank = kNoRank;
  int host = -1;
  int rail = -1;
};

// From virtual time `at_us` on, the NIC of every host on `rail` has its rate multiplied by
// `factor`.
struct SimSlowdown {
  double at_us = 0;
  int rail = 0;
  double factor = 1;
};

// The rate of the NIC of `host` on `rail` is multiplied by `factor`. 0: dead; its traffic uses the
// next rail on which both ends have a port, as in Rails (transport/rails).
struct SimSlowPort {
  int host = 0;
  int rail = 0;
  double factor = 1;
};

struct SimFabricOptions {
  std::vector<int> host_of_rank;   // host of each rank, from 0
  std::vector<int> rail_of_rank;   // empty: rail 0. Ranks of one host and rail share a NIC
  SimLink host{0.5, 200};          // between ranks of a host; each rank has a tx and an rx port
  SimLink rail{5, 100};            // each NIC has a tx and an rx port at the switch of its rail
  SimLink spine{8, 100};           // shared by all cross-rail traffic from one host to another
  std::vector<int> leaf_of_host;   // leaf of each host; empty: one leaf
  double uplink_gbps = 0;          // per leaf and rail, each way; 0: unlimited
  std::vector<double> rail_scale;  // rate of rail r = rail.gbps * rail_scale[r]; empty: all 1
  std::vector<SimSlowdown> slowdowns;
  std::vector<SimSlowPort> slow_ports;
  // Relative speed of each host's cores and inner links; empty: all 1.
  std::vector<double> host_scale;
  double payload_share = 1;        // payload per byte on a rail or the spine (TCP: 1448.0 / 1538)
  std::size_t header_bytes = 0;    // header bytes per message on a rail or the spine
  std::size_t eager_below = 8192;  // shorter messages do not wait for their receive
  // The core that handles a rank's messages; empty: each rank has its own core.
  std::vector<int> cpu_of_rank;
  double post_us = 0;             // core time of the sender, per message ...
  double send_us_per_byte = 0;    // ... and per byte
  double complete_us = 0;         // core time of the receiver, per message ...
  double copy_us_per_byte = 0;    // ... and per byte of a kRecv ...
  bool rail_copies = true;        // (also between hosts, as with sockets) ...
  double reduce_us_per_byte = 0;  // ... or per byte of a kView, which its reader reduces
  double skew_us = 0;             // maximum late start of ranks; applied by the driver
  std::uint64_t seed = 1;         // seed of delays and late starts
  double delay_us_max = 0;        // maximum extra delay of a message
  bool reorder = false;           // delays may reorder the messages of a pair
  std::vector<SimFailure> failures;
  std::uint64_t lose_message = 0;  // the message to lose, numbered by departure from 1 (0:
                                   // none); only its two transfers fail
  // True: messages are delayed without an error while a link is down (as on TCP). False: the link
  // drops them and their transfers fail (as on verbs).
  bool cut_stalls = false;
  double detect_us = 100;  // from a failure to the peers' error completions
  // By rank: its representative, whose ports, core and completions it shares (coll/sim/one_host.h).
  // Representatives are the ranks of the first host, or the first rank of each host if every rank
  // of a host has its own rail. Empty: each rank represents itself. No data is transferred, and
  // messages of different lengths match.
  std::vector<Rank> same_as;
  Rank watch = kNoRank;  // rank whose ports and core are recorded per message
  bool views = true;
  bool carry_data = true;  // false: no bytes move, caps().phantom
};

// Total work of a port or core so far.
struct SimPortUse {
  std::string name;  // "host 3 rail 1 tx", "rank 5 local rx", "leaf 2 rail 1 up", "spine host 0 ->
                     // host 1", "cpu 2"
  std::uint64_t bytes = 0;  // payload
  double busy_us = 0;
};

// A message's service by a port or core of the rank SimFabricOptions::watch.
struct SimService {
  const char* at;  // "host tx", "host rx", "rail tx", "rail rx", "core"
  double from_us, to_us;
  std::uint64_t tag;
  std::size_t bytes;
};

struct SimStatistics {
  std::uint64_t messages = 0;  // departed messages
  std::uint64_t events = 0;
  std::uint64_t host_bytes = 0;              // payload between ranks of a host
  std::vector<std::uint64_t> rail_bytes;     // payload between hosts, by departure rail
  std::uint64_t cross_rail_bytes = 0;        // the part of rail_bytes that changed rails
  std::uint64_t uplink_bytes = 0;            // the part of rail_bytes that went from leaf to leaf
  std::vector<std::uint64_t> host_tx_bytes;  // payload that left each host
  std::vector<SimPortUse> ports;             // used ports, busiest first: ports[0] limits
  std::vector<SimService> watched;           // services in the order in which they were accepted
};

class SimFabric {
 public:
  // Throws Error naming the option and its value if an option is invalid.
  explicit SimFabric(SimFabricOptions options);
  ~SimFabric();
  SimFabric(const SimFabric&) = delete;
  SimFabric& operator=(const SimFabric&) = delete;

  // Creates the endpoint of a rank, at most one at a time. The fabric must outlive it; its
  // destructor cancels its transfers.
  std::unique_ptr<Transport> endpoint(Rank rank);

  int nranks() const;
  std::int64_t now_ps() const;
  double now_us() const;

  // Advances virtual time to the next event and handles all events of that time. Returns false if
  // no event is scheduled: virtual time does not advance until a rank posts.
  bool advance();

  // Returns the living ranks that have completions to poll or were woken. The span is valid until
  // the next call of runnable().
  std::span<const Rank> runnable();

  // Makes `rank` runnable once at virtual time `at_us` (late starters, deadlines).
  void wake(Rank rank, double at_us);

  // Occupies the rank's core for `us` after its queued work. Returns the time of completion.
  double work(Rank rank, double us);

  // Triggers a failure now: see SimFailure.
  void kill(Rank rank);
  void cut(int host, int rail);
  // Restores a cut link. Lost messages are not restored; their ranks must post them again.
  void mend(int host, int rail);
  bool link_up(int host, int rail) const;
  // Cancels all transfers of `rank` with `peer`, without completions, and drops the peer's
  // unexpected messages: Recovery::disconnect().
  void disconnect(Rank rank, Rank peer);
  bool alive(Rank rank) const;

  std::uint64_t activity() const;  // completions reported plus polled, over all ranks
  std::size_t views_lent() const;  // views not yet released, over all ranks
  std::uint64_t trace() const;     // a hash of all events so far and their times
  SimStatistics statistics() const;

  struct State;

 private:
  std::unique_ptr<State> state_;
};

// Drives a fabric until done(), which is called often. Runs progress(rank) for every living rank
// once, then for runnable() ranks; advances virtual time if no rank is runnable. Returns false on a
// deadlock: virtual time stands still and a last pass over all ranks changed nothing.
template <class Progress, class Done>
bool drive(SimFabric& fabric, Progress&& progress, Done&& done) {
  const auto all = [&] {
    for (Rank r = 0; r < fabric.nranks(); ++r) {
      if (fabric.alive(r)) progress(r);
    }
  };
  all();
  while (!done()) {
    const std::uint64_t before = fabric.activity();
    for (const Rank r : fabric.runnable()) {
      if (fabric.alive(r)) progress(r);
    }
    if (fabric.activity() != before) continue;
    if (done()) break;  // before time advances
    if (fabric.advance()) continue;
    all();
    if (fabric.activity() == before && !done() && !fabric.advance()) return false;
  }
  return true;
}

}  // namespace weft
