// `weft trace merge`: joins the traces of all ranks into one file, on rank 0's clock.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "perf/cli/commands.h"
#include "topo/base/status.h"

namespace weft {
namespace {

using nlohmann::json;

constexpr int kDeepest = 100;  // levels of nesting; a trace has 5

json read_trace(const std::string& path) {
  std::ifstream file(path);
  if (!file || std::filesystem::is_directory(path))
    throw Error(fmt::format("cannot read the trace {}", path));
  // The result is written recursively, so limit the depth.
  const auto flat = [&](int depth, json::parse_event_t, json&) {
    if (depth > kDeepest) throw Error(fmt::format("{} is not a trace: nested too deeply", path));
    return true;
  };
  json trace = json::parse(file, flat, false);
  const bool known = trace.is_object() && trace.contains("traceEvents") &&
                     trace["traceEvents"].is_array() && trace.contains("otherData") &&
                     trace["otherData"].value("schema", "") == "weft.trace/1";
  if (!known)
    throw Error(
        fmt::format("{} is not a trace of one rank (schema weft.trace/1): did the program exit "
                    "before writing it?",
                    path));
  return trace;
}

// Checks the range: converting a number too large for its type is undefined.
std::int64_t integer(const json& about, const char* key, std::int64_t most,
                     const std::string& path) {
  const json& value = about.at(key);
  if (!value.is_number_integer() || value < 0 || value > most)
    throw Error(fmt::format("{} is a damaged trace: {} {}: no number from 0 to {}", path, key,
                            value.dump(-1, ' ', false, json::error_handler_t::replace), most));
  return value;
}

struct Merged {
  json events = json::array();
  std::set<int> ranks, unknown;  // unknown: ranks whose clock offset is unknown
  double first = std::numeric_limits<double>::max(), uncertain = 0;
  std::map<std::int64_t, std::string> jobs;  // job ids, each with one file of the job
};

// Adds a file's events and metadata; throws json::exception if a field is not as in a trace.
void merge_one(const std::string& path, Merged& all) {
  json trace = read_trace(path);
  const json& about = trace["otherData"];
  const auto rank = static_cast<int>(integer(about, "rank", std::numeric_limits<int>::max(), path));
  if (!all.ranks.insert(rank).second)
    throw Error(
        fmt::format("{} is another trace of rank {}: give one file of each rank of one "
                    "job",
                    path, rank));
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  // A killed rank writes no trace: its file may be from an earlier job.
  if (about.contains("job")) all.jobs.emplace(integer(about, "job", kMost, path), path);
  if (all.jobs.size() > 1)
    throw Error(
        fmt::format("{} and {} are traces of two jobs: give one file of each rank of one job",
                    all.jobs.begin()->second, all.jobs.rbegin()->second));
  const double ahead = about.value("clock_ahead_us", 0.0);
  const double unsure = about.value("clock_uncertain_us", -1.0);
  if (unsure < 0) {
    all.unknown.insert(rank);
    std::fprintf(stderr, "weft trace: the clock of rank %d is not known: its times are its own\n",
                 rank);
  }
  all.uncertain = std::max(all.uncertain, unsure);
  const auto dropped = about.contains("dropped") ? integer(about, "dropped", kMost, path) : 0;
  if (dropped > 0)
    fmt::print(stderr, "weft trace: rank {} left out its last {} events\n", rank, dropped);
  for (json& event : trace["traceEvents"]) {
    if (event.contains("ts")) {
      const double ts = event["ts"].get<double>() - ahead;
      event["ts"] = ts;
      all.first = std::min(all.first, ts);
    }
    all.events.push_back(std::move(event));
  }
}

void merge(const std::vector<std::string>& paths, const std::string& to) {
  Merged all;
  for (const std::string& path : paths) {
    try {
      merge_one(path, all);
    } catch (const json::exception& e) {
      throw Error(fmt::format("{} is a damaged trace: {}", path, e.what()));
    } catch (const std::ios_base::failure& e) {
      throw Error(fmt::format("cannot read the trace {}: {}", path, e.what()));
    }
  }
  // Start at 0: microseconds since boot are hard to read.
  for (json& event : all.events)
    if (event.contains("ts")) event["ts"] = event["ts"].get<double>() - all.first;
  const json merged = {{"traceEvents", std::move(all.events)},
                       {"displayTimeUnit", "ns"},
                       {"otherData",
                        {{"schema", "weft.trace/1"},
                         {"ranks", all.ranks},
                         {"clock_uncertain_us",
                          // -1: unknown, as in the traces of single ranks
                          all.unknown.empty() ? all.uncertain : -1.0}}}};
  errno = 0;
  std::ofstream file(to);
  file << merged.dump() << '\n';
  file.close();
  if (!file) {
    const int error = errno;
    // Remove a partial file, which looks like a trace. Do not remove a device.
    std::error_code ignored;
    if (std::filesystem::is_regular_file(to, ignored)) std::filesystem::remove(to, ignored);
    throw Error(fmt::format("cannot write {}: {}; make room, or name another file with --out", to,
                            std::strerror(error)));
  }
  fmt::print("{}: {} events of {} ranks; {}\n", to, merged["traceEvents"].size(), all.ranks.size(),
             all.unknown.empty()
                 ? fmt::format("clocks agree within {:.0f} us", all.uncertain)
                 : fmt::format("the clocks of {} are not known", all.unknown.size()));
}

struct TraceArguments {
  std::vector<std::string> files;
  std::string out;
};

}  // namespace

void add_trace(CLI::App& app, int& exit_code) {
  auto* command = app.add_subcommand("trace", "work with traces (WEFT_TRACE=FILE writes them)");
  command->require_subcommand(1);
  auto* merging = command->add_subcommand(
      "merge", "make one of the traces of all ranks, for ui.perfetto.dev or chrome://tracing");
  const auto a = std::make_shared<TraceArguments>();
  merging->add_option("files", a->files, "a file of each rank: trace.rank0.json ...")->required();
  merging->add_option("-o,--out", a->out, "where to")->required();
  merging->footer("Example: weft trace merge t.rank0.json t.rank1.json -o t.json");
  merging->callback([a, &exit_code] {
    merge(a->files, a->out);
    exit_code = kExitOk;
  });
}

}  // namespace weft
