// `weft validate`: can this fabric be trusted? Reads the flags, runs a validation as a job, and
// writes its reports.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "coll/jobs/report.h"
#include "coll/jobs/session.h"
#include "coll/runtime/calibrate.h"
#include "perf/cli/commands.h"
#include "perf/cli/parse_errors.h"
#include "perf/cli/table.h"
#include "perf/validate/checks/registry.h"
#include "perf/validate/report/history.h"
#include "perf/validate/simulation.h"
#include "perf/validate/snapshot.h"
#include "perf/validate/suggest_policy.h"
#include "perf/validate/validation.h"
#include "topo/base/environment.h"
#include "transport/job/bootstrap.h"
#include "transport/launch/failures.h"
#include "transport/launch/local_job.h"

namespace weft {
namespace {

using fabric::Report;

struct ValidateFlags {
  JobFlags job;
  fabric::PlanOptions plan;
  std::string budget = "60s", soak, policy, json, html, prometheus, baseline, history, suggest,
              drains;
  int random_faults = 0;
  std::vector<std::string> sysfs;
  bool screen_is_silent() const { return json == "-" || html == "-" || prometheus == "-"; }
  bool list = false, samples = false, verbose = false, simulate = false;
};

// Converts "60", "60s", "5m" or "1h" to seconds. Throws Error.
double seconds_from(const std::string& flag, const std::string& text) {
  std::size_t end = 0;
  double value = 0;
  try {
    value = std::stod(text, &end);
  } catch (const std::exception&) {
    end = 0;
  }
  const std::string unit = text.substr(end);
  const double scale = unit.empty() || unit == "s" ? 1 : unit == "m" ? 60 : unit == "h" ? 3600 : 0;
  if (end == 0 || !(value > 0) || !(value < 1e9) || scale == 0)
    throw Error(fmt::format("{} {}: write a time such as 60s, 5m or 1h", flag, text));
  return value * scale;
}

// Returns a launcher that weft does not support, so that each rank would run alone; empty: none.
std::string unknown_launcher() {
  const std::pair<const char*, const char*> sizes[] = {
      {"PMI_SIZE", "MPICH's mpirun"},
      {"MPI_LOCALNRANKS", "MPICH's mpirun"},
      {"SLURM_NTASKS", "srun"},
      {"OMPI_COMM_WORLD_SIZE", "Open MPI's mpirun"},
      {"MV2_COMM_WORLD_SIZE", "MVAPICH's mpirun"},
      {"PALS_RANKID", "PALS"}};
  for (const auto& [variable, launcher] : sizes) {
    const std::string value = environment(variable);
    if (value.empty() || value == "1") continue;
    // A batch script has SLURM_NTASKS as well, but only a task of a step has SLURM_PROCID.
    if (std::string_view(variable) == "SLURM_NTASKS" && environment("SLURM_PROCID").empty())
      continue;
    return fmt::format("{} ({}={})", launcher, variable, value);
  }
  return "";
}

void write_reports(const ValidateFlags& flags, const Report& report) {
  if (!flags.json.empty()) write_report(flags.json, json_text(report, flags.samples));
  if (!flags.html.empty()) write_report(flags.html, to_html(report));
  if (!flags.prometheus.empty()) write_report(flags.prometheus, to_prometheus(report));
  if (!flags.suggest.empty()) fabric::suggest_policy(flags.suggest, report);
}

void say_soak(const std::string& line) {
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

void print(const ValidateFlags& flags, const Report& report) {
  if (flags.screen_is_silent()) return;
  fabric::TextOptions text;
  text.verbose = flags.verbose;
  text.colour = colours();
  fmt::print("{}", to_text(report, text));
  std::fflush(stdout);
}

int print_list(const ValidateFlags& flags) {
  if (flags.json.empty())
    fmt::print("{}", fabric::list_text());
  else
    write_report(flags.json, fabric::list_json());
  return kExitOk;
}

int refuse_unknown_launcher(const std::string& launcher) {
  fmt::print(
      "verdict: UNKNOWN - started by {}, which weft cannot join: every rank would test itself\n"
      "remedy: mpirun of Open MPI, srun --mpi=pmix, torchrun, or weft launch\n",
      launcher);
  return kExitUnknown;
}

// Other ranks wait for a probe while its path times out.
void check_timeout(const JobFlags& job) {
  constexpr int kLeastMs = 8000;
  const bool given = job.timeout != nullptr && job.timeout->count() > 0;
  if (given && job.timeout_ms < kLeastMs)
    throw Error(
        fmt::format("--timeout-ms {}: a probe of a dead path takes up to 6 s; give {} or more",
                    job.timeout_ms, kLeastMs));
}

int print_history(const ValidateFlags& flags) {
  fabric::TextOptions text;
  text.verbose = flags.verbose;
  text.colour = colours();
  fmt::print("{}", to_text(fabric::read_history(flags.history), text));
  return kExitOk;
}

// Validates a simulated fleet with the same plan, localization and checks, in virtual time.
int simulate(const ValidateFlags& flags, const fabric::Policy& policy) {
  fabric::SimulationOptions options;
  options.plan = flags.plan;
  options.policy = policy;
  options.random_faults = flags.random_faults;
  if (!flags.screen_is_silent()) options.soak_line = say_soak;
  if (flags.job.hosts > 0) options.hosts = flags.job.hosts;
  if (flags.job.rails > 0) options.rails = flags.job.rails;
  if (flags.job.rail_gbps > 0) options.rate_gbps = flags.job.rail_gbps;
  for (const std::string* path : {&flags.json, &flags.html, &flags.prometheus}) check_report(*path);
  const fabric::Simulation simulation = fabric::simulate(options);
  print(flags, simulation.report);
  if (flags.json != "-")
    for (const std::string& line : simulation.injected) fmt::print("injected: {}\n", line);
  write_reports(flags, simulation.report);
  return static_cast<int>(simulation.report.verdict);
}

int judge_trees(const ValidateFlags& flags, const fabric::Policy& policy) {
  for (const std::string* path : {&flags.json, &flags.html, &flags.prometheus}) check_report(*path);
  const Report report = fabric::judge_snapshots(flags.sysfs, policy);
  print(flags, report);
  write_reports(flags, report);
  return static_cast<int>(report.verdict);
}

int validate(ValidateFlags& flags) {
  if (flags.list) return print_list(flags);
  if (!flags.history.empty()) return print_history(flags);
  flags.plan.budget_s = seconds_from("--budget", flags.budget);
  if (!flags.soak.empty()) flags.plan.soak_s = seconds_from("--soak", flags.soak);
  check_timeout(flags.job);
  fabric::ValidationOptions options;
  if (!flags.policy.empty()) {
    options.policy = fabric::read_policy(flags.policy);
    for (const std::string& id : options.policy.skipped_checks)
      if (!fabric::find_check(id))
        throw Error(
            fmt::format("--policy {}: skipped_checks has \"{}\", which is not a check: `weft "
                        "validate --list` names all",
                        flags.policy, id));
  }
  if (flags.random_faults > 0 && !flags.simulate)
    throw Error("--random-faults belongs to --simulate: `weft lab netlab fault` breaks real links");
  if (!flags.sysfs.empty()) return judge_trees(flags, options.policy);
  if (flags.simulate) return simulate(flags, options.policy);
  options.plan = flags.plan;
  options.baseline = flags.baseline;
  if (!flags.screen_is_silent()) options.soak_line = say_soak;
  options.transport = flags.job.transport;
  options.declared_gbps = declared_rail_gbps(flags.job.rail_gbps);
  options.sources.excluded_devices = options.policy.excluded_devices;
  if (!launched()) {  // defaults for emulation
    if (const std::string launcher = unknown_launcher(); !launcher.empty())
      return refuse_unknown_launcher(launcher);
    for (const std::string* path : {&flags.json, &flags.html, &flags.prometheus})
      check_report(*path);
    const bool free = flags.job.hosts == 0 && flags.job.ranks == 0;
    if (flags.job.hosts == 0) flags.job.hosts = free || flags.job.ranks >= 4 ? 2 : 1;
    if (flags.job.ranks == 0) flags.job.ranks = 2 * flags.job.hosts;
    if (flags.job.rails == 0) flags.job.rails = 2;
  }
  std::unique_ptr<Progress> progress;
  fabric::Validation validation(options, [&](const std::string& what) {
    if (progress) progress->show("  " + what);
  });
  // A baseline of another fleet is an error, but reports are still written.
  const auto finish = [&] {
    if (progress) progress->clear();
    print(flags, validation.report());
    write_reports(flags, validation.report());
    if (!validation.baseline_error().empty()) throw UsageError(validation.baseline_error());
  };
  return run_job(
      "validate", flags.job,
      [&](World& world) {
        for (const std::string* path : {&flags.json, &flags.html, &flags.prometheus})
          check_report(world, *path);
        if (world.rank() == 0) progress = std::make_unique<Progress>(flags.json != "-");
        const fabric::Verdict verdict = validation.run(world);
        if (world.rank() == 0) finish();
        if (!flags.drains.empty()) write_report(flags.drains, validation.drains(), "--drains");
        return static_cast<int>(verdict);
      },
      [&](Rank me, const Status& failure) {
        validation.fail(failure);
        if (me == speaker(failure.rank()) || job_from_environment().size == 1) finish();
      });
}

}  // namespace

void add_validate(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<ValidateFlags>();
  flags->job.timeout_ms = 15000;
  CLI::App* command = app.add_subcommand("validate",
                                         "can this fabric be trusted? exit code 0 OK, 1 WARN, 2 "
                                         "CRITICAL, 3 UNKNOWN,\n4 the tester itself or "
                                         "its use is at fault");
  add_job_flags(*command, flags->job);
  section(*command, "What is tested");
  command->add_flag("--list", flags->list, "print all checks and what they mean");
  command->add_option("--budget", flags->budget, "time to plan for: 60s, 5m")
      ->capture_default_str();
  command->add_option("--policy", flags->policy,
                      "TOML file with the expected properties of this fleet");
  command->add_flag("--all-pairs", flags->plan.all_pairs, "measure every pair, as the time allows");
  command->add_option("--soak", flags->soak,
                      "repeat the rate rounds for this long (30m), with one line per minute");
  section(*command, "Output");
  command->add_option("--seed", flags->plan.seed, "seed of the random pairs")
      ->capture_default_str();
  add_json_option(*command, flags->json, "weft.validate/3");
  command->add_flag("--samples", flags->samples, "with --json: every flow that was measured, too");
  command->add_option("--html", flags->html, "also write a page to this file; it opens offline");
  command->add_option("--prometheus", flags->prometheus,
                      "also write metrics to this file, for the textfile collector");
  command->add_option(
      "--suggest-policy", flags->suggest,
      "write what all ports agree on as a policy to this file, where the verdict is OK");
  command->add_option("--drains", flags->drains,
                      "write the nodes to drain, with reasons, to this file on every rank");
  command->add_option("--baseline", flags->baseline,
                      "store the rates in this file, or compare with the file that is there");
  section(*command, "Simulated fleet");
  command->add_flag("--simulate", flags->simulate,
                    "test a simulated fleet of --hosts and --rails, in virtual time");
  command
      ->add_option("--random-faults", flags->random_faults,
                   "number of random faults in the simulated fleet (--seed)")
      ->check(CLI::Range(0, 1000));
  command
      ->add_option("--sysfs", flags->sysfs,
                   "judge a recorded copy of /sys instead, without a job; twice: before, after")
      ->type_name("ROOT")
      ->expected(1)
      ->take_all();
  command->add_flag("--verbose", flags->verbose, "print all findings, evidence and rates");
  CLI::App* history =
      command->add_subcommand("history", "print the reports (--json) of a folder side by side");
  history->option_defaults()->group("Options");
  history->add_option("folder", flags->history, "folder of reports")->required();
  history->footer("Example: weft validate history reports");
  command->footer(
      "Without a launcher: 2 ranks on each of 2 hosts with 2 rails, emulated on this machine.\n"
      "Example: weft validate -N 4 --hosts 2 --budget 30s --json report.json");
  command->callback([command, flags, &exit_code] {
    if (flags->simulate)
      refuse_given(*command, {"--ranks", "--transport", "--timeout-ms"},
                   "a simulated fleet has --hosts and --rails");
    if (flags->sysfs.size() > 2) throw Error("--sysfs: one tree, or two of one host");
    if (!flags->sysfs.empty())
      refuse_given(*command, {"--simulate", "--baseline", "--soak", "--all-pairs"},
                   "--sysfs reads a tree and sends nothing");
    if (flags->list)
      refuse_given(*command, {"--html", "--prometheus", "--baseline"}, "--list tests nothing");
    exit_code = validate(*flags);
  });
}

}  // namespace weft
