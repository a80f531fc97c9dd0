// A connection with one peer, and the interface of VerbsConnections to this rank's queue pairs.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "topo/base/status.h"
#include "transport/messages/completions.h"

namespace weft {

// The state of one connection. Only VerbsConnections changes it; others read `link`, `mine`,
// `broken` and `first_theirs`.
struct VerbsConnection : PeerRecord {
  enum class Link : std::uint8_t {
    kClosed,     // there are no queue pairs
    kInvited,    // queue pairs made, and sent to the peer in an invitation
    kConnected,  // connected; the peer's may not be
    kOpen,       // both ends are connected
    kClosing,    // this rank has asked the peer to close, and sends no messages
  };
  Link link = Link::kClosed;
  int place = -1;            // of its slots; -1: none
  bool requested = false;    // waits to be connected
  std::uint64_t used = 0;    // order of the last use among connections
  std::uint32_t mine = 0;    // this rank's last attempt to connect
  std::uint32_t theirs = 0;  // the peer's attempt to which this rank connected last
  std::string invitation;    // the peer's, until there is a place
  // The queue pairs were interrupted: the next ones resume (reconnect.cc).
  bool broken = false;
  std::uint32_t first_mine = 0, first_theirs = 0;  // attempts with which the message counts began
  std::chrono::steady_clock::time_point last_letter{};  // to the peer
  int unanswered = 0;                                   // letters since the peer's last one
  bool closes = false;                  // the peer has agreed to close, after these messages:
  std::vector<std::uint64_t> its_sent;  // by queue pair
};

// The queue pairs of all connections of a rank. No call waits.
class VerbsQueuePairs {
 public:
  // Returns the connection with the rank; nullptr: there is no such peer.
  virtual VerbsConnection* connection(Rank rank) noexcept = 0;
  // Registers slots for more places, with a completion queue of their own or in the first one.
  // Throws Error.
  virtual void add_places(int places, bool own_queue) = 0;

  // Makes the queue pairs of a connection with a place. Throws Error.
  virtual void make(VerbsConnection& c) = 0;
  // Returns the data with which the peer connects its queue pairs to these. Throws Error.
  virtual std::string invitation(const VerbsConnection& c) = 0;
  // True if `theirs` has the length of an invitation.
  virtual bool invites(std::string_view theirs) const = 0;
  // Connects the queue pairs to those in the peer's invitation. Throws Error.
  virtual void join(VerbsConnection& c, std::string_view theirs) = 0;
  // The connection is open for messages. resumed: it continues an interrupted one.
  virtual void opened(VerbsConnection& c, bool resumed) = 0;
  // Ends the queue pairs; queued messages stay.
  virtual void end(VerbsConnection& c) noexcept = 0;
  // Interrupts the queue pairs: messages that have arrived count, and the next queue pairs resume.
  virtual void interrupt(VerbsConnection& c) noexcept = 0;
  // Ends the connection and its transfers.
  virtual void fail(VerbsConnection& c, Code code, const std::string& why) noexcept = 0;

  virtual bool has_messages(const VerbsConnection& c) const = 0;  // queued to be sent
  // True if this rank has nothing in flight except for acknowledgements.
  virtual bool idle(const VerbsConnection& c) const = 0;
  // True if it is idle() and everything is acknowledged. Requests missing acknowledgements.
  virtual bool quiesce(VerbsConnection& c) = 0;
  // True if a receive or a long send waits for the peer.
  virtual bool awaits(const VerbsConnection& c) const = 0;
  // Return the number of messages so far, by queue pair.
  virtual std::vector<std::uint64_t> sent(const VerbsConnection& c) const = 0;
  virtual std::vector<std::uint64_t> taken(const VerbsConnection& c) const = 0;

  // Reads completions; returns their number.
  virtual std::size_t reap() noexcept = 0;
  // Reads all completions: makes room in the completion queues for new queue pairs.
  void drain() {
    for (int i = 0; i < kMostReaps && reap() > 0; ++i) {
    }
  }

 protected:
  static constexpr int kMostReaps = 1 << 16;
  ~VerbsQueuePairs() = default;
};

}  // namespace weft
