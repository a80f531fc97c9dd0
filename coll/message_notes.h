// What the two ends of a long message tell each other, where both are ranks of one host and have
// GPUs: then the receiver may read what is sent where it lies in the sender's device memory.
//
// The note takes the message's number among those of its pair, what is sent the next one. An answer
// travels the other way, with the note's number and a mark; there is one where the bytes can be
// read. An end does not know the other's kind of memory before, so that every such message has a
// note. Not installed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "transport/device_peers.h"

namespace weft {

// Shorter ones are sent as in jobs without GPUs: by way of host memory they take little longer.
// Not measured.
inline constexpr std::size_t kNotedBytes = 64 << 10;

struct MessageNote {
  std::uint32_t readable =
      0;  // 1: at this address, until there is an answer; 0: what is sent follows
  std::uint32_t unused = 0;
  DeviceAddress at;
};

enum class MessageAnswer : std::uint32_t {
  kNone,
  kTaken,       // it has been read
  kSendIt,      // the receiver has host memory
  kNotReached,  // its GPU does not reach that memory: do not ask again
};

struct MessageNotes {
  MessageNote note;
  MessageAnswer answer = MessageAnswer::kNone;
  int under_way = 0;                    // transfers
  bool told = false, answered = false;  // these are over
};

}  // namespace weft
