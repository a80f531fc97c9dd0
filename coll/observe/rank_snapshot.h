// What is known of one rank at one moment: what it ran last, what it waits for, how its process
// is. Read from a recorder (recorder.h), gathered over all ranks, judged by diagnosis.h.
//
// All times are ages in seconds at the moment of reading, so that snapshots of different hosts
// can be put side by side.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "coll/call_descriptor.h"
#include "topo/base/status.h"

namespace weft {

enum class OpState : std::uint8_t { kNone, kStarted, kDone, kFailed };
const char* name(OpState state);  // "started", ...

// How far the transfers with one peer on one link are, within one operation.
struct PeerProgress {
  Rank peer = kNoRank;     // world rank
  std::int32_t link = -1;  // index into RankSnapshot::links; -1: the board
  std::uint32_t sends_posted = 0, sends_done = 0, recvs_posted = 0, recvs_done = 0;
  // Where rails share messages: the links, as bits, that those which have not ended are on.
  std::uint32_t sends_on = 0, recvs_on = 0;
  bool receives() const { return recvs_posted > recvs_done; }
  bool sends() const { return sends_posted > sends_done; }
};

// Of one operation; where there are more, the rest is not told.
inline constexpr std::size_t kMostPeers = 32;

struct OperationReport : CallDescriptor {
  std::uint64_t number = 0;  // of all operations of this rank, from 1
  OpState state = OpState::kNone;
  double started_s = 0;  // ago
  double ended_s = 0;    // ago; not kStarted
  // Of one that got no further for some milliseconds, while its rank waited:
  bool surveyed = false;
  std::uint64_t part = 0;  // lane: which of its steps waits; the same number on all ranks
  std::uint64_t rounds = 0, rounds_done = 0;
  std::vector<PeerProgress> peers;  // those with something outstanding first
};

struct RankSnapshot {
  Rank rank = kNoRank;
  std::string host, machine;
  int pid = 0;
  bool own = false;  // by the rank itself; otherwise read by another rank of its machine
  // As in /proc/PID/stat: R running, S sleeping, D in the kernel, T stopped, t traced, Z ended;
  // X: there is no such process any more; L: it has left the job in good order; ?: unknown.
  char state = '?';
  double waits_s = 0;  // it has been waiting in weft, without progress, for so long; 0: it is not
  std::uint64_t begun = 0;         // operations, ever
  std::vector<std::string> links;  // "shm", "rail 0 (eth0)"
  // Signs of trouble that this host's ports have counted (port_counters.h), by rail; of a rank's
  // own snapshot.
  std::vector<std::string> counters;        // "rail 1 host h2: out_of_seq_request +299"
  std::vector<OperationReport> operations;  // the last ones, oldest first

  bool stopped() const { return state == 'T' || state == 't'; }
  bool dead() const { return state == 'Z' || state == 'X'; }
};

// JSON, schema weft.testimony/1.
std::string encode(const RankSnapshot& snapshot);
RankSnapshot decode_snapshot(std::string_view text);  // throws Error on malformed text
// Several of them as one text, and from several such texts: what is malformed is left out, and of
// several snapshots of one rank its own one is taken. By rank.
std::string encode(const std::vector<RankSnapshot>& snapshots);
std::vector<RankSnapshot> collect(const std::vector<std::string>& texts);

// The state of a process of this machine as above, X when it is gone or another process has its
// number: one that was not born at `born` (0: any).
char process_state(int pid, std::uint64_t born);
// Clock ticks from boot to the start of the process; 0 where that cannot be read.
std::uint64_t process_born(int pid);

}  // namespace weft
