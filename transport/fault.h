// A transport that does damage on purpose, to see what becomes of it.
//
// WEFT_FAULT=flip:rank=3,nth=100 on all ranks: the 100th message that rank 3 receives arrives with
// one bit changed. rail=1: only what comes over rail 1. For tests and for showing what integrity
// mode and the hang verdict say.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "transport/transport.h"

namespace weft {

struct Fault {
  enum class Kind : std::uint8_t {
    kFlip,   // one bit of what is received; never in memory that is lent: that is copied before
    kDrop,   // what is sent does not leave, and yet completes
    kDelay,  // what is received is reported `polls` calls of poll() late
  };
  Kind kind = Kind::kFlip;
  Rank rank = kNoRank;         // who does it; kNoRank: every rank
  std::string link;            // "shm", "ucx", ...: only there; empty: everywhere
  int rail = -1;               // only there; -1: everywhere
  std::uint64_t nth = 1;       // the first message hit, counted from 1 per transport
  std::uint64_t every = 0;     // after it, every so many; 0: no more
  std::uint64_t times = 1;     // so many in a row each time
  std::size_t min_bytes = 64;  // shorter messages are not counted
  std::uint64_t seed = 1;      // of the bits
  std::uint64_t polls = 1000;  // kDelay
};

// "flip:rank=3,nth=100,every=7,times=2,link=shm,rail=0,min=64,seed=5", "drop:...",
// "delay:polls=50". Throws Error naming what is wrong with the text.
Fault fault_from(std::string_view text);

// The faults of all transports that this process makes from now on, as a text for fault_from();
// empty: none. World::from_environment() sets WEFT_FAULT. Not to be called while transports are
// made.
void set_faults(std::string text);
const std::string& faults();

// `inner` itself where the fault is not for this rank, link or rail. rail: of `inner`; -1: of none.
std::unique_ptr<Transport> make_faulty_transport(std::unique_ptr<Transport> inner,
                                                 const Fault& fault, Rank me, int rail = -1);

}  // namespace weft
