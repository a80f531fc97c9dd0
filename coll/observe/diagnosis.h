// diagnose() says why a job hangs: a pure function of the snapshots of its ranks.
//
// Every rank that waits has edges to the ranks it waits for (its operation's peers with outstanding
// transfers). Following the edges ends at a root: a rank that is dead, stopped or silent, that
// never called, that called with other arguments, or that runs its own code; a link that took bytes
// and did not deliver them; or a circle of ranks in different calls.
#pragma once

#include <string>
#include <vector>

#include "coll/observe/rank_snapshot.h"
#include "topo/base/status.h"

namespace weft {

// The causes in order of weight: the first cause found is the root, whatever else is wrong.
enum class Cause : std::uint8_t {
  kDead,        // a process has ended
  kStopped,     // a process is stopped by a signal or a debugger
  kSilent,      // a rank's host is cut off, or down
  kMismatch,    // ranks passed different arguments, or call different things
  kNotCalled,   // a live rank has not made the call that the others wait in
  kNotWaiting,  // a rank made the call asynchronously, and then only runs its own code
  kCircle,      // ranks wait for each other, in calls of different order
  kLink,        // bytes that were handed to a link do not arrive
  kUnknown,     // ranks wait for a rank without a snapshot
  kNone,        // nobody waits
};
const char* name(Cause cause);  // "dead", "not called", ...

struct Evidence {
  int size = 0;                     // ranks of the job
  std::vector<RankSnapshot> ranks;  // in any order; a rank's own snapshot outweighs others of it
  std::vector<Rank> silent;         // ranks that the control plane does not hear
};

struct Diagnosis {
  Cause cause = Cause::kNone;
  Rank rank = kNoRank;   // the root; kLink: the sender
  Rank other = kNoRank;  // kMismatch: a rank that passed something else; kLink: the receiver
  double waited_s = 0;   // the longest that any rank has waited
  std::string text;      // one line: "rank 5 never called all_reduce #124 (last: #123, 41 s ago)"
  bool other_order = false;  // kCircle: in several calls, none of which can go on
  std::vector<std::string> edges;  // "rank 0 waits for rank 1 in all_reduce #124 (shm)"
};

Diagnosis diagnose(const Evidence& evidence);

// The error that the cause ends an operation with: kPeerFailed, kMismatch or kTimeout.
Code code_of(Cause cause);

// JSON, schema weft.doctor/1: the diagnosis and all the evidence.
std::string to_json(const Diagnosis& diagnosis, const Evidence& evidence);

// "41 s", "0.3 s"
std::string seconds(double s);

}  // namespace weft
