// A connection with one peer, and what VerbsConnections asks of the queue pairs at this end of it.
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
    kInvited,    // the queue pairs are made, and the peer has been told of them
    kConnected,  // they are connected; whether the peer's are is not known
    kOpen,       // both ends are connected
    kClosing,    // this rank has asked the peer to close, and sends nothing
  };
  Link link = Link::kClosed;
  int place = -1;            // of its slots; -1: none
  bool requested = false;    // waits to be connected
  std::uint64_t used = 0;    // rises with every message
  std::uint32_t mine = 0;    // this rank's last attempt to connect
  std::uint32_t theirs = 0;  // the peer's attempt that this rank connected to last
  std::string invitation;    // of the peer, which waits for a place
  // Its queue pairs were ended half way: the next ones go on where those were (reconnect.cc).
  bool broken = false;
  std::uint32_t first_mine = 0, first_theirs = 0;       // attempts since which messages are counted
  std::chrono::steady_clock::time_point last_letter{};  // to the peer
  int unanswered = 0;                                   // letters to the peer since it sent one
  bool closes = false;                  // the peer has agreed to close, after so many messages:
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

  // Makes the queue pairs of a connection that has a place. Throws Error.
  virtual void make(VerbsConnection& c) = 0;
  // Returns the bytes that the peer needs to connect its queue pairs with these. Throws Error.
  virtual std::string invitation(const VerbsConnection& c) = 0;
  // True if `theirs` has the length of an invitation.
  virtual bool invites(std::string_view theirs) const = 0;
  // Connects them by the peer's invitation. Throws Error.
  virtual void join(VerbsConnection& c, std::string_view theirs) = 0;
  // The connection is open: messages may go. resumed: it goes on where a broken one was.
  virtual void opened(VerbsConnection& c, bool resumed) = 0;
  // Ends them; messages that wait to be sent stay.
  virtual void end(VerbsConnection& c) noexcept = 0;
  // Ends them half way: what has arrived counts, and the next ones go on from there.
  virtual void interrupt(VerbsConnection& c) noexcept = 0;
  // Ends the connection and its transfers.
  virtual void fail(VerbsConnection& c, Code code, const std::string& why) noexcept = 0;

  virtual bool has_messages(const VerbsConnection& c) const = 0;  // that wait to be sent
  // True when this rank has nothing in flight that it knows of, but for acknowledgements.
  virtual bool idle(const VerbsConnection& c) const = 0;
  // True when it is idle() and its device has acknowledged everything. Asks for an acknowledgement
  // that is missing.
  virtual bool quiesce(VerbsConnection& c) = 0;
  // True when a receive or a long send waits for the peer.
  virtual bool awaits(const VerbsConnection& c) const = 0;
  // Return the messages so far, by queue pair.
  virtual std::vector<std::uint64_t> sent(const VerbsConnection& c) const = 0;
  virtual std::vector<std::uint64_t> taken(const VerbsConnection& c) const = 0;

  // Reads completions; returns their number.
  virtual std::size_t reap() noexcept = 0;
  // Reads all of them: makes room in the completion queues for new queue pairs.
  virtual void drain() = 0;

 protected:
  ~VerbsQueuePairs() = default;
};

}  // namespace weft
