// Opens the files of a trace, packed or not, and calls the reader of their format. Does not depend
// on the contents of formats.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "perf/replay/trace.h"

namespace weft::replay {

// An unpacked file.
struct TraceFile {
  std::string name;  // "ranks.tar.gz: rank.0.json"
  std::string bytes;
  int rank = -1;       // rank in the file's name ("x.3.et", "rank-3.json.gz"); -1: unknown
  bool found = false;  // the file is from a folder or archive: skipped if it is not a trace
};

// Reads a file, or all files of a folder; gzip and tar need a build with libarchive. Throws Error.
std::vector<TraceFile> open_trace(const std::string& path);
// Unpacks the contents of a file.
std::vector<TraceFile> unpack_trace(const std::string& path, std::string bytes);

struct ReadOptions {
  // Number of ranks of the job, if one file represents all ranks; 0: from the file.
  int ranks = 0;
  std::string groups;  // a JSON file {"name": [ranks], ...}; empty: none
};
// Reads the files of a job, all of one format. Throws Error naming the file and the problem.
JobTrace read_job(const std::vector<std::string>& paths, const ReadOptions& options = {});
// Reads files that open_trace() or unpack_trace() returned.
JobTrace read_files(std::vector<TraceFile> files, const ReadOptions& options = {});

// Returns whether weft was built with the libraries for these formats.
bool reads_packed_files();
bool reads_chakra_traces();

// The readers of the formats. Each reader throws Error.
RankTrace read_chakra(const TraceFile& file);       // protobuf
RankTrace read_chakra_json(const TraceFile& file);  // JSON in the form that Chakra's feeder reads
RankTrace read_param(const TraceFile& file);
RankTrace read_simai(const TraceFile& file);
std::vector<RankTrace> read_goal(const TraceFile& file);  // traces of all ranks of the job

// Sets each file's rank from the number in which the names differ: 2 for "et_2_of_4.json".
void number_by_names(std::vector<TraceFile>& files);

// Returns the collective that a trace calls "ALLREDUCE", "_allgather_base", "all_to_allv",
// "reduce_scatter_tensor_coalesced". Throws Error naming the word and the file.
Collective collective_in_trace(const std::string& file, std::uint64_t node, std::string_view word);

}  // namespace weft::replay
