// The traffic of a job, whatever wrote it down: for every rank a list of nodes (computation,
// collectives, messages) that wait for each other, and the groups of ranks they name.
//
// Readers give a RankTrace per file; assemble() joins them, proves that the job can end, and throws
// Error naming the file, the node and the value that make it impossible. Knows no file format.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "coll/types.h"
#include "topo/topology.h"

namespace weft::replay {

enum class NodeKind : std::uint8_t { kCompute, kCollective, kSend, kRecv };

// Ranks of a job that readers believe: a file of a few bytes can claim any number.
inline constexpr int kMostRanks = 1 << 20;

struct TraceNode {
  NodeKind kind = NodeKind::kCompute;
  std::uint64_t id = 0;  // in its file
  std::string name;
  double compute_us = 0;
  // kSendRecv: every rank of the group passes `bytes` to the next one, the last one to the first.
  Collective collective = Collective::kAllReduce;
  bool back = false;  // of kSendRecv: to the one before
  DType type = DType::kFloat32;
  // Of the whole message, as `weft perf` counts it. !is_whole: what a rank puts in, of which
  // assemble() makes the whole.
  std::uint64_t bytes = 0;
  bool is_whole = true;
  bool may_differ = false;      // ranks may have different `bytes`; assemble() takes the mean
  std::string group_name;       // ""; a reader's name for the group
  int group = 0;                // index into JobTrace::groups, set by assemble()
  Rank root = 0;                // of a rooted collective: a rank of the job
  Rank peer = kNoRank;          // of a message: a rank of the job
  bool ranks_of_group = false;  // root and peer count within the group; assemble() ends it
  std::int64_t tag = 0;         // of a message: it meets only those of its tag
  std::vector<std::uint64_t> after_ids;  // nodes that must end first, by id
  std::vector<int> after;                // the same by index, set by assemble()
};

std::string words_of(const TraceNode& node);  // "node 7 (aten::mm)"

// What one file says, of one rank.
struct RankTrace {
  std::string file;
  int rank = -1;                 // -1: the file does not say
  int job_ranks = 0;             // 0: the file does not say
  std::vector<TraceNode> nodes;  // in the order in which the rank issued them
  std::map<std::string, std::vector<Rank>> groups;
  std::map<std::string, int> member_of;  // groups that the rank is in, and how many ranks they have
  std::map<std::string, int> group_sizes;         // of groups whose ranks may not be said
  std::map<std::string, std::string> titles;      // of groups: what people call them ("tensor")
  bool sends_are_eager = false;                   // see JobTrace
  std::map<std::string, std::uint64_t> left_out;  // what is not played, by name
  std::uint64_t untimed = 0;                      // computations whose time the file does not state
};

// Disjoint lists of ranks that do the same: one list, or one for each value of the other axes.
struct TraceGroup {
  std::string name;
  std::vector<std::vector<Rank>> lists;
  bool neighbours = true;  // the ranks of a list follow each other
};

using Program = std::vector<TraceNode>;

struct JobTrace {
  std::string format;  // "chakra", "param", "simai", "goal"
  int ranks = 0;
  // A send is over for its rank when it is posted, as in Chakra and GOAL, whether or not the peer
  // has posted its receive.
  bool sends_are_eager = false;
  std::vector<TraceGroup> groups;  // [0]: all ranks
  std::vector<Program> programs;   // a node's `after` are nodes before it
  std::vector<int> program_of;     // by rank
  std::map<std::string, std::uint64_t> left_out;
  std::uint64_t untimed = 0;
  std::vector<std::string> notes;  // what was assumed or changed

  const Program& program(Rank r) const {
    return programs[static_cast<std::size_t>(program_of[static_cast<std::size_t>(r)])];
  }
  // Whether all ranks do the same without messages, so that one of them shows it all.
  bool alike() const;
  // Whether there is nothing to play: neither a call nor a computation that takes time.
  bool empty() const;
  // The list of the group that rank r is in; nullptr: none.
  const std::vector<Rank>* list_of(int group, Rank r) const;
};

// Joins the files of a job. `ranks`: of the job, where a single file stands for all; 0: as the file
// says. `groups`: further groups, by name. Throws Error.
JobTrace assemble(std::string format, std::vector<RankTrace> files, int ranks = 0,
                  const std::map<std::string, std::vector<Rank>>& groups = {});

// Puts the nodes into an order in which each one comes after those it waits for, as near to the
// list's own order as can be, and sets `after`. Returns how many dependencies name a node that the
// file does not have: traces that begin or end in the middle of a job have such. Throws Error
// naming a cycle.
std::uint64_t put_in_order(const std::string& file, Program& nodes);

// Plays the job without times: throws Error where calls of a group differ from rank to rank, where
// messages find no partner, or where ranks wait for each other in a circle.
void check_that_it_ends(const JobTrace& trace);

// Turns the calls of groups with one rank into nothing, and counts them in left_out.
void drop_lonely_calls(JobTrace& trace);

// One collective and size in one group; messages of a size are one key, whoever sends them.
struct CallKey {
  NodeKind kind = NodeKind::kCollective;
  Collective collective = Collective::kAllReduce;
  std::uint64_t bytes = 0;
  int group = 0;
  auto operator<=>(const CallKey&) const = default;
};
CallKey key_of(const TraceNode& node);
// All keys of a trace, ascending: the same on every rank that reads the same files.
std::vector<CallKey> keys_of(const JobTrace& trace);
const char* word_of(const CallKey& key);  // "all_reduce", "send", "recv"

}  // namespace weft::replay
