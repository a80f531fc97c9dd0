// Opens the files of a trace, whatever they are packed in, and hands them to the reader of their
// format. Knows no format's contents.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "perf/replay/trace.h"

namespace weft::replay {

// A file, or one of a tar, unpacked.
struct TraceFile {
  std::string name;  // "ranks.tar.gz: rank.0.json"
  std::string bytes;
  int rank = -1;       // as the name says: "x.3.et", "rank-3.json.gz"; -1: it does not say
  bool found = false;  // in a folder or archive, which may hold other files: those are left out
};

// Reads a file, or all files of a folder; gzipped ones and tars by libarchive, where weft was built
// with it. Throws Error.
std::vector<TraceFile> open_trace(const std::string& path);
// The same of a file's bytes.
std::vector<TraceFile> unpack_trace(const std::string& path, std::string bytes);

struct ReadOptions {
  int ranks = 0;       // of the job, where one file stands for all; 0: as the file says
  std::string groups;  // a JSON file {"name": [ranks], ...}; empty: none
};
// Reads the files of a job, all of one format. Throws Error naming the file and what is wrong.
JobTrace read_job(const std::vector<std::string>& paths, const ReadOptions& options = {});
// The same of files that are open.
JobTrace read_files(std::vector<TraceFile> files, const ReadOptions& options = {});

// Whether weft was built with what these need.
bool reads_packed_files();
bool reads_chakra_traces();

// The readers. Each throws Error.
RankTrace read_chakra(const TraceFile& file);       // protobuf
RankTrace read_chakra_json(const TraceFile& file);  // as Chakra's feeder reads it
RankTrace read_param(const TraceFile& file);
RankTrace read_simai(const TraceFile& file);
std::vector<RankTrace> read_goal(const TraceFile& file);  // all ranks of the job

// Gives each file the number in its name by which the names differ: "et_2_of_4.json" is of rank 2.
void number_by_names(std::vector<TraceFile>& files);

// Returns the collective that a trace calls "ALLREDUCE", "_allgather_base", "all_to_allv",
// "reduce_scatter_tensor_coalesced". Throws Error naming the word and the file.
Collective collective_in_trace(const std::string& file, std::uint64_t node, std::string_view word);

}  // namespace weft::replay
