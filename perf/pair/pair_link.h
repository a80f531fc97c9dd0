// One end of a pair test, over verbs or any Transport. Does not depend on clocks, rounds and
// reports.
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
  int sent = 0;        // completed messages of this end
  int arrived = 0;     // messages of the other end, if this end gets completions
  bool ended = false;  // all messages of the other end have arrived
};

// The role of an end in a test.
struct PairRole {
  std::size_t bytes = 0;
  bool latency = false;
  bool sends = false;     // this end starts messages (in a latency test: sends the first message)
  bool receives = false;  // the other end starts messages
};

// The settings that a link uses, which may be lower than the options request.
struct PairUse {
  int depth = 0;          // outstanding messages per queue pair
  int inline_bytes = -1;  // -1: the link has no such setting; likewise `moderation`
  int moderation = -1;    // messages per completion for the prepared size
};

class PairLink {
 public:
  virtual ~PairLink() = default;
  virtual std::string offer() = 0;  // the argument of the other end's connect()
  virtual void connect(const std::string& theirs) = 0;
  virtual std::string path() const = 0;  // description of the path, for the report
  virtual PairUse use() const = 0;

  // Returns whether only the end that starts messages runs calls.
  virtual bool one_sided() const = 0;
  virtual void prepare(const PairRole& role) = 0;

  // Streams. Neither end needs to know the number of messages.
  // Starts up to `most` messages and returns their number; 0 if the queues are full.
  virtual int post(int most) = 0;
  virtual int last() const = 0;
  // Starts the last last() messages, or none; returns how many.
  virtual int post_last() = 0;
  virtual PairProgress poll() = 0;
  // State of a stream's queue pairs: completed messages, and the UDP source port that the options'
  // flow label requests (0: none). Empty if the link has no queue pairs.
  struct Queue {
    std::uint64_t sent = 0;
    int port = 0;
  };
  virtual std::vector<Queue> queues() const { return {}; }
  // See Transport::moved_bytes().
  virtual std::optional<std::uint64_t> moved_bytes() const { return std::nullopt; }

  // Ping-pong: sends message `turn` = 1, 2, ... of this end.
  virtual void ping(std::uint64_t turn) = 0;
  // Polls briefly; returns whether the other end's message (one-sided: this end's) has arrived.
  virtual bool arrived(std::uint64_t turn) = 0;
  // Returns whether this end's messages will arrive without further calls. Both ends call it after
  // ping-pongs until it is true: without a progress thread, the answering end waits for the other
  // end's confirmation of the last answer.
  virtual bool settled() { return true; }

  // With options.events: sleeps until a completion may have arrived, or for a short time.
  virtual void sleep() {}
  // After a test: describes the first error in the received bytes; empty if there is none.
  virtual std::string check() = 0;
};

// Makes one end over RDMA verbs. `rail` is this end's device.
std::unique_ptr<PairLink> make_verbs_pair(const PairOptions& options, const Nic& rail,
                                          std::size_t most_bytes);
// Makes one end over a transport, which must outlive the link.
class Transport;
std::unique_ptr<PairLink> make_transport_pair(const PairOptions& options, Transport& transport,
                                              Rank me, Rank peer, std::size_t most_bytes);

// Fills memory with bytes that depend on the sender's key, to detect stale or misplaced bytes.
void fill_pattern(std::byte* data, std::size_t bytes, std::uint64_t key);
// Fills memory with the pattern, corrupted if options.damage_from says so.
void fill_source(const PairOptions& options, std::byte* data, std::size_t bytes, std::uint64_t key);
// Compares memory with the pattern: returns "" or "byte 17 is 0x03, expected 0xa1".
std::string compare_pattern(const std::byte* data, std::size_t bytes, std::uint64_t key);

#ifndef WEFT_HAVE_VERBS
inline std::unique_ptr<PairLink> make_verbs_pair(const PairOptions&, const Nic&, std::size_t) {
  throw Error("missing capability: RDMA verbs, which this build was configured without");
}
#endif

}  // namespace weft
