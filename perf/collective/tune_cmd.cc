// `weft tune`: times every algorithm on this job, stores the times in the profile, and shows the
// algorithms that `auto` picks with it.
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <tuple>

#include "coll/jobs/report.h"
#include "coll/jobs/session.h"
#include "coll/runtime/internals.h"
#include "coll/select/choice.h"
#include "coll/select/profile.h"
#include "perf/cli/bytes.h"
#include "perf/cli/commands.h"
#include "perf/cli/names.h"
#include "perf/cli/table.h"
#include "perf/collective/exercise.h"
#include "perf/stats/stats.h"
#include "transport/job/bootstrap.h"
#include "transport/launch/local_job.h"

namespace weft {
namespace {

struct TuneFlags {
  JobFlags job;
  std::vector<std::string> collectives{"all_reduce"};
  std::string begin = "8", end = "64M", json, buffers = "malloc";
  std::uint64_t factor = 4;
  int rounds = 5, budget_ms = 30;
};

// Algorithms slower than the fastest by more than this factor are not timed again.
constexpr double kHopeless = 4;
// Algorithms up to this factor slower in the first rounds may be fastest, so they are timed again.
constexpr double kContends = 1.10;

struct Comparison {
  std::uint64_t bytes = 0;
  std::map<std::string, double> fixed_us;  // median of the first rounds, by algorithm
  std::string picked;                      // by `auto`, with the profile
  // Medians of the later rounds, in which `auto` and the fastest algorithms alternate: only times
  // of the same minutes are comparable.
  double auto_us = 0, best_us = 0;
  // Times of the later rounds, by algorithm, without `auto`.
  std::map<std::string, double> in_turns_us;
  std::string best;  // the fastest in in_turns_us
  double ratio() const { return auto_us / best_us; }
};

class Tune {
 public:
  Tune(World& world, const TuneFlags& flags)
      : world_(world), comm_(world.world()), flags_(flags), progress_(world.rank() == 0) {}
  int run();

 private:
  Comparison measure(const Case& what);
  // Returns the microseconds of one round. Sets `runs` from the budget if it is 0.
  double round_us(Exercise& exercise, Collective c, std::string_view algorithm, int& runs);
  void show(Collective c, const std::vector<Comparison>& rows) const;

