// diagnose() determines why a job hangs: a pure function of the snapshots of its ranks.
//
// Every waiting rank has edges to the ranks that it waits for (the peers with outstanding transfers
// in its operation). Following the edges leads to a root cause: a rank that is dead, stopped or
// unresponsive, that did not make the call, that passed different arguments, or that runs its own
// code; a link that accepted bytes and did not deliver them; or a cycle of ranks in different
// calls.
#pragma once

#include <string>
#include <vector>

#include "coll/observe/rank_snapshot.h"
#include "topo/base/status.h"

namespace weft {

// Causes in order of priority: the first cause that applies is the root cause.
enum class Cause : std::uint8_t {
  kDead,        // a process has ended
  kStopped,     // a process is stopped by a signal or a debugger
  kSilent,      // a rank's host is unreachable or down
  kMismatch,    // ranks passed different arguments, or made different calls
  kNotCalled,   // a live rank has not made the call in which others wait
  kNotWaiting,  // a rank started the call asynchronously and does not progress it
  kCircle,      // ranks wait for each other, in calls in different orders
  kLink,        // bytes that were handed to a link do not arrive
  kUnknown,     // ranks wait for a rank without a snapshot
  kNone,        // no rank waits
};
const char* name(Cause cause);  // "dead", "not called", ...

struct Evidence {
  int size = 0;                     // ranks of the job
  std::vector<RankSnapshot> ranks;  // in any order; a rank's own snapshot takes precedence
  std::vector<Rank> silent;         // ranks that do not respond to the control plane
};

struct Diagnosis {
  Cause cause = Cause::kNone;
  Rank rank = kNoRank;   // the root cause; kLink: the sender
  Rank other = kNoRank;  // kMismatch: a rank that passed other arguments; kLink: the receiver
  double waited_s = 0;   // maximum over all ranks
  std::string text;      // one line: "rank 5 never called all_reduce #124 (last: #123, 41 s ago)"
  // kCircle: the ranks are in several calls that wait for each other.
  bool other_order = false;
  std::vector<std::string> edges;  // "rank 0 waits for rank 1 in all_reduce #124 (shm)"
};

Diagnosis diagnose(const Evidence& evidence);

// The status code of an operation that ends because of this cause: kPeerFailed, kMismatch or
// kTimeout.
Code code_of(Cause cause);

// JSON, schema weft.doctor/1: the diagnosis and all the evidence.
std::string to_json(const Diagnosis& diagnosis, const Evidence& evidence);

// "41 s", "0.3 s"
std::string seconds(double s);

}  // namespace weft
