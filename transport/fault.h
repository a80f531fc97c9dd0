// A transport that injects faults, for tests and demonstrations of integrity mode and diagnosis.
//
// WEFT_FAULT=flip:rank=3,nth=100 on all ranks changes one bit of the 100th message that rank 3
// receives; with rail=1 only messages over rail 1 are numbered.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "transport/transport.h"

namespace weft {

struct Fault {
  enum class Kind : std::uint8_t {
    kFlip,   // changes one bit of a received message; a view is copied first
    kDrop,   // does not send a message, but completes its send
    kDelay,  // reports a received message `polls` calls of poll() late
  };
  Kind kind = Kind::kFlip;
  Rank rank = kNoRank;         // the rank with the fault; kNoRank: every rank
  std::string link;            // the transport with the fault: "shm", "ucx", ...; empty: all
  int rail = -1;               // the rail with the fault; -1: all rails
  std::uint64_t nth = 1;       // the first affected message, counted from 1 in each transport
  std::uint64_t every = 0;     // the period of later hits, in messages; 0: no later hits
  std::uint64_t times = 1;     // consecutive affected messages each time
  bool repeats = true;         // messages that integrity mode resends are numbered, too
  std::size_t min_bytes = 64;  // shorter messages are not numbered
  std::uint64_t seed = 1;      // chooses the bits
  std::uint64_t polls = 1000;  // the delay of kDelay
};

// Parses "flip:rank=3,nth=100,every=7,times=2,repeats=0,link=shm,rail=0,min=64,seed=5", "drop:..."
// or "delay:polls=50". Throws Error with the wrong part of the text.
Fault fault_from(std::string_view text);

// The faults of all transports that this process makes from now on, as a text for fault_from();
// empty: none. World::from_environment() sets it from WEFT_FAULT. Must not be called while
// transports are made.
void set_faults(std::string text);
const std::string& faults();

// Returns `inner` itself if the fault is for another rank, link or rail. rail: the rail of `inner`;
// -1: none.
std::unique_ptr<Transport> make_faulty_transport(std::unique_ptr<Transport> inner,
                                                 const Fault& fault, Rank me, int rail = -1);

}  // namespace weft
