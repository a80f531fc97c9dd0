// Unpacks trace files and tells formats apart. Knows no format's contents.
#include "perf/replay/read.h"

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
#include <utility>

#include "perf/replay/archive_files.h"
#include "topo/base/status.h"

namespace weft::replay {
namespace {

int rank_in_name(const std::string& name) {
  static const std::regex number(
      R"((?:^|[._/ -])(?:rank[_-]?)?(\d{1,7})\.(?:et|json|txt)(?:\.gz)?$)");
  std::smatch match;
  return std::regex_search(name, match, number) ? std::stoi(match[1]) : -1;
}

bool packed(const std::string& bytes) {
  const bool gzip = bytes.size() > 2 && bytes[0] == '\x1f' && bytes[1] == '\x8b';
  return gzip || (bytes.size() > 262 && bytes.compare(257, 5, "ustar") == 0);
}

std::string read_file(const std::string& path) {
  std::error_code no;
  if (std::filesystem::is_directory(path, no))
    throw Error(fmt::format("{}: a folder; name the files in it", path));
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

enum class Format { kChakra, kParam, kSimai };

Format format_of(const TraceFile& file) {
  const auto first = file.bytes.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) throw Error(fmt::format("{}: the file is empty", file.name));
  if (file.bytes[first] == '{') return Format::kParam;
  const std::string start = file.bytes.substr(0, 16);
  const bool text = std::ranges::all_of(
      start, [](unsigned char c) { return std::isprint(c) || std::isspace(c); });
  return text ? Format::kSimai : Format::kChakra;
}

}  // namespace

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
  return unpack_trace(path, read_file(path));
}

std::vector<TraceFile> unpack_trace(const std::string& path, std::string bytes) {
  std::vector<TraceFile> files;
  if (!packed(bytes)) {
    files.push_back({path, std::move(bytes), -1});
  } else {
#if WEFT_HAVE_ARCHIVE
    for (auto& [name, text] : unpack(path, bytes))
      files.push_back({name.empty() ? path : path + ": " + name, std::move(text), -1});
    if (files.empty()) throw Error(fmt::format("{}: there is no file in it", path));
#else
    throw Error(
        fmt::format("{}: packed, and this weft was built without libarchive "
                    "(libarchive-dev): unpack it first",
                    path));
#endif
  }
  for (TraceFile& file : files) file.rank = rank_in_name(file.name);
  return files;
}

Collective collective_in_trace(const std::string& file, std::uint64_t node, std::string_view word) {
  std::string plain;
  for (const char c : word)
    if (std::isalnum(static_cast<unsigned char>(c)))
      plain += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (const char* end : {"coalesced", "single", "intotensor", "tensor", "base", "out"})
    if (plain.ends_with(end)) plain.erase(plain.size() - std::strlen(end));
  static const std::map<std::string_view, Collective> known = {
      {"allreduce", Collective::kAllReduce},
      {"allgather", Collective::kAllGather},
      {"reducescatter", Collective::kReduceScatter},
      {"broadcast", Collective::kBroadcast},
      {"barrier", Collective::kBarrier},
      {"reduce", Collective::kReduce},
      {"gather", Collective::kGather},
      {"scatter", Collective::kScatter},
      {"alltoall", Collective::kAllToAll},
      {"alltoallv", Collective::kAllToAll},
      {"allgatherv", Collective::kAllGather},
      {"reducescatterv", Collective::kReduceScatter}};
  if (const auto it = known.find(plain); it != known.end()) return it->second;
  throw Error(fmt::format("{}: node {}: '{}' is no collective that weft knows", file, node, word));
}

JobTrace read_job(const std::vector<std::string>& paths, const ReadOptions& options) {
  std::vector<TraceFile> files;
  for (const std::string& path : paths)
    for (TraceFile& file : open_trace(path)) files.push_back(std::move(file));
  return read_files(files, options);
}

JobTrace read_files(const std::vector<TraceFile>& files, const ReadOptions& options) {
  std::vector<RankTrace> ranks;
  std::string first, format;
  for (const TraceFile& file : files) {
    std::string now;
    switch (format_of(file)) {
      case Format::kParam:
        ranks.push_back(read_param(file));
        now = "param";
        break;
      case Format::kSimai:
        ranks.push_back(read_simai(file));
        now = "simai";
        break;
      case Format::kChakra:
#if WEFT_HAVE_PROTOBUF
        ranks.push_back(read_chakra(file));
        now = "chakra";
        break;
#else
        throw Error(
            fmt::format("{}: a Chakra trace, and this weft was built without protobuf "
                        "(protobuf-compiler, libprotobuf-dev)",
                        file.name));
#endif
    }
    if (format.empty()) {
      format = now;
      first = file.name;
    } else if (format != now) {
      throw Error(fmt::format("{} is of format {}, {} of format {}: name the files of one job",
                              first, format, file.name, now));
    }
    if (ranks.back().rank < 0) ranks.back().rank = file.rank;
  }
  if (format == "simai" && ranks.size() > 1)
    throw Error(fmt::format("{}: a SimAI workload describes all ranks; name one file", first));
  return assemble(format, std::move(ranks), options.ranks, read_groups(options.groups));
}

}  // namespace weft::replay
