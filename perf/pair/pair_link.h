// One end of a pair whose bandwidth or latency is measured, over verbs or any Transport. Knows
// nothing of clocks, rounds and reports.
//
// Both ends: offer() -> exchange -> connect(); then for each size prepare() -> wait for the other
// end -> messages -> wait for the other end -> check(). A call that fails throws Error with a
// likely cause.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "perf/pair/pair_options.h"
#include "topo/topology.h"
#include "transport/job/bootstrap.h"

namespace weft {

struct PairProgress {
  int sent = 0;        // messages of this end that have completed
  int arrived = 0;     // messages of the other end, where this end gets completions for them
  bool ended = false;  // the other end's last message has arrived, and all before it
};

// The part that an end has in a test.
struct PairRole {
  std::size_t bytes = 0;
  bool latency = false;
  bool sends = false;     // this end starts messages (of a latency test: goes first)
  bool receives = false;  // the other end starts messages
};

// The settings that a link uses, which may be less than the options ask for.
struct PairUse {
  int depth = 0;          // messages under way of a queue pair
  int inline_bytes = -1;  // -1: the link has no such setting, here and below
  int moderation = -1;    // of the size that is prepared
};

class PairLink {
 public:
  virtual ~PairLink() = default;
  virtual std::string offer() = 0;  // the argument for connect() of the other end
  virtual void connect(const std::string& theirs) = 0;
  virtual std::string path() const = 0;  // in words
  virtual PairUse use() const = 0;

  // Whether the end that does not start messages has nothing to do.
  virtual bool one_sided() const = 0;
  virtual void prepare(const PairRole& role) = 0;

  // Streams. Neither end needs to know the number of messages.
  // Starts up to `most` messages and returns how many; 0 when there is no room.
  virtual int post(int most) = 0;
  virtual int last() const = 0;
  // Starts the last() last messages, or none; returns how many.
  virtual int post_last() = 0;
  virtual PairProgress poll() = 0;
  // Of the queue pairs of a stream: messages that have completed, and the UDP source port that the
  // options' label asks of the device (0: none). Empty where the link has no queue pairs.
  struct Queue {
    std::uint64_t sent = 0;
    int port = 0;
  };
  virtual std::vector<Queue> queues() const { return {}; }
  // Transport::moved_bytes().
  virtual std::optional<std::uint64_t> moved_bytes() const { return std::nullopt; }

  // Ping-pong: sends message `turn` = 1, 2, ... of this end.
  virtual void ping(std::uint64_t turn) = 0;
  // Looks for a short time whether the other end's message has arrived (one-sided: this end's).
  virtual bool arrived(std::uint64_t turn) = 0;
  // Whether this end's messages arrive without further calls. Both ends call it after ping-pongs
  // until it is true: where only calls drive a transport, the end that answers waits for the other
  // end's word that the last answer came.
  virtual bool settled() { return true; }

  // Where the options ask for events: sleeps until a completion may have come, or a moment.
  virtual void sleep() {}
  // After a test: says in words what is wrong with the bytes that arrived; empty for nothing.
  virtual std::string check() = 0;
};

// Makes one end over RDMA verbs. `rail` is this end's device.
std::unique_ptr<PairLink> make_verbs_pair(const PairOptions& options, const Nic& rail,
                                          std::size_t most_bytes);
// Makes one end over a transport, which must outlive the link.
class Transport;
std::unique_ptr<PairLink> make_transport_pair(const PairOptions& options, Transport& transport,
                                              Rank me, Rank peer, std::size_t most_bytes);

// Fills memory with bytes that depend on the sender's key, so that stale or misplaced bytes show.
void fill_pattern(std::byte* data, std::size_t bytes, std::uint64_t key);
// Fills memory with the pattern, damaged as the options say.
void fill_source(const PairOptions& options, std::byte* data, std::size_t bytes, std::uint64_t key);
// Compares memory with the pattern: returns "" or "byte 17 is 0x03, expected 0xa1".
std::string compare_pattern(const std::byte* data, std::size_t bytes, std::uint64_t key);

#ifndef WEFT_HAVE_VERBS
inline std::unique_ptr<PairLink> make_verbs_pair(const PairOptions&, const Nic&, std::size_t) {
  throw Error("missing capability: RDMA verbs, which this build was configured without");
}
#endif

}  // namespace weft