  World& world_;
  Communicator comm_;
  const TuneFlags& flags_;
  Progress progress_;
  std::unique_ptr<Memory> memory_;
  nlohmann::ordered_json json_ = nlohmann::ordered_json::array();
};

double Tune::round_us(Exercise& exercise, Collective c, std::string_view algorithm, int& runs) {
  comm_.set_algorithm(c, algorithm);
  const double budget_us = 1e3 * flags_.budget_ms;
  if (runs == 0) {
    const double once_us = slowest_rank(time_runs(job_of(world_), comm_, exercise, 2)).back();
    runs = static_cast<int>(std::clamp(budget_us / once_us, 1.0, 200.0));
  }
  return median(slowest_rank(time_runs(job_of(world_), comm_, exercise, runs)));
}

Comparison Tune::measure(const Case& what) {
  const Collective c = what.collective;
  Comparison row;
  row.bytes = what.bytes;
  Exercise exercise(comm_, what, *memory_);
  exercise.prepare();
  exercise.prepare_to_time();

  struct Entry {
    std::string name;
    int runs = 0;
    std::vector<double> us;
  };
  std::vector<Entry> entries;
  for (const std::string& algorithm : comm_.algorithms(c)) entries.push_back({algorithm, 0, {}});
  for (int round = 0; round < flags_.rounds; ++round) {
    double best = 0;
    for (Entry& e : entries) {
      e.us.push_back(round_us(exercise, c, e.name, e.runs));
      best = best > 0 ? std::min(best, median(e.us)) : median(e.us);
    }
    std::erase_if(entries, [&](const Entry& e) {
      if (median(e.us) <= kHopeless * best) return false;
      row.fixed_us[e.name] = median(e.us);
      return true;
    });
  }
  for (const Entry& e : entries) row.fixed_us[e.name] = median(e.us);
  for (const auto& [name, us] : row.fixed_us) Internals::learn(comm_, c, what.bytes, name, us);

  const auto by_time = [](const auto& e) { return e.second; };
  const double fastest = std::ranges::min_element(row.fixed_us, {}, by_time)->second;
  entries.clear();
  for (const auto& [name, us] : row.fixed_us)
    if (us <= kContends * fastest) entries.push_back({name, 0, {}});
  entries.push_back({"auto", 0, {}});
  for (int round = 0; round < flags_.rounds; ++round)
    for (Entry& e : entries) e.us.push_back(round_us(exercise, c, e.name, e.runs));
  row.picked = comm_.last_algorithm();
  row.auto_us = median(entries.back().us);
  entries.pop_back();
  for (const Entry& e : entries) row.in_turns_us[e.name] = median(e.us);
  std::tie(row.best, row.best_us) = *std::ranges::min_element(row.in_turns_us, {}, by_time);
  return row;
}

void Tune::show(Collective c, const std::vector<Comparison>& rows) const {
  std::vector<std::vector<std::string>> lines = {
      {"  bytes", "auto picks", "us", "best fixed", "us", "auto / best"}};
  for (const Comparison& r : rows)
    lines.push_back({"  " + format_bytes(r.bytes), r.picked, format_us(r.auto_us), r.best,
                     format_us(r.best_us), fmt::format("{:.2f}", r.ratio())});
  fmt::print("{}, {} ranks on {} hosts, {} rails\n{}\n", name(c), world_.size(),
             world_.topology().nhosts(), world_.topology().nrails(),
             in_words(Internals::machine(world_), world_.topology().nhosts() > 1));
  std::istringstream table(align(lines));
  std::string line;
  std::getline(table, line);
  fmt::print("{}\n", line);
  for (const Comparison& r : rows) {
    std::getline(table, line);
    fmt::print("{}\n", line);
    if (r.fixed_us.size() < 2) continue;
    const std::string indent(9, ' ');
    for (const auto& [title, times] : {std::pair{"in the same rounds, us:", &r.in_turns_us},
                                       {"in earlier rounds, us:", &r.fixed_us}}) {
      std::string text = title;
      for (const auto& [name, us] : *times) text += fmt::format(" {} {},", name, format_us(us));
      text.pop_back();
      fmt::print("{}{}\n", indent, wrapped(text, kColumns - 9, indent));
    }
  }
  const auto slow =
      std::ranges::count_if(rows, [](const Comparison& r) { return r.ratio() > 1.10; });
  // If a longer message takes less time, the shorter one has a bad algorithm.
  int cliffs = 0;
  for (std::size_t i = 1; i < rows.size(); ++i)
    cliffs += rows[i].auto_us < 0.85 * rows[i - 1].auto_us;
  fmt::print("  auto is within 10 % of the best fixed algorithm at {} of {} sizes; {} cliffs\n\n",
             rows.size() - static_cast<std::size_t>(slow), rows.size(), cliffs);
}

int Tune::run() {
  const int n = world_.size();
  if (n < 2) throw UsageError("tune with 1 rank: there is nothing to choose; use -N 2 or more");
  const auto sizes =
      size_ladder(parse_bytes("-b", flags_.begin), parse_bytes("-e", flags_.end), flags_.factor);
  std::uint64_t largest = 0;
  for (const std::string& text : flags_.collectives)
    largest = std::max(largest, with_bytes({collective_named(text)}, sizes.back(), n).bytes);
  memory_ = std::make_unique<Memory>(largest, false, flags_.buffers == "weft");
  for (const std::string& text : flags_.collectives) {
    const Collective c = collective_named(text);
    if (comm_.algorithms(c).empty())
      throw UsageError(
          fmt::format("{}: on these hosts and rails every algorithm leaves its rail, so that "
                      "none can be asked for by name; WEFT_CROSS_RAIL=allow times them",
                      text));
    std::vector<Comparison> rows;
    for (const std::uint64_t size : sizes) {
      const Case what = with_bytes({c}, size, n);
      if (!rows.empty() && what.bytes == rows.back().bytes) continue;
      progress_.show(fmt::format("{} {}", text, format_bytes(what.bytes)));
      rows.push_back(measure(what));
    }
    progress_.clear();
    comm_.set_algorithm(c, "auto");
    if (world_.rank() == 0 && flags_.json != "-") show(c, rows);
    for (const Comparison& r : rows)
      json_.push_back({{"collective", text},
                       {"bytes", r.bytes},
                       {"picked", r.picked},
                       {"auto_us", r.auto_us},
                       {"best", r.best},
                       {"best_us", r.best_us},
                       {"ratio", r.ratio()},
                       {"in_turns_us", r.in_turns_us},
                       {"fixed_us", r.fixed_us}});
  }
  if (world_.rank() != 0 || flags_.json.empty()) return kExitOk;
  const nlohmann::ordered_json all = {{"schema", "weft.tune/1"},
                                      {"ranks", n},
                                      {"hosts", world_.topology().nhosts()},
                                      {"rails", world_.topology().nrails()},
                                      {"transport", flags_.job.transport},
                                      {"rows", json_}};
  write_report(flags_.json, all.dump(1) + "\n");
  return kExitOk;
}

// Returns the folder for the profile. Throws Error if the times could not be stored.
std::string folder_of_profiles() {
  const std::string file = profile_path("");
  if (file.empty())
    throw Error("no folder to store the times: set HOME, XDG_CACHE_HOME or WEFT_PROFILE=FILE");
  std::string folder = std::filesystem::path(file).parent_path();
  if (folder.empty()) folder = ".";
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error || access(folder.c_str(), W_OK) != 0)
    throw Error(fmt::format("the times cannot be stored in {}: {}; set WEFT_PROFILE=FILE", folder,
                            error ? error.message() : std::strerror(errno)));
  return folder;
}

// Identifies the state of each profile; weft replaces profiles by new files.
using Profiles = std::map<std::string, std::tuple<ino_t, time_t, long>>;
Profiles profiles_in(const std::string& folder) {
  Profiles all;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    struct stat status {};
    if (stat(entry.path().c_str(), &status) == 0)
      all[entry.path()] = {status.st_ino, status.st_mtim.tv_sec, status.st_mtim.tv_nsec};
  }
  const char* named = std::getenv("WEFT_PROFILE");
  if (named && *named)
    std::erase_if(all, [name = std::filesystem::path(named).filename()](const auto& file) {
      return std::filesystem::path(file.first).filename() != name;
    });
  return all;
}

