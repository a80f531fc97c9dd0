// A snapshot is the state of one rank at one time: its last operations, the peers that it waits
// for, its process. recorder.h takes snapshots, the job gathers them, diagnosis.h evaluates them.
//
// All times are ages in seconds at the time of the snapshot, so snapshots from different hosts are
// comparable.
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

// Progress of the transfers with one peer on one link, within one operation.
struct PeerProgress {
  Rank peer = kNoRank;     // world rank
  std::int32_t link = -1;  // index into RankSnapshot::links; -1: the board
  std::uint32_t sends_posted = 0, sends_done = 0, recvs_posted = 0, recvs_done = 0;
  // If rails share messages: bit masks of the links with unfinished transfers.
  std::uint32_t sends_on = 0, recvs_on = 0;
  bool receives() const { return recvs_posted > recvs_done; }
  bool sends() const { return sends_posted > sends_done; }
};

// Maximum number of peers in the report of one operation; further peers are omitted.
inline constexpr std::size_t kMostPeers = 32;

struct OperationReport : CallDescriptor {
  std::uint64_t number = 0;  // among all operations of this rank, from 1
  OpState state = OpState::kNone;
  double started_s = 0;  // seconds ago
  double ended_s = 0;    // seconds ago; not for kStarted
  // Set for an operation that made no progress for some milliseconds while its rank waited:
  bool surveyed = false;
  std::uint64_t part = 0;  // lane: the step that waits; numbered alike on all ranks
  std::uint64_t rounds = 0, rounds_done = 0;
  std::vector<PeerProgress> peers;  // peers with outstanding transfers first
};

struct RankSnapshot {
  Rank rank = kNoRank;
  std::string host, machine;
  int pid = 0;
  bool own = false;  // taken by the rank itself, not by another rank of its machine
  // As in /proc/PID/stat: R running, S sleeping, D uninterruptible sleep, T stopped, t traced, Z
  // zombie; X: the process has ended; L: the rank has left the job cleanly; ?: unknown.
  char state = '?';
  // Time that the rank has waited in weft without progress; 0: not waiting.
  double waits_s = 0;
  std::uint64_t begun = 0;         // number of operations started so far
  std::vector<std::string> links;  // "shm", "rail 0 (eth0)"
  // Signs of trouble in the counters of this host's ports (port_counters.h), by rail; only in a
  // snapshot that a rank takes of itself.
  std::vector<std::string> counters;        // "rail 1 host h2: out_of_seq_request +299"
  std::vector<OperationReport> operations;  // the last ones, oldest first

  bool stopped() const { return state == 'T' || state == 't'; }
  bool dead() const { return state == 'Z' || state == 'X'; }
};

// Writes a snapshot as JSON, schema weft.testimony/1.
std::string encode(const RankSnapshot& snapshot);
RankSnapshot decode_snapshot(std::string_view text);  // throws Error on malformed text
// Writes several snapshots as one text.
std::string encode(const std::vector<RankSnapshot>& snapshots);
// Parses texts of encode(), skips malformed parts, prefers the snapshot that a rank took of itself,
// and sorts by rank.
std::vector<RankSnapshot> collect(const std::vector<std::string>& texts);

// Returns the RankSnapshot::state of a process of this machine. X: the process has ended, or its
// pid belongs to a process that did not start at `born` (0: any).
char process_state(int pid, std::uint64_t born);
// Returns the start time of the process in clock ticks since boot; 0 if it cannot be read.
std::uint64_t process_born(int pid);

}  // namespace weft
