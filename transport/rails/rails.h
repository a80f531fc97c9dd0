// Rails: the transports of all rails of a process as one thing, which outlives any one of them.
//
// A pair of ranks has a lane on every rail. Each message goes over one of them; the sender keeps it
// (a copy of a short one, the caller's bytes of a long one) until the receiver says that it has it.
// A lane that fails, or stands still while another path of the same pair answers, is taken out:
// both ends give up what is under way on it, tell each other what has arrived, and the rest goes
// over another lane. A lane that answers again is opened anew and taken back. Nothing is lost,
// nothing comes twice, and no byte lands in memory that was given back.
//
// The wire, beside the messages themselves: on each lane receipts, many tags in one message of 256
// bytes; and datagrams (transport/datagram_channel.h) only where something is amiss.
// docs/decisions/0018 says why.
//
// A rank that is dead is not a rail that is: that is for the control plane to say. Here it only
// means that no path answers, and everything waits.
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
  // A send of up to so many bytes is copied, and completes when the rail's transport has sent it; a
  // longer one completes with its receipt.
  std::size_t copied_bytes = (8u << 10) - 1;
  // Only longer messages are spread over several rails, and measured. Not less than copied_bytes,
  // and less than the shortest slice of a message that is cut (Tuning::rail_slice_min): else all
  // slices of a message of some hundred KiB would go over one rail.
  std::size_t spread_bytes = (8u << 10) - 1;
  std::int64_t suspect_us = 20'000;  // a lane that stands still for so long is asked about
  std::int64_t ping_us = 20'000;     // so often
  std::int64_t dead_us = 250'000;    // no answer for so long while another rail answers: dead
  std::int64_t probe_us = 50'000;    // a lane that is out is asked so often
  std::int64_t back_us = 100'000;    // and stays out at least so long
  std::int64_t repeat_us = 20'000;   // a note without an answer is sent again
  // Receipts wait no longer to be sent, nor to be confirmed: tags come again, and what was received
  // long ago must not be taken for a later message when a rail fails.
  std::int64_t tell_us = 50'000;
  std::uint64_t balance_every = 32;          // large messages to a peer, until rates are looked at
  std::uint64_t measure_bytes = 256u << 10;  // of one measurement of a rate
  double alike = 1.25;      // rates that differ by less are those of equal rails on a busy machine
  int polls_per_look = 16;  // polls without a completion until time is looked at
  // The rails that large messages with a peer go over from the start, for each face; the same at
  // both ends. Empty, or not given: that of the face.
  std::function<std::vector<int>(Rank peer, int home)> stripes;
};

// What happened to a rail, as this rank saw it.
struct RailEvent {
  // kUnheard: messages of the peer come, but it answers on no rail, so that none would stand in for
  // another; kHeard: it does now.
  enum class Kind : std::uint8_t { kOut, kReplay, kBack, kUnheard, kHeard } kind = Kind::kOut;
  int rail = 0;
  Rank peer = kNoRank;
  bool seen_here = false;  // kOut: and not by the peer, who said so
  std::string cause = {};
  std::uint64_t messages = 0, bytes = 0;  // kReplay: that go over another lane now
};

// The rails, as bits, that messages of one user with one peer are on and have not ended.
struct RailsInUse {
  std::uint32_t sends = 0;  // the peer has not said that it has them
  std::uint32_t recvs = 0;
};

struct RailsCounters {
  std::uint64_t taken_out = 0, taken_back = 0;  // lanes
  std::uint64_t replayed = 0, replayed_bytes = 0;
  std::uint64_t receipts = 0;  // messages with receipts that were sent
  std::uint64_t moves = 0;     // changes of what goes where
};

class Rails {
 public:
  // inner[r] is the transport of rail r; all are recoverable.
  Rails(std::vector<std::unique_ptr<Transport>> inner, std::unique_ptr<DatagramChannel> paths,
        Rank me, int nranks, const RailsOptions& options = {});
  ~Rails();
  Rails(const Rails&) = delete;
  Rails& operator=(const Rails&) = delete;

  // What users of rail r post to. Once per rail. Memory that they posted must outlive this, as the
  // transports write to it until they end; a face itself may end later, but not be used.
  std::unique_ptr<Transport> face(int rail);

  // Posts the receipts of all long messages that have come. Returns how many were posted so far,
  // for receipts_sent(): whether the first so many are out of this rank's hands. A peer may wait
  // for them, and this rank may not poll again for long.
  std::uint64_t tell_receipts() noexcept;
  bool receipts_sent(std::uint64_t first) const noexcept;

  // Gives every peer its receipts. After the last receive of this rank.
  void settle() noexcept;
  // No peer may still need anything of this rank. Poll until then before going away.
  bool settled() const noexcept;
  void poll() noexcept;

  void on_event(std::function<void(const RailEvent&)> call);
  RailsCounters counters() const;
  // Bytes of messages that went over the rail, with those that went again. Thread-safe.
  std::uint64_t sent_bytes(int rail) const noexcept;
  // Whether messages with the peer may use the rail now.
  bool up(Rank peer, int rail) const;
  // Of all messages: by the upper half of their ids, the peer, and the face they were posted to.
  std::map<std::tuple<std::uint32_t, Rank, int>, RailsInUse> in_use() const;
  // The lanes with the peer, for messages: "rail 0 up, rail 1 out (its link is down)".
  std::string describe(Rank peer) const;
  // How the large messages of face `home` to the peer are spread: shares of 32 by rail.
  std::vector<int> shares(Rank peer, int home) const;

  struct State;

 private:
  std::unique_ptr<State> state_;
};

}  // namespace weft
