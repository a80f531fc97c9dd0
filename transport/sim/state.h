// The state of the simulated fabric: ports, messages, events. sim.cc contains set-up and reports,
// events.cc advances time, datapath.cc transfers messages, store.cc stores them, and failure.cc
// kills ranks and cuts links.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <queue>
#include <unordered_map>
#include <utility>
#include <vector>

#include "transport/messages/completions.h"
#include "transport/sim/sim.h"

namespace weft {

inline constexpr double kPsPerUs = 1e6;
// The end of virtual time, about two weeks. No duration is longer and no port is busy beyond twice
// this time, so that no sum of times overflows.
inline constexpr std::int64_t kSimEndPs = std::int64_t{1} << 60;

inline std::int64_t sim_ps(double ps) {
  return static_cast<std::int64_t>(std::min(static_cast<double>(kSimEndPs), ps + 0.5));
}

inline std::uint64_t sim_mix(std::uint64_t x) {  // finalizer of splitmix64
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

inline std::uint64_t sim_key(Rank a, Rank b) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(a)) << 32 |
         static_cast<std::uint32_t>(b);
}

// A FIFO server: a tx or rx port, the spine between two hosts, or a core.
struct SimPort {
  double ps_per_byte = 0;
  std::int64_t header_ps = 0;  // fixed time per message
  std::int64_t free_ps = 0;    // time at which all messages so far are served
  std::int64_t busy_ps = 0;
  std::uint64_t bytes = 0;

  std::int64_t duration_ps(std::size_t n) const {
    return header_ps + sim_ps(static_cast<double>(n) * ps_per_byte);
  }
  // Serves n bytes for `ps`, after all earlier messages. Returns when the service starts.
  std::int64_t serve(std::int64_t now_ps, std::int64_t ps, std::size_t n) {
    const std::int64_t start = free_ps > now_ps ? free_ps : now_ps;
    free_ps = std::min(start + ps, 2 * kSimEndPs);
    busy_ps = std::min(busy_ps + ps, 2 * kSimEndPs);
    bytes += n;
    return start;
  }
};

struct SimMessage {
  enum Flag : std::uint16_t {
    kSendPosted = 1,
    kRecvPosted = 2,
    kSendOpen = 4,  // posted, and neither completed nor cancelled
    kRecvOpen = 8,
    kWaiting = 16,   // in the match table: one side is not posted yet
    kIssued = 32,    // the sender's core has processed the message
    kDeparted = 64,  // the tx port has the message
    kSent = 128,     // the last byte has left
    kLanded = 256,   // the last byte has arrived
    kAsView = 512,   // the receive is for a view
    kLent = 1024,    // the receiver holds the view now
    kLost = 2048,    // the message will not arrive
  };
  std::uint64_t tag = 0;
  std::size_t bytes = 0;
  std::uint64_t send_id = 0;
  std::uint64_t recv_id = 0;
  Head head;  // the sender's head; if only the receive is posted, the expected head
  const void* from = nullptr;
  void* to = nullptr;
  std::int64_t tail_ps = 0;  // when the last byte reaches the last port passed
  Rank src = 0;
  Rank dst = 0;
  std::uint32_t next = 0;        // next message in the match table's bucket, or on the free list
  std::uint32_t buffer = 0;      // index of the buffer with the bytes, from kSent to the end
  std::uint32_t generation = 0;  // detects stale tokens
  std::uint16_t flags = 0;       // 0: on the free list
  std::uint16_t events = 0;      // number of events scheduled for the message

  bool has(unsigned f) const { return (flags & f) != 0; }
  void set(unsigned f) { flags = static_cast<std::uint16_t>(flags | f); }
  void clear(unsigned f) { flags = static_cast<std::uint16_t>(flags & ~f); }
};

