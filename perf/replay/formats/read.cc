// Unpacks trace files and selects their readers. This file does not parse any trace format.
#include "perf/replay/formats/read.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <utility>

#include "perf/replay/formats/archive_files.h"
#include "perf/replay/formats/recognize.h"
#include "topo/base/status.h"

namespace weft::replay {
namespace {

// Returns the name without folders and archives.
std::string base_of(const std::string& name) {
  const std::string base = name.substr(name.find_last_of('/') + 1);
  const auto inside = base.rfind(": ");
  return inside == base.npos ? base : base.substr(inside + 2);
}

// Returns the numbers in a name that are delimited by punctuation or follow "rank": 2 and 4 for
// "et_2_of_4.json".
std::vector<int> numbers_in(const std::string& name) {
  const std::string base = base_of(name);
  if (static const std::regex rank(R"(rank[._-]?(\d{1,7})(?!\d))", std::regex::icase); true) {
    std::smatch match;
    if (std::regex_search(base, match, rank)) return {std::stoi(match[1])};
  }
  static const std::regex number(R"((?:^|[._ -])(\d{1,7})(?=[._ -]|$))");
  std::vector<int> numbers;
  for (std::sregex_iterator it(base.begin(), base.end(), number), end; it != end; ++it)
    numbers.push_back(std::stoi((*it)[1]));
  return numbers;
}

bool packed(const std::string& bytes) {
  const bool gzip = bytes.size() > 2 && bytes[0] == '\x1f' && bytes[1] == '\x8b';
  return gzip || (bytes.size() > 262 && bytes.compare(257, 5, "ustar") == 0);
}

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw Error(fmt::format("{}: cannot be read: {}", path, std::strerror(errno)));
  return {std::istreambuf_iterator<char>(in), {}};
}

std::map<std::string, std::vector<Rank>> read_groups(const std::string& path) {
  if (path.empty()) return {};
  try {
    return nlohmann::json::parse(read_file(path)).get<std::map<std::string, std::vector<Rank>>>();
  } catch (const nlohmann::json::exception& e) {
    throw Error(fmt::format("--groups {}: give {{\"name\": [ranks], ...}}: {}", path, e.what()));
  }
}

const char* word_of(Format format) {
  switch (format) {
    case Format::kChakra:
    case Format::kChakraJson:
      return "chakra";
    case Format::kParam:
      return "param";
    case Format::kSimai:
      return "simai";
    case Format::kGoal:
      return "goal";
    case Format::kNone:
      break;
  }
  return "";
}

// Reads the ranks that a file of this format describes.
std::vector<RankTrace> read_as(Format format, const TraceFile& file) {
  switch (format) {
    case Format::kParam:
      return {read_param(file)};
    case Format::kSimai:
      return {read_simai(file)};
    case Format::kGoal:
      return read_goal(file);
    case Format::kChakraJson:
      return {read_chakra_json(file)};
    default:
      break;
  }
#if WEFT_HAVE_PROTOBUF
  return {read_chakra(file)};
#else
  throw Error(
      fmt::format("{}: a Chakra trace, and this weft was built without protobuf "
                  "(protobuf-compiler, libprotobuf-dev)",
                  file.name));
#endif
}

// Returns whether a file in an archive or folder is not a trace, such as PyTorch's kernels or macOS
// files.
bool beside_traces(const TraceFile& file) {
  const std::string base = base_of(file.name);
  return file.found && (base.starts_with("._") || file.name.find("_resources/") != file.name.npos);
}

// Several files of one rank in an archive or folder belong to different jobs: keeps the job (by the
// rest of the name) with the most bytes, and returns notes for the user.
std::vector<std::string> keep_one_job(std::vector<TraceFile>& files, std::vector<Format>& formats) {
  std::set<int> ranks;
  const bool once = std::ranges::all_of(files, [&](const TraceFile& file) {
    return !file.found || file.rank < 0 || ranks.insert(file.rank).second;
  });
  if (once) return {};
  static const std::regex digits(R"(\d+)");
  const auto job_of = [](const TraceFile& file) {
    return std::regex_replace(base_of(file.name), digits, "N");
  };
  std::map<std::string, std::size_t> bytes;
  for (const TraceFile& file : files) bytes[job_of(file)] += file.bytes.size();
  const auto largest =
      std::ranges::max_element(bytes, {}, [](const auto& job) { return job.second; });
  if (bytes.size() < 2) return {};
  std::vector<std::string> notes = {fmt::format(
      "there are traces of {} jobs: {} is played; name the files of another to play that",
      bytes.size(), largest->first)};
  std::size_t kept = 0;
  for (std::size_t i = 0; i < files.size(); ++i) {
    if (job_of(files[i]) != largest->first) continue;
    std::swap(files[kept], files[i]);
    std::swap(formats[kept++], formats[i]);
  }
  files.resize(kept);
  formats.resize(kept);
  number_by_names(files);
  return notes;
}

}  // namespace

void number_by_names(std::vector<TraceFile>& files) {
  std::vector<std::vector<int>> numbers;
  std::size_t places = SIZE_MAX;
  for (const TraceFile& file : files) {
    numbers.push_back(numbers_in(file.name));
    places = std::min(places, numbers.back().size());
  }
  if (files.empty() || places == 0) return;
  // Use the last position whose number differs between all files: a suffix such as "of_4" is equal
  // in all of them.
  for (std::size_t place = places; place-- > 0;) {
    std::set<int> different;
    for (const auto& of_file : numbers) different.insert(of_file[place]);
    if (different.size() < files.size() && place > 0) continue;
    for (std::size_t i = 0; i < files.size(); ++i) files[i].rank = numbers[i][place];
    if (different.size() == files.size()) return;
  }
}

