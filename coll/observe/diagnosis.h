// Why a job hangs: a pure function of what is known of its ranks.
//
// Every rank that waits has edges to the ranks it waits for (its operation's peers with something
// outstanding). Following them ends at a root: a rank that is dead, stopped or silent, that never
// called, that called with other arguments, or that is in its own code; a link whose bytes were
// handed over and did not arrive; or a circle of ranks in different calls.
#pragma once

#include <string>
#include <vector>

#include "coll/observe/rank_snapshot.h"
#include "topo/base/status.h"

namespace weft {

// In order of weight: the first that is found is the root, whatever else is wrong as well.
enum class Cause : std::uint8_t {
  kDead,        // a process has ended
  kStopped,     // by a signal, or a debugger
  kSilent,      // its host is cut off, or down
  kMismatch,    // ranks passed different arguments, or call different things
  kNotCalled,   // alive, and has not made the call that the others wait in
  kNotWaiting,  // made the call, and gives it no time: asynchronous, and in its own code
  kCircle,      // ranks wait for each other, in calls of different order
  kLink,        // bytes that were handed to a link do not arrive
  kUnknown,     // a rank that says nothing is waited for
  kNone,        // nobody waits
};
const char* name(Cause cause);  // "dead", "not called", ...

struct Evidence {
  int size = 0;                     // of the job
  std::vector<RankSnapshot> ranks;  // in any order; of several of one rank its own one counts
  std::vector<Rank> silent;         // not heard of by the control plane
};

struct Diagnosis {
  Cause cause = Cause::kNone;
  Rank rank = kNoRank;   // the root; kLink: the sender
  Rank other = kNoRank;  // kMismatch: one who passed something else; kLink: the receiver
  double waited_s = 0;   // the longest that any rank has waited
  std::string text;      // one line: "rank 5 never called all_reduce #124 (last: #123, 41 s ago)"
  std::vector<std::string> edges;  // "rank 0 waits for rank 1 in all_reduce #124 (shm)"
};

Diagnosis diagnose(const Evidence& evidence);

// How it ends an operation: kPeerFailed, kMismatch or kTimeout, naming the root.
Code code_of(Cause cause);

// JSON, schema weft.doctor/1: the diagnosis and all the evidence.
std::string to_json(const Diagnosis& diagnosis, const Evidence& evidence);

// "41 s", "0.3 s"
std::string seconds(double s);

}  // namespace weft
