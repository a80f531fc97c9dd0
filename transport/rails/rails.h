// Rails: joins the transports of all rails of a process to one, which outlives each of them.
//
// A pair of ranks has a lane on every rail. Each message goes over one lane; the sender keeps the
// message (a copy if it is short, else the caller's bytes) until its receipt comes from the
// receiver. A lane that fails, or stands still while another path of the pair answers, is taken
// out: both ends give up the messages under way on the lane, tell each other which have arrived,
// and send the rest over another lane. A lane that answers again is opened anew and taken back.
// No message is lost, none comes twice, and no byte lands in memory that was given back.
//
// Beside the messages, each lane carries receipts (many tags in one message of 256 bytes), and
// datagrams (transport/datagram_channel.h) go out only after a fault. docs/decisions/0018 says why.
//
// Only the control plane says that a rank is dead. To Rails a dead rank is one that answers on no
// path, and its messages wait.
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
  // least copied_bytes, and less than the shortest slice of a message that is cut
  // (Tuning::rail_slice_min): else all slices of a message of some hundred KiB would take one rail.
  std::size_t spread_bytes = (8u << 10) - 1;
  std::int64_t suspect_us = 20'000;  // a lane that stands still for so long gets pings
  std::int64_t ping_us = 20'000;     // between two pings
  std::int64_t dead_us = 250'000;    // no answer for so long while another rail answers: dead
  std::int64_t probe_us = 50'000;    // between two pings of a lane that is out
  std::int64_t back_us = 100'000;    // a lane stays out at least so long
  std::int64_t repeat_us = 20'000;   // a note without an answer is sent again
  // Receipts wait no longer to be sent, nor to be confirmed: tags come again, and when a rail fails
  // an old message must not be taken for a later one with its tag.
  std::int64_t tell_us = 50'000;
  std::uint64_t balance_every = 32;          // large messages to a peer, until rates are looked at
  std::uint64_t measure_bytes = 256u << 10;  // of one measurement of a rate
  double alike = 1.25;      // rates that differ by less count as equal: the machine may be busy
  int polls_per_look = 16;  // polls without a completion until the clock is read
  // Messages of this process that Rails keeps at a time; further posts fail. At most 15/16 of what
  // the ids of the inner transports can count: receipts take the rest.
  std::size_t most_messages = std::size_t{15} << 20;
  // The rails that large messages of face `home` with a peer go over from the start; both ends must
  // say the same. An empty function, or result, means the face's own rail.
  std::function<std::vector<int>(Rank peer, int home)> stripes;
};

// An event of a rail, as this rank saw it.
struct RailEvent {
  // kUnheard: messages of the peer come, but the peer answers pings on no rail, so that no rail can
  // stand in for another. kHeard: the peer answers now.
  enum class Kind : std::uint8_t { kOut, kReplay, kBack, kUnheard, kHeard } kind = Kind::kOut;
  int rail = 0;
  Rank peer = kNoRank;
  std::string cause = {};
  std::uint64_t messages = 0, bytes = 0;  // kReplay: what moves to another lane
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
  std::uint64_t visits = 0;    // of lanes, to see whether something is amiss
};

class Rails {
 public:
  // inner[r] is the transport of rail r. All of them must offer recovery().
  Rails(std::vector<std::unique_ptr<Transport>> inner, std::unique_ptr<DatagramChannel> paths,
        Rank me, int nranks, const RailsOptions& options = {});
  ~Rails();
  Rails(const Rails&) = delete;
  Rails& operator=(const Rails&) = delete;

  // Makes the transport that users of `rail` post to; call it once per rail. Posted memory must
  // outlive this object, as the inner transports write to that memory until they end. A face may
  // be destroyed later than this object, but not used.
  std::unique_ptr<Transport> face(int rail);

  // Posts the receipts of all long messages that have come: a peer may wait for them while this
  // rank does not poll. Returns the number of receipts posted so far, for receipts_sent().
  std::uint64_t tell_receipts() noexcept;
  // Whether the inner transports have sent the first receipts, this many.
  bool receipts_sent(std::uint64_t first) const noexcept;

  // Sends every peer its receipts. Call it after the last receive of this rank.
  void settle() noexcept;
  // Whether no peer needs anything more of this rank. Poll until then before the rank ends.
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
