// Rails: combines the transports of all rails of a process, and works while any of them does.
//
// A pair of ranks has a lane on every rail. Each message goes over one lane; the sender keeps the
// message (a copy if it is short, else the caller's bytes) until its receipt comes from the
// receiver. A lane that fails, or stalls while another path of the pair answers, is taken out: both
// ends stop the messages under way on the lane, exchange which have arrived, and replay the rest
// over another lane. A lane that answers again is reopened and taken back. No message is lost or
// duplicated, and no byte is written to memory that the caller has back.
//
// Each lane also carries receipts (many tags in one message of 256 bytes). Except for a first ping,
// datagrams (transport/datagram_channel.h) are sent only after a fault. Reasons:
// docs/decisions/0018.
//
// Only the control plane declares a rank dead. In Rails, messages for a rank that answers on no
// path wait.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "transport/datagram_channel.h"
#include "transport/transport.h"

namespace weft {

struct RailsOptions {
  // Rails copies a send of up to this many bytes, which completes when the rail's transport has
  // sent it. A longer send completes with its receipt.
  std::size_t copied_bytes = (8u << 10) - 1;
  // Rails spreads only longer messages over several rails, and measures only those. The value is at
  // least copied_bytes, and less than the shortest slice of a sliced message
  // (Tuning::rail_slice_min): otherwise all slices of a message of some hundred KiB would take one
  // rail.
  std::size_t spread_bytes = (8u << 10) - 1;
  std::int64_t suspect_us = 20'000;  // a lane is pinged after a stall of this length
  std::int64_t ping_us = 20'000;     // between two pings
  std::int64_t dead_us = 250'000;    // dead: no answer for this long while another rail answers
  std::int64_t probe_us = 50'000;    // between two pings of a lane that is out
  std::int64_t back_us = 100'000;    // minimum time that a lane stays out
  std::int64_t repeat_us = 20'000;   // between two repetitions of a note
  // The longest delay of receipts and of their confirmations: tags are reused, and when a rail
  // fails an old message must not be mistaken for a later one with its tag.
  std::int64_t tell_us = 50'000;
  std::uint64_t balance_every = 32;          // large messages to a peer between checks of the rates
  std::uint64_t measure_bytes = 256u << 10;  // of one measurement of a rate
  double alike = 1.25;      // rates within this factor count as equal: the machine may be busy
  int polls_per_look = 16;  // polls without a completion until the clock is read
  // Maximum number of messages that Rails keeps; further posts fail. At most 15/16 of the ids of
  // the inner transports: receipts use the rest.
  std::size_t most_messages = std::size_t{15} << 20;
  // The initial rails of large messages of face `home` with a peer, the same at both ends. An empty
  // function, or result, means the face's own rail.
  std::function<std::vector<int>(Rank peer, int home)> stripes;
};

// An event of a rail, as this rank saw it.
struct RailEvent {
  // kUnheard: messages of the peer arrive, but it answers pings on no rail, so that rails cannot
  // replace each other. kHeard: the peer answers now.
  enum class Kind : std::uint8_t { kOut, kReplay, kBack, kUnheard, kHeard } kind = Kind::kOut;
  int rail = 0;
  Rank peer = kNoRank;
  std::string cause = {};
  std::uint64_t messages = 0, bytes = 0;  // kReplay: moved to another lane
};

// The rails, as bits, of the unfinished messages of one user with one peer.
struct RailsInUse {
  std::uint32_t sends = 0;  // without a receipt
  std::uint32_t recvs = 0;
};

struct RailsCounters {
  std::uint64_t taken_out = 0, taken_back = 0;  // lanes
  std::uint64_t replayed = 0, replayed_bytes = 0;
  std::uint64_t receipts = 0;  // messages with receipts that this rank sent
  std::uint64_t moves = 0;     // changes of the rails that messages take
  std::uint64_t visits = 0;    // checks of lanes for faults
};

class Rails {
 public:
  // inner[r] is the transport of rail r. All of them must offer recovery().
  Rails(std::vector<std::unique_ptr<Transport>> inner, std::unique_ptr<DatagramChannel> paths,
        Rank me, int nranks, const RailsOptions& options = {});
  ~Rails();
  Rails(const Rails&) = delete;
  Rails& operator=(const Rails&) = delete;

  // Makes the transport for users of `rail`; call it once per rail. Posted memory must outlive this
  // object, since the inner transports write to it until they end. A face may be destroyed later
  // than this object, but not used.
  std::unique_ptr<Transport> face(int rail);

  // Posts the receipts of all long messages that have arrived: a peer may wait for them while this
  // rank does not poll. Returns the number of receipts posted so far, for receipts_sent().
  std::uint64_t tell_receipts() noexcept;
  // Whether the inner transports have sent the first `first` receipts.
  bool receipts_sent(std::uint64_t first) const noexcept;

  // Sends every peer its receipts. Call it after the last receive of this rank.
  void settle() noexcept;
  // Whether no peer needs data of this rank any more. Poll until then before the rank ends.
  bool settled() const noexcept;
  void poll() noexcept;

  void on_event(std::function<void(const RailEvent&)> call);
  RailsCounters counters() const;
  // Returns the message bytes that went over the rail, replays included. Thread-safe.
  std::uint64_t sent_bytes(int rail) const noexcept;
  // Whether messages with the peer may use the rail now.
  bool up(Rank peer, int rail) const;
  // Returns the rails in use, by the upper half of the messages' ids, the peer, and the face.
  std::map<std::tuple<std::uint32_t, Rank, int>, RailsInUse> in_use() const;
  // Describes the lanes with the peer for users: "rail 0 up, rail 1 out (its link is down)".
  std::string describe(Rank peer) const;
  // Returns each rail's share, in 32nds, of the large messages from face `home` to the peer.
  std::vector<int> shares(Rank peer, int home) const;

  struct State;

 private:
  std::unique_ptr<State> state_;
};

}  // namespace weft
