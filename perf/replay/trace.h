// The traffic of a job, independent of the trace format: for every rank a list of nodes
// (computation, collectives, messages) with dependencies, and groups of ranks.
//
// Readers return a RankTrace per rank; assemble() joins them, proves that the job can end, and
// throws Error naming the file, the node and the value that prevent it. Does not depend on file
// formats.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "coll/types.h"
#include "topo/topology.h"

namespace weft::replay {

enum class NodeKind : std::uint8_t { kCompute, kCollective, kSend, kRecv };

// The most ranks that readers accept: a file of a few bytes can claim any number.
inline constexpr int kMostRanks = 1 << 20;

struct TraceNode {
  NodeKind kind = NodeKind::kCompute;
  std::uint64_t id = 0;  // unique in its file
  std::string name;
  double compute_us = 0;
  // kSendRecv: every rank of the group sends `bytes` to the next rank, the last one to the first.
  Collective collective = Collective::kAllReduce;
  bool back = false;  // kSendRecv: each rank sends to the preceding rank instead
  DType type = DType::kFloat32;
  // Size of the whole message, as `weft perf` counts it. !is_whole: size of a rank's input, from
  // which assemble() computes the whole.
  std::uint64_t bytes = 0;
  bool is_whole = true;
  bool may_differ = false;      // ranks may have different `bytes`; assemble() takes the mean
  std::string group_name;       // a reader's name for the group, or ""
  int group = 0;                // index into JobTrace::groups, set by assemble()
  Rank root = 0;                // root of a rooted collective: a rank of the job
  Rank peer = kNoRank;          // peer of a message: a rank of the job
  bool ranks_of_group = false;  // `root` and `peer` are numbers in the group; cleared by assemble()
  // Tag of a message: a message matches only a message with the same tag.
  std::int64_t tag = 0;
  std::vector<std::uint64_t> after_ids;  // ids of the nodes that must end first
  std::vector<int> after;                // indices of these nodes, set by assemble()
};

std::string words_of(const TraceNode& node);  // "node 7 (aten::mm)"

// The trace of one rank, from one file.
struct RankTrace {
  std::string file;
  int rank = -1;                 // -1: the file has no rank
  int job_ranks = 0;             // number of ranks of the job; 0: not in the file
  std::vector<TraceNode> nodes;  // in the order in which the rank issues them
  std::map<std::string, std::vector<Rank>> groups;
  std::map<std::string, int> member_of;           // sizes of the groups that the rank is in
  std::map<std::string, int> group_sizes;         // sizes of groups whose ranks may be unlisted
  std::map<std::string, std::string> titles;      // descriptive names of groups ("tensor")
  bool sends_are_eager = false;                   // see JobTrace
  std::map<std::string, std::uint64_t> left_out;  // number of nodes that are not played, by name
  // Number of computations without a time in the file.
  std::uint64_t untimed = 0;
};

// Disjoint lists of ranks with the same role: one list, or one for each value of the other axes.
struct TraceGroup {
  std::string name;
  std::vector<std::vector<Rank>> lists;
  bool neighbours = true;  // the ranks of a list are consecutive
};

using Program = std::vector<TraceNode>;

struct JobTrace {
  std::string format;  // "chakra", "param", "simai", "goal"
  int ranks = 0;
  // As in Chakra and GOAL, a send completes when it is posted, even before the peer posts the
  // receive.
  bool sends_are_eager = false;
  std::vector<TraceGroup> groups;  // groups[0]: all ranks
  // In order: the nodes that a node waits for (`after`) come before it.
  std::vector<Program> programs;
  std::vector<int> program_of;  // index into `programs`, by rank
  std::map<std::string, std::uint64_t> left_out;
  std::uint64_t untimed = 0;
  std::vector<std::string> notes;  // assumptions and changes, for the user

  const Program& program(Rank r) const {
    return programs[static_cast<std::size_t>(program_of[static_cast<std::size_t>(r)])];
  }
  // Returns whether all ranks have the same program without messages, so that one rank represents
  // all.
  bool alike() const;
  // Returns whether the trace has neither a call nor a computation that takes time.
  bool empty() const;
  // Returns the list of the group that rank r is in; nullptr: none.
  const std::vector<Rank>* list_of(int group, Rank r) const;
};

// Joins the files of a job. `ranks`: of the job, if a single file stands for all; 0: from the file.
// `groups`: additional groups, by name. Throws Error.
JobTrace assemble(std::string format, std::vector<RankTrace> files, int ranks = 0,
                  const std::map<std::string, std::vector<Rank>>& groups = {});

// Sorts the nodes topologically, with as few changes to the order as possible, and sets `after`.
// Returns the number of dependencies on nodes that the file lacks, as in traces that begin or end
// in the middle of a job. Throws Error naming a cycle.
std::uint64_t put_in_order(const std::string& file, Program& nodes);

// Plays the job without times. Throws Error if calls of a group differ between ranks, if messages
// have no partner, or if ranks wait for each other in a cycle.
void check_that_it_ends(const JobTrace& trace);

// Removes calls of groups with one rank, and counts them in left_out.
void drop_lonely_calls(JobTrace& trace);

// One collective and size in one group; messages of a size have one key for all ranks.
struct CallKey {
  NodeKind kind = NodeKind::kCollective;
  Collective collective = Collective::kAllReduce;
  std::uint64_t bytes = 0;
  int group = 0;
  auto operator<=>(const CallKey&) const = default;
};
CallKey key_of(const TraceNode& node);
// Returns all keys of a trace, ascending, and thus the same on every rank that reads the same
// files.
std::vector<CallKey> keys_of(const JobTrace& trace);
const char* word_of(const CallKey& key);  // "all_reduce", "send", "recv"

}  // namespace weft::replay
