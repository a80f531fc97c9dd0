// The letters with which two ranks make and end a connection. Both ends run the same build, so the
// structs are the wire format.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

namespace weft {

// Each rank numbers its attempts to connect in ascending order, which identifies letters of
// attempts that are over.
//
//   first message to B:  A makes queue pairs     invite(A's) ->
//                                             <- invite(B's)   B has made its own, and connected
//                        A has connected, sends  ready       -> B sends
//   a place is needed:   A sends nothing more    close       -> has B anything under way, or
//                        A ends its queue pairs  <- close       a receive that waits for A?
//                                                              no: B ends its own; else: stay
// Ranks that invite each other in a circle, each without a place for its inviter, would wait
// forever. So a rank abandons an invitation of its own for that of a lower rank.
enum class VerbsLetter : std::uint32_t {
  kInvite,     // a VerbsInvitation with my queue pairs follows
  kReady,      // my queue pairs are connected to yours
  kRefuse,     // a text follows: there will be no connection
  kClose,      // asks to close; the counts of messages sent over each queue pair follow
  kStay,       // not now
  kAbandon,    // my attempt is over: its place was needed
  kMustClose,  // as kClose, but even if receives wait: my places have been taken for long
};

struct VerbsLetterFront {
  VerbsLetter what = VerbsLetter::kInvite;
  std::uint32_t mine = 0;   // the sender's attempt
  std::uint32_t yours = 0;  // the receiver's attempt that the sender is connected to; 0: none
};

// The queue pairs of one end; the port and the names of the queue pairs follow. If the invitation
// resumes an interrupted connection (reconnect.cc), then follow the counts of messages taken over
// each queue pair, 64 bits each, and the windows that are not full.
struct VerbsInvitation {
  std::uint64_t rings = 0;  // address of the slots that the peer fills
  std::uint32_t key = 0;
  std::uint32_t port_bytes = 0;
  std::uint32_t number = 0;   // of the attempt
  std::uint32_t resumes = 0;  // the receiver's attempt that began the connection; 0: a new one

  // Reads the fixed part of an invitation; `text` must be long enough.
  static VerbsInvitation front_of(std::string_view text) {
    VerbsInvitation front;
    std::memcpy(&front, text.data(), sizeof front);
    return front;
  }
};

}  // namespace weft
