// `weft_worlds` runs worlds over many seeds and prints how right `weft validate` is: the table of
// docs/worlds.md. Some seeds are reserved for unbiased numbers.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>
#include <vector>

#include "perf/validate/probes/statistics.h"
#include "perf/validate/report/report.h"
#include "perf/validate/worlds/world_run.h"
#include "topo/base/status.h"

namespace {

using weft::fabric::WorldRun;

constexpr int kFirstReserved = 90000, kLastReserved = 90999;

std::vector<std::string> all_worlds() {
  std::vector<std::string> worlds;
  for (const std::string base : {"noise", "planes", "capped", "bonded", "clos", "spray", "bursts",
                                 "pauses", "spells", "cuts", "numa"}) {
    worlds.push_back(base);
    for (const char* fault : {"+slow-port", "+lossy-port", "+slow-path", "+slow-rail"})
      worlds.push_back(base + fault);
    const bool uplinks = base == "clos" || base == "spray";
    for (const char* link : {"uplink", "member"})
      if (uplinks ? link[0] == 'u' : base == "bonded" && link[0] == 'm')
        for (const char* fault : {"+slow-", "+lossy-"}) worlds.push_back(base + fault + link);
  }
  return worlds;
}

// The accuracy of findings, by their stated confidence.
struct Reliability {
  struct Level {
    weft::fabric::Certainty certainty;
    int claims = 0, right = 0;
  };
  std::vector<Level> levels{{weft::fabric::Certainty::kPossible},
                            {weft::fabric::Certainty::kLikely},
                            {weft::fabric::Certainty::kCertain}};

  void add(const weft::fabric::WorldScore::Claim& claim) {
    Level& level = levels[static_cast<std::size_t>(claim.certainty)];
    ++level.claims;
    level.right += claim.right;
  }
  void print() const {
    fmt::print("\n| certainty | findings | right, % | 95 % interval |\n|---|---|---|---|\n");
    for (const Level& level : levels) {
      const weft::fabric::Interval range = weft::fabric::wilson(level.right, level.claims, 0.95);
      fmt::print("| {} | {} | {:.1f} | {:.1f} to {:.1f} |\n", word_of(level.certainty),
                 level.claims, level.claims == 0 ? 0 : 100.0 * level.right / level.claims,
                 100 * range.low, 100 * range.high);
    }
  }
};

struct Row {
  int runs = 0, false_alarms = 0, blaming = 0, unknown = 0;
  std::vector<int> found, placed;  // by fault
};

// "98 + 100": percent of the runs.
std::string shares(const std::vector<int>& counts, int runs) {
  std::string text;
  for (const int count : counts)
    text += fmt::format("{}{:.0f}", text.empty() ? "" : " + ", 100.0 * count / runs);
  return text.empty() ? "-" : text;
}

Row play(const std::string& world, weft::fabric::SimulationOptions options, int first, int seeds,
         Reliability& reliability) {
  Row row;
  for (int seed = first; seed < first + seeds; ++seed) {
    options.plan.seed = static_cast<std::uint64_t>(seed);
    const WorldRun run = weft::fabric::run_world(world, options);
    const auto& faults = run.score.faults;
    row.found.resize(faults.size());
    row.placed.resize(faults.size());
    for (std::size_t f = 0; f < faults.size(); ++f) {
      row.found[f] += faults[f].found;
      row.placed[f] += faults[f].placed;
    }
    for (const auto& claim : run.score.claims) reliability.add(claim);
    ++row.runs;
    row.false_alarms += run.score.false_alarm;
    row.blaming += run.score.innocents > 0;
    row.unknown += run.score.unknown;
  }
  return row;
}

void print_row(const std::string& world, const Row& row) {
  const bool clean = row.found.empty();
  fmt::print("| {} | {} | {} | {} | {} | {:.0f} | {:.0f} |\n", world, row.runs,
             shares(row.found, row.runs), shares(row.placed, row.runs),
             clean ? shares({row.false_alarms}, row.runs) : "-", 100.0 * row.blaming / row.runs,
             100.0 * row.unknown / row.runs);
  std::fflush(stdout);
}

// The report of one run, and its faults.
void print_report(const std::string& world, const weft::fabric::SimulationOptions& options) {
  const WorldRun run = weft::fabric::run_world(world, options);
  fmt::print("{}", to_text(run.report, {}));
  for (const std::string& line : run.injected) fmt::print("injected: {}\n", line);
}

void print_parts() {
  for (const weft::fabric::WorldPart& part : weft::fabric::world_parts())
    fmt::print("{:13} {}\n", part.name, part.text);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("How right `weft validate` is in simulated worlds that its detector did not make");
  weft::fabric::SimulationOptions options;
  options.hosts = 16;
  int first = 1, seeds = 200;
  bool reserved = false, list = false, report = false;
  std::vector<std::string> worlds;
  app.add_option("--world", worlds, "only these: parts joined by '+', such as clos+slow-port");
  app.add_flag("--list", list, "print the parts of worlds");
  app.add_flag("--report", report, "print the report of the first seed instead of the table")
      ->needs("--world");
  app.add_option("--first", first, "the first seed")->check(CLI::Range(0, 1000000));
  app.add_option("--seeds", seeds, "how many seeds a world")->check(CLI::Range(1, 100000));
  app.add_option("--hosts", options.hosts)->check(CLI::Range(2, 4096));
  app.add_option("--rails", options.rails)->check(CLI::Range(1, 64));
  app.add_flag("--reserved", reserved, "play the seeds that nobody works towards");
  CLI11_PARSE(app, argc, argv);
  if (list) {
    print_parts();
    return 0;
  }
  if (!reserved && first <= kLastReserved && first + seeds > kFirstReserved) {
    fmt::print(stderr, "seeds {} to {} are reserved; give --reserved where the numbers count\n",
               kFirstReserved, kLastReserved);
    return 4;
  }
  try {
    if (report) {
      options.plan.seed = static_cast<std::uint64_t>(first);
      for (const std::string& world : worlds) print_report(world, options);
      return 0;
    }
    fmt::print("| world | runs | found | named | false alarms | blaming innocents | UNKNOWN |\n");
    fmt::print("|---|---|---|---|---|---|---|\n");
    Reliability reliability;
    for (const std::string& world : worlds.empty() ? all_worlds() : worlds)
      print_row(world, play(world, options, first, seeds, reliability));
    reliability.print();
  } catch (const weft::Error& e) {
    fmt::print(stderr, "{}\n", e.what());
    return 4;
  }
  return 0;
}