int tune(const TuneFlags& flags) {
  for (const std::string& text : flags.collectives) {
    const Collective c = collective_named(text);  // before any rank is started
    if (c == Collective::kBarrier || c == Collective::kSendRecv)
      throw Error(fmt::format("tune {}: it has no sizes to choose by", text));
  }
  const char* profile = std::getenv("WEFT_PROFILE");
  if (profile && std::string_view(profile) == "off")
    throw Error("WEFT_PROFILE=off stores no profile: unset it, or name a file");
  std::string folder;
  if (!launched() || job_from_environment().rank == 0) {  // the rank that writes
    check_named_profile();
    check_report(flags.json);
    folder = folder_of_profiles();
  }
  const Profiles before = profiles_in(folder);
  const int code =
      run_job("tune", flags.job, [&](World& world) { return Tune(world, flags).run(); });
  if (!launched() || folder.empty() || code != kExitOk) return code;
  // Rank 0's World has saved the times while it ran.
  if (profiles_in(folder) == before)
    throw Error(fmt::format("the times could not be stored in {}: is its disk full?", folder));
  const char* file = std::getenv("WEFT_PROFILE");
  if (flags.json != "-") fmt::print("the times are kept in {}\n", file && *file ? file : folder);
  return code;
}

}  // namespace

void add_tune(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<TuneFlags>();
  CLI::App* command =
      app.add_subcommand("tune", "time every algorithm on this job and keep the times for `auto`");
  command->add_option("collectives", flags->collectives, collective_names())->capture_default_str();
  add_job_flags(*command, flags->job);
  section(*command, "Sizes and data");
  command->add_option("-b,--begin", flags->begin, "first size: bytes, 16K, 64M, 1G")
      ->capture_default_str();
  command->add_option("-e,--end", flags->end, "last size")->capture_default_str();
  command->add_option("-f,--factor", flags->factor, "from size to size, at most 16")
      ->check(CLI::Range(2, 16))
      ->capture_default_str();
  command->add_option("--rounds", flags->rounds, "rounds, in turns; medians count")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command->add_option("--budget-ms", flags->budget_ms, "milliseconds of one algorithm in one round")
      ->check(CLI::Range(1, 60000))
      ->capture_default_str();
  command->add_option("--buffers", flags->buffers, "malloc or weft (mapped by all local ranks)")
      ->check(CLI::IsMember({"malloc", "weft"}))
      ->capture_default_str();
  section(*command, "Output");
  add_json_option(*command, flags->json, "weft.tune/1");
  command->footer("Example: weft tune all_reduce -N 4 -b 64K -e 1M");
  command->callback([flags, &exit_code] { exit_code = tune(*flags); });
}

}  // namespace weft