struct SimEvent {
  enum class Kind : std::uint8_t {
    kIssue,  // a message is issued
    kTxEnd,
    kAtSpine,
    kAtRx,
    kLanded,
    kDeliver,
    kAtUplink,
    kAtDownlink,
    kDetectLoss,
    kWake,  // a rank wakes
    kKill,
    kDetectKill,
    kCut,  // a NIC loses its links
    kDetectCut,
    kSlow,  // an entry of slowdowns takes effect
  };
  std::int64_t at_ps;
  std::uint64_t order;  // counts scheduled events; breaks ties
  std::uint32_t subject;
  Kind kind;

  bool operator>(const SimEvent& o) const {
    return at_ps != o.at_ps ? at_ps > o.at_ps : order > o.order;
  }
};

struct SimFabric::State {
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  explicit State(SimFabricOptions o);

  // --- Transport, per rank
  void post(Rank rank, const Transfer& t);
  std::size_t poll(Rank rank, std::span<Completion> out);
  void release(Rank rank, std::uint64_t token);
  void cancel(Rank rank, std::uint32_t id_high, bool everything);
  Status cause(Rank rank, Rank peer) const;
  Rank unexpected(Rank rank, Rank peer, std::uint64_t tag, std::uint64_t mask, Head& theirs) const;

  // --- events
  void schedule(SimEvent::Kind kind, std::int64_t at_ps, std::uint32_t subject);
  bool advance();
  void handle(const SimEvent& event);

  // --- path of a message
  void try_depart(std::uint32_t m);
  void depart(std::uint32_t m);
  void at_uplink(std::uint32_t m);
  void at_spine(std::uint32_t m);
  void at_downlink(std::uint32_t m);
  void pass(std::uint32_t m, SimPort& port, SimEvent::Kind next);
  void at_rx(std::uint32_t m);
  void tx_end(std::uint32_t m);
  void arrived(std::uint32_t m);
  void deliver(std::uint32_t m);
  void close(std::uint32_t m, SimMessage::Flag side, Code code, bool report);
  void fail(std::uint32_t m, Code code);  // fails both transfers of the message
  void lose(std::uint32_t m);
  void report(Rank rank, const Completion& completion);
  void refuse(Rank rank, const Transfer& t, const std::string& why);
  void mark_ready(Rank rank);

  // --- matching by (source, destination, tag), in the order of posting
  std::size_t bucket(Rank src, Rank dst, std::uint64_t tag) const;
  std::uint32_t find(Rank src, Rank dst, std::uint64_t tag, SimMessage::Flag posted) const;
  void insert(std::uint32_t m);
  void remove(std::uint32_t m);
  void grow();

  // --- storage
  std::uint32_t take_message();
  void drop_if_over(std::uint32_t m);
  void take_bytes(std::uint32_t m);

  // --- failures
  void slow_down(const SimSlowdown& by);
  void kill(Rank rank);
  void cut(std::uint32_t nic);
  void mend(std::uint32_t nic);
  void disconnect(Rank rank, Rank peer);
  void detect_kill(Rank rank);
  void detect_cut(std::uint32_t nic);
  bool crosses(const SimMessage& m, std::uint32_t nic) const;
  bool broken(Rank a, Rank b) const;  // true if no message can pass at this time
  Code known(Rank a, Rank b) const;   // the error that the ranks have detected so far