bool reads_packed_files() {
#if WEFT_HAVE_ARCHIVE
  return true;
#else
  return false;
#endif
}

bool reads_chakra_traces() {
#if WEFT_HAVE_PROTOBUF
  return true;
#else
  return false;
#endif
}

std::vector<TraceFile> open_trace(const std::string& path) {
  std::error_code no;
  if (!std::filesystem::is_directory(path, no)) return unpack_trace(path, read_file(path));
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path, no))
    if (entry.is_regular_file(no)) paths.push_back(entry.path());
  std::ranges::sort(paths);
  std::vector<TraceFile> files;
  for (const std::string& name : paths)
    for (TraceFile& file : unpack_trace(name, read_file(name))) {
      file.found = true;
      files.push_back(std::move(file));
    }
  if (files.empty()) throw Error(fmt::format("{}: a folder without files", path));
  return files;
}

std::vector<TraceFile> unpack_trace(const std::string& path, std::string bytes) {
  std::vector<TraceFile> files;
  if (!packed(bytes)) {
    files.push_back({path, std::move(bytes), -1, false});
  } else {
#if WEFT_HAVE_ARCHIVE
    for (auto& [name, text] : unpack(path, bytes))
      files.push_back(
          {name.empty() ? path : path + ": " + name, std::move(text), -1, !name.empty()});
    if (files.empty()) throw Error(fmt::format("{}: there is no file in it", path));
#else
    throw Error(
        fmt::format("{}: packed, and this weft was built without libarchive "
                    "(libarchive-dev): unpack it first",
                    path));
#endif
  }
  return files;
}

Collective collective_in_trace(const std::string& file, std::uint64_t node, std::string_view word) {
  std::string plain;
  for (const char c : word)
    if (std::isalnum(static_cast<unsigned char>(c)))
      plain += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (const char* end :
       {"oop", "coalesced", "single", "sparse", "intotensor", "tensor", "base", "out"})
    if (plain.ends_with(end)) plain.erase(plain.size() - std::strlen(end));
  static const std::map<std::string_view, Collective> known = {
      {"allreduce", Collective::kAllReduce},
      {"allgather", Collective::kAllGather},
      {"reducescatter", Collective::kReduceScatter},
      {"broadcast", Collective::kBroadcast},
      {"barrier", Collective::kBarrier},
      {"monitoredbarrier", Collective::kBarrier},
      {"reduce", Collective::kReduce},
      {"gather", Collective::kGather},
      {"scatter", Collective::kScatter},
      {"alltoall", Collective::kAllToAll},
      {"alltoallv", Collective::kAllToAll},
      {"allgatherv", Collective::kAllGather},
      {"reducescatterv", Collective::kReduceScatter}};
  if (const auto it = known.find(plain); it != known.end()) return it->second;
  throw Error(
      fmt::format("{}: node {}: '{}' is not a collective that weft supports", file, node, word));
}

JobTrace read_job(const std::vector<std::string>& paths, const ReadOptions& options) {
  std::vector<TraceFile> files;
  for (const std::string& path : paths)
    for (TraceFile& file : open_trace(path)) files.push_back(std::move(file));
  return read_files(std::move(files), options);
}

JobTrace read_files(std::vector<TraceFile> files, const ReadOptions& options) {
  std::vector<Format> formats;
  std::uint64_t others = 0;
  std::string refused;
  std::erase_if(files, [&](const TraceFile& file) {
    const Recognized what = beside_traces(file)
                                ? Recognized{Format::kNone, "no trace, but lies beside one"}
                                : recognize(file.bytes);
    if (what.format != Format::kNone) {
      formats.push_back(what.format);
      return false;
    }
    const std::string why = fmt::format("{}: the file is {}", file.name, what.instead);
    if (!file.found) throw Error(why);
    if (refused.empty()) refused = why;
    ++others;
    return true;
  });
  if (files.empty()) throw Error(refused.empty() ? "no trace: name at least one file" : refused);
  number_by_names(files);
  std::vector<std::string> notes = keep_one_job(files, formats);
  if (others > 0)
    notes.push_back(fmt::format("{} {} beside the traces {} not read", others,
                                others == 1 ? "file" : "files", others == 1 ? "is" : "are"));
  std::vector<RankTrace> ranks;
  for (std::size_t i = 0; i < files.size(); ++i) {
    if (std::string_view(word_of(formats[i])) != word_of(formats[0]))
      throw Error(fmt::format("{} is of format {}, {} of format {}: name the files of one job",
                              files[0].name, word_of(formats[0]), files[i].name,
                              word_of(formats[i])));
    std::vector<RankTrace> read = read_as(formats[i], files[i]);
    if (read.size() == 1 && read[0].rank < 0) read[0].rank = files[i].rank;
    for (RankTrace& rank : read) ranks.push_back(std::move(rank));
  }
  const bool of_all = formats[0] == Format::kSimai || formats[0] == Format::kGoal;
  if (of_all && files.size() > 1)
    throw Error(fmt::format("{}: a {} file describes all ranks; name one file", files[0].name,
                            word_of(formats[0])));
  JobTrace trace =
      assemble(word_of(formats[0]), std::move(ranks), options.ranks, read_groups(options.groups));
  trace.notes.insert(trace.notes.begin(), notes.begin(), notes.end());
  return trace;
}

}  // namespace weft::replay
