// The agreement of ranks before the first message, and the memory that a rail registers. All
// functions are pure, and access no device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "topo/base/status.h"
#include "transport/verbs/settings.h"

namespace weft {

// The set-up data that one rank sends to rank 0, of fixed size per rank and rail.
struct VerbsGreeting {
  std::uint32_t qps = 0, slots = 0, slot_bytes = 0, windows = 0;
  std::uint16_t pkey = 0;
  std::uint8_t ethernet = 0;
  std::uint8_t chosen = 0;  // slot_bytes was set by its variable

  std::string encode() const;
};

// First byte of a greeting or of rank 0's verdict; texts follow kVerbsBroken and kVerbsCut.
inline constexpr char kVerbsGreeting = 'g', kVerbsBroken = 'e';
inline constexpr char kVerbsCut = 'c';  // the fabric is at fault: a port that is down

// Rank 0's verdict on the greetings, given by rank: kVerbsGreeting and the common slot size, or why
// there is no transport. `where` names a rank.
std::string verbs_verdict(std::span<const std::string> greetings,
                          const std::function<std::string(Rank)>& where);
// Returns the slot size of a verdict. Throws Error, or StatusError if the fabric is at fault.
std::size_t verbs_slot_bytes(const std::string& verdict);

// The slots of one rail of one rank: `places` connections may be open at once.
struct VerbsShape {
  int places = 0;
  std::size_t slot_bytes = 0;
  std::size_t half = 0;  // verbs_half()
};
// Returns the bytes of the rings of this many places and of the staging for their peers' rings.
std::size_t verbs_half(const VerbsSettings& settings, int places, std::size_t slot_bytes);
// All rails of a rank together register at most kVerbsMemory for slots, regardless of the job's
// size.
inline constexpr std::size_t kVerbsMemory = std::size_t{128} << 20;
VerbsShape verbs_shape(const VerbsSettings& settings, double rate_gbps, int nranks, int nrails);

}  // namespace weft