  // Returns whether a message passes uplinks; uplink() returns the uplink of the rank's leaf.
  bool changes_leaf(Rank a, Rank b) const {
    return !opt.leaf_of_host.empty() && leaf(a) != leaf(b);
  }
  int leaf(Rank r) const {
    return opt
        .leaf_of_host[static_cast<std::size_t>(opt.host_of_rank[static_cast<std::size_t>(r)])];
  }
  std::size_t uplink(Rank r, Rank peer) const {
    return static_cast<std::size_t>(leaf(r)) * static_cast<std::size_t>(nrails) +
           nic(r, peer) % static_cast<std::uint32_t>(nrails);
  }
  bool same_host(Rank a, Rank b) const { return opt.host_of_rank[a] == opt.host_of_rank[b]; }
  Rank same_as(Rank r) const { return opt.same_as.empty() ? r : opt.same_as[r]; }
  std::uint32_t nic(Rank r) const { return nic_of_rank[r]; }
  // Returns the NIC of `r` for messages with a peer on another host.
  std::uint32_t nic(Rank r, Rank peer) const { return any_dead_port ? live_nic(r, peer) : nic(r); }
  std::uint32_t live_nic(Rank r, Rank peer) const;
  // Scales a core time by the speed of the rank's host.
  std::int64_t core_ps(Rank r, std::int64_t ps) const {
    if (opt.host_scale.empty()) return ps;
    return sim_ps(static_cast<double>(ps) /
                  opt.host_scale[static_cast<std::size_t>(opt.host_of_rank[r])]);
  }
  SimPort& spine(Rank src, Rank dst);
  std::int64_t extra_delay();
  // Records a service by a port or core of `rank` if it is the watched rank.
  void watch(Rank rank, const char* at, std::int64_t start_ps, std::int64_t ps,
             const SimMessage& m) {
    if (opt.watch == kNoRank || same_as(rank) != opt.watch) return;
    const auto us = [](std::int64_t t) { return static_cast<double>(t) / kPsPerUs; };
    watched.push_back({at, us(start_ps), us(start_ps + ps), m.tag, m.bytes});
  }
  bool valid(Rank r) const { return r >= 0 && r < nranks; }

  SimFabricOptions opt;
  int nranks = 0, nhosts = 0, nrails = 0;
  std::vector<std::uint32_t> nic_of_rank;
  std::vector<int> cpu_of_rank;
  std::int64_t host_latency_ps, rail_latency_ps, spine_latency_ps;
  std::int64_t delay_ps_max, detect_ps, post_ps, complete_ps;
  double send_ps_per_byte, copy_ps_per_byte, reduce_ps_per_byte;
  SimPort spine_model;

  std::int64_t now_ps = 0;
  std::uint64_t next_order = 0, trace = 0, random, activity = 0, events_done = 0;
  std::priority_queue<SimEvent, std::vector<SimEvent>, std::greater<>> events;

  std::vector<SimPort> local_tx, local_rx;  // by rank
  std::vector<SimPort> nic_tx, nic_rx;      // by host * nrails + rail
  std::vector<SimPort> leaf_up, leaf_down;  // by leaf * nrails + rail; empty: unlimited
  std::vector<SimPort> cpu;
  std::unordered_map<std::uint64_t, SimPort> spines;  // by source and destination host
  // End of each pair's last message, to keep delayed messages in order.
  std::unordered_map<std::uint64_t, std::int64_t> pair_tails;

  std::vector<SimMessage> messages;
  std::uint32_t free_message = kNone;
  std::vector<std::uint32_t> table;  // buckets; their number is a power of two
  std::size_t waiting = 0;           // messages in the table
  std::vector<std::vector<std::byte>> buffers;
  std::vector<std::uint32_t> free_buffers;
  std::size_t lent = 0;

  std::vector<Completions> inbox;  // by rank
  std::vector<bool> attached;      // ranks with an endpoint
  std::vector<bool> woken, in_ready;
  std::vector<Rank> ready, handed_out;

  bool any_failure = false;
  bool any_dead_port = false;          // SimSlowPort
  std::vector<bool> dead_port;         // by NIC
  std::vector<bool> dead, dead_known;  // by rank
  std::vector<std::int64_t> died_ps;   // by rank
  std::vector<bool> down, down_known;  // by NIC
  std::vector<std::uint32_t> stalled;  // messages that wait for a link
  // By (rank, peer): the error of a misuse, for cause().
  std::map<std::pair<Rank, Rank>, Status> refused;
  std::map<std::pair<Rank, Rank>, Head> disputed;  // by (rank, peer): the peer's head

  std::uint64_t nmessages = 0, host_bytes = 0, cross_rail_bytes = 0, uplink_bytes = 0;
  std::vector<std::uint64_t> rail_bytes, host_tx_bytes;
  std::vector<SimService> watched;
};

}  // namespace weft
