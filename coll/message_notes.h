// What the two ends of a long message tell each other, where both have GPUs: then it may pass no
// host memory. Inside a host the receiver reads it where it lies in the sender's device memory;
// between hosts RDMA cards that reach GPUs bring it from there to device memory.
//
// The note takes the message's number among those of its pair, what is sent the next ones. An
// answer travels the other way, with the note's number and a mark; there is one to every offer. An
// end does not know the other's kind of memory before, so that every such message has a note. Not
// installed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "transport/device_peers.h"

namespace weft {

// Shorter ones are sent as in jobs without GPUs: by way of host memory they take little longer.
// Not measured.
inline constexpr std::size_t kNotedBytes = 64 << 10;

struct MessageNote {
  enum Offer : std::uint32_t {
    kNone,      // what is sent follows, from host memory
    kReadable,  // at this address, until there is an answer
    kByCards,   // it could be sent from device memory
  };
  std::uint32_t offer = kNone, unused = 0;
  DeviceAddress at = {};
};

enum class MessageAnswer : std::uint32_t {
  kNone,
  kTaken,       // it has been read
  kByCards,     // yes, to device memory
  kSendIt,      // from host memory
  kNotReached,  // the same, and this rank's GPU or card will not reach other such messages either
};

struct MessageNotes {
  MessageNote note;
  MessageAnswer answer = MessageAnswer::kNone;
  int under_way = 0;                    // transfers
  bool told = false, answered = false;  // these are over
};

}  // namespace weft
