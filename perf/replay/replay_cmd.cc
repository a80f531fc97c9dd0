// `weft replay`: plays the traffic of a trace, on the ranks of a job or in virtual time.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "coll/jobs/machine_options.h"
#include "coll/jobs/report.h"
#include "coll/jobs/session.h"
#include "coll/runtime/internals.h"
#include "perf/cli/bytes.h"
#include "perf/cli/commands.h"
#include "perf/cli/parse_errors.h"
#include "perf/predict/sim_call.h"
#include "perf/replay/costs.h"
#include "perf/replay/fold.h"
#include "perf/replay/formats/read.h"
#include "perf/replay/heartbeat.h"
#include "perf/replay/play.h"
#include "perf/replay/report.h"
#include "perf/replay/virtual_play.h"
#include "perf/replay/write_goal.h"
#include "topo/base/exit_code.h"
#include "transport/launch/local_job.h"

namespace weft {
namespace {

using namespace replay;  // NOLINT: the command belongs to this folder

struct ReplayFlags {
  JobFlags job;
  SimFlags sim;
  ReadOptions read;
  PlayOptions play;
  std::vector<std::string> files;
  std::string json, goal, most_bytes = "256M";
  bool simulates = false, compare = false;
};

// Plays the trace in virtual time, with healthy rails and with a slow rail.
Replay simulate_trace(const JobTrace& trace, const ReplayFabric& fabric, double compute_scale,
                      int& by_model) {
  Replay result;
  CallCosts costs(trace, fabric);
  const auto cost = [](CallCosts& of) {
    return [&of](const TraceNode& node, const std::vector<Rank>& ranks) { return of(node, ranks); };
  };
  result.played = play_virtually(trace, cost(costs), compute_scale);
  for (const Row& row : result.played.rows) result.limiting.push_back(costs.limiting(row.key));
  by_model = costs.by_model();
  if (fabric.hosts > 1) {
    CallCosts slow(trace, with_half_a_rail(fabric));
    // A different order of waits may end slightly sooner, but a slower rail cannot speed up a job.
    result.half_rail_us =
        std::max(result.played.step_us, play_virtually(trace, cost(slow), compute_scale).step_us);
  }
  return result;
}

std::string where(const ReplayFabric& fabric) {
  if (fabric.hosts == 1) return "1 host";
  return fmt::format("{} hosts x {} {}", fabric.hosts, fabric.rails,
                     fabric.rails == 1 ? "rail" : "rails");
}

void write(const ReplayFlags& flags, const Report& report) {
  if (!flags.json.empty()) write_report(flags.json, to_json(report).dump(2) + "\n");
  if (flags.json != "-") fmt::print("{}", text(report));
}

int simulate_job(const ReplayFlags& flags) {
  Heartbeat heartbeat(true);
  heartbeat.phase("reads the trace");
  const JobTrace trace = read_job(flags.files, flags.read);
  if (trace.empty()) {
    write(flags, {&trace, "", "", {}, {}, 0});
    return kExitOk;
  }
  heartbeat.phase("simulates the trace");
  SimFlags sim = flags.sim;
  constexpr int kRanksOfHost = 8;
  sim.hosts = flags.job.hosts > 0 ? flags.job.hosts
                                  : std::max(1, (trace.ranks + kRanksOfHost - 1) / kRanksOfHost);
  sim.rails = flags.job.rails;
  sim.machine.rail_gbps = flags.job.rail_gbps;
  if (sim.hosts > trace.ranks)
    throw Error(fmt::format("--hosts {}: the trace has {} ranks, and every host needs one",
                            sim.hosts, trace.ranks));
  const ReplayFabric fabric = fabric_of_flags(sim, trace.ranks);
  if (!flags.goal.empty()) write_report(flags.goal, goal_of(trace, fabric), "--goal");
  Report report{&trace, where(fabric), in_words(fabric.machine, fabric.hosts > 1), {}, {}, 0};
  report.simulated = simulate_trace(trace, fabric, flags.play.compute_scale, report.by_model);
  write(flags, report);
  return kExitOk;
}

int play_job(const ReplayFlags& flags, World& world) {
  if (!flags.json.empty()) check_report(world, flags.json);
  Heartbeat heartbeat(world.rank() == 0);
  heartbeat.phase("reads the trace");
  JobTrace trace = fold(read_job(flags.files, flags.read), world.size());
  if (const int idle = world.size() - trace.ranks; idle > 0)
    trace.notes.push_back(fmt::format("{} {} of the job {} nothing: the trace has {}", idle,
                                      idle == 1 ? "rank" : "ranks", idle == 1 ? "plays" : "play",
                                      trace.ranks));
  cut_messages(trace, parse_bytes("--most-bytes", flags.most_bytes));
  check_same_trace(world, trace);
  if (trace.empty()) {
    if (world.rank() == 0) write(flags, {&trace, "", "", {}, {}, 0});
    return kExitOk;
  }
  const ReplayFabric fabric =
      fabric_of_job(world.topology(), Internals::machine(world), trace.ranks);
  Report report{&trace, where(fabric), in_words(fabric.machine, fabric.hosts > 1), {}, {}, 0};
  PlayOptions options = flags.play;
  options.heartbeat = &heartbeat;
  Played played = play(world, trace, options);
  if (world.rank() != 0) return kExitOk;
  report.measured = Replay{std::move(played), 0, {}};
  heartbeat.phase("simulates the trace");
  // The slow rail is always simulated; --compare shows the whole simulation beside the measurement.
  Replay simulated = simulate_trace(trace, fabric, flags.play.compute_scale, report.by_model);
  if (flags.compare) {
    report.simulated = std::move(simulated);
  } else {
    report.by_model = 0;
    report.measured->half_rail_us =
        simulated.half_rail_us > 0
            ? report.measured->played.step_us * simulated.half_rail_us / simulated.played.step_us
            : 0;
  }
  write(flags, report);
  return kExitOk;
}

int run_replay(const ReplayFlags& flags) {
  if (flags.simulates && flags.compare)
    throw Error("--sim --compare: --compare plays for real and simulates beside it; leave out one");
  if (!flags.json.empty()) check_report(flags.json);
  if (!flags.goal.empty()) check_report(flags.goal, "--goal");
  if (flags.simulates) {
    if (flags.job.ranks > 0)
      throw Error(
          fmt::format("-N {} --sim: virtual time has the ranks of the trace; --trace-ranks "
                      "says how many a lone file stands for",
                      flags.job.ranks));
    return simulate_job(flags);
  }
  // Report a bad or empty file once, before ranks are started.
  if (!launched()) {
    Heartbeat heartbeat(true);
    heartbeat.phase("reads the trace");
    const JobTrace trace = read_job(flags.files, flags.read);
    if (trace.empty()) {
      write(flags, {&trace, "", "", {}, {}, 0});
      return kExitOk;
    }
  }
  return run_job("replay", flags.job, [&flags](World& world) { return play_job(flags, world); });
}

}  // namespace

void add_replay(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<ReplayFlags>();
  CLI::App* command = app.add_subcommand(
      "replay",
      "play the traffic of a job's trace (Chakra, PyTorch, SimAI, GOAL), here or in virtual time");
  command->add_option("FILE", flags->files, "a trace of each rank, or one for all")->required();
  add_job_flags(*command, flags->job);
  section(*command, "What is played");
  command->add_flag("--sim", flags->simulates,
                    "in virtual time, on --hosts with --rails of --rail-gbps");
  command->add_flag("--compare", flags->compare,
                    "set the simulated times beside the measured ones");
  command
      ->add_option("--trace-ranks", flags->read.ranks,
                   "ranks of the job, where one file stands for all and does not say")
      ->check(CLI::Range(1, 1 << 20));
  command->add_option("--groups", flags->read.groups,
                      "a JSON file of groups that the trace names: {\"name\": [ranks], ...}");
  const auto number = [command](const char* flag, auto& value, const char* about) {
    return command->add_option(flag, value, about)->capture_default_str();
  };
  number("--scale-compute", flags->play.compute_scale, "factor for the duration of computation")
      ->check(CLI::NonNegativeNumber);
  command->add_flag("--busy", flags->play.busy,
                    "computation keeps the core busy (default: the core moves calls meanwhile)");
  number("-n,--steps", flags->play.steps, "steps that are timed, after one that is not")
      ->check(CLI::Range(1, 100000));
  number("--most-bytes", flags->most_bytes, "larger messages are played in this size");
  add_machine_options(*command, flags->sim.machine, MachineParts::kButRailRate);
  section(*command, "Output");
  add_json_option(*command, flags->json, "weft.replay/1");
  command->add_option("--goal", flags->goal,
                      "with --sim: write the messages as GOAL, which LogGOPSim and ATLAHS read");
  command->footer(
      "Example: weft replay -N 4 --hosts 2 --compare job.0.et job.1.et job.2.et job.3.et");
  command->callback([command, flags, &exit_code] {
    if (flags->simulates)
      refuse_given(*command, {"--transport", "--timeout-ms", "--steps", "--busy", "--most-bytes"},
                   "--sim plays nothing for real");
    else
      refuse_given(*command,
                   {"--machine", "--rail-us", "--host-gbps", "--host-us", "--spine-gbps",
                    "--spine-us", "--wire", "--cpu-us", "--reduce-gbs", "--copy-gbs", "--goal"},
                   "it is about --sim");
    exit_code = run_replay(*flags);
  });
}

}  // namespace weft
