// One end of a pair whose bandwidth or latency is measured, over whatever carries the messages.
// Knows nothing of clocks, rounds and reports.
//
// Both ends: offer() -> exchange -> connect(); then for each size prepare() -> wait for the other
// end -> messages -> wait for the other end -> check(). What fails throws Error with a likely
// cause.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "perf/pair/pair_options.h"
#include "topo/topology.h"
#include "transport/job/bootstrap.h"

namespace weft {

struct PairProgress {
  int sent = 0;        // messages of this end that are over
  int arrived = 0;     // messages of the other end, where they tell
  bool ended = false;  // the other end has sent its last, and all have arrived
};

// What an end does in a test.
struct PairRole {
  std::size_t bytes = 0;
  bool latency = false;
  bool sends = false;     // starts messages (of a latency test: goes first)
  bool receives = false;  // the other end does
};

// What a link does, which may be less than the options ask for.
struct PairUse {
  int depth = 0;          // messages under way of a queue pair
  int inline_bytes = -1;  // -1: not for the link to say, here and below
  int moderation = -1;    // of the size that is prepared
};

class PairLink {
 public:
  virtual ~PairLink() = default;
  virtual std::string offer() = 0;  // what connect() of the other end takes
  virtual void connect(const std::string& theirs) = 0;
  virtual std::string path() const = 0;  // in words
  virtual PairUse use() const = 0;

  // Whether the end that does not start messages has nothing to do meanwhile.
  virtual bool one_sided() const = 0;
  virtual void prepare(const PairRole& role) = 0;

  // Streams. post() starts up to `most` messages, 0 when there is no room. post_last() starts the
  // last ones: as many as last(), or none. Both ends' numbers of messages need not be known.
  virtual int post(int most) = 0;
  virtual int last() const = 0;
  virtual int post_last() = 0;
  virtual PairProgress poll() = 0;
  // Transport::moved_bytes().
  virtual std::optional<std::uint64_t> moved_bytes() const { return std::nullopt; }

  // Ping-pong, message `turn` = 1, 2, ... of each end. arrived() looks for some time, not long.
  // One-sided: arrived() is about the own message.
  virtual void ping(std::uint64_t turn) = 0;
  virtual bool arrived(std::uint64_t turn) = 0;
  // After ping-pongs, on both ends, until it is true: whether what this end has sent arrives
  // without further calls. Where only calls drive a transport, the end that answered waits for the
  // other's word that the last answer came.
  virtual bool settled() { return true; }

  // Where the options ask for events: sleeps until something may have happened, or a moment.
  virtual void sleep() {}
  // After a test: what was found wrong with the bytes that arrived, in words; empty for nothing.
  virtual std::string check() = 0;
};

// A pair of ranks of `job`, over RDMA verbs. `rail` is this end's device.
std::unique_ptr<PairLink> make_verbs_pair(const PairOptions& options, const Nic& rail,
                                          std::size_t most_bytes);
// Over a transport (which outlives it), with `peer`.
class Transport;
std::unique_ptr<PairLink> make_transport_pair(const PairOptions& options, Transport& transport,
                                              Rank me, Rank peer, std::size_t most_bytes);

// Bytes that depend on who sends them, so that what is stale or misplaced shows.
void fill_pattern(std::byte* data, std::size_t bytes, std::uint64_t key);
// As the options have it damaged.
void fill_source(const PairOptions& options, std::byte* data, std::size_t bytes, std::uint64_t key);
// Empty, or "byte 17 is 0x03, expected 0xa1".
std::string compare_pattern(const std::byte* data, std::size_t bytes, std::uint64_t key);

#ifndef WEFT_HAVE_VERBS
inline std::unique_ptr<PairLink> make_verbs_pair(const PairOptions&, const Nic&, std::size_t) {
  throw Error("missing capability: RDMA verbs, which this build was configured without");
}
#endif

}  // namespace weft
