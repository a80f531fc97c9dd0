// `weft spiral`: trains a small network with fp64, on workers kept together by an all-reduce or by
// a parameter server. This file computes nothing.
#include <fmt/format.h>

#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "coll/jobs/session.h"
#include "topo/base/clock.h"
#include "topo/base/exit_code.h"
#include "train/cli/commands.h"
#include "train/cli/options.h"
#include "train/cli/train_checks.h"
#include "train/cli/train_flags.h"
#include "train/spiral/spiral.h"
#include "transport/job/bootstrap.h"
#include "transport/launch/local_job.h"

namespace weft {
namespace {

struct SpiralFlags : CheckpointFlags {
  JobFlags job;
  train::SpiralOptions options;
  std::string log, trace;
  bool deterministic = false;
  bool threads = false;  // the ranks are threads of one process
};

nlohmann::json to_json(const train::SpiralPoint& p) {
  return {{"iteration", p.iteration}, {"loss", p.loss}, {"accuracy", p.accuracy}};
}

nlohmann::json to_json(const train::SpiralResult& r, const train::SpiralOptions& o) {
  nlohmann::json curve = nlohmann::json::array(), workers = nlohmann::json::array();
  for (const train::SpiralPoint& p : r.curve) curve.push_back(to_json(p));
  for (const auto& w : r.server.workers)
    workers.push_back({{"came_last", w.last}, {"waited_s", w.waited_s}, {"worked_s", w.worked_s}});
  return {{"model", "spiral"},
          {"sync", o.sync},
          {"algorithm", o.algorithm},
          {"workers", r.workers},
          {"iterations", r.curve.back().iteration},
          {"seconds", r.seconds},
          {"curve", curve},
          {"server",
           {{"updates", r.server.updates},
            {"staleness", r.server.staleness},
            {"most_ahead", r.server.most_ahead},
            {"workers", workers}}}};
}

void add_spiral_flags(CLI::App& command, SpiralFlags& flags) {
  auto& o = flags.options;
  command.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  add_job_flags(command, flags.job);
  const OptionAdder add(command);
  section(command, "Training");
  add("--steps", o.iterations, "steps to train", CLI::PositiveNumber);
  add("--lr", o.rate, "learning rate", CLI::PositiveNumber);
  add("--seed", o.seed, "seed of the points and of the first weights");
  section(command, "Workers");
  add("--sync", o.sync,
      "allreduce; ps: the first rank is a parameter server; ps-async: without waiting",
      CLI::IsMember({"allreduce", "ps", "ps-async"}));
  add("--algo", o.algorithm, "algorithm of the all-reduce: auto or a name");
  add("--staleness", o.staleness, "iterations a worker may be ahead (ps-async)",
      CLI::NonNegativeNumber);
  add("--straggler-us", o.straggler_us, "the last worker is slower by so much, in us",
      CLI::NonNegativeNumber);
  command.add_flag("--threads", flags.threads, "server and workers are threads of one process");
  command.add_flag("--deterministic", flags.deterministic, "the same bits for every algorithm");
  section(command, "Output");
  add.unset("--report-every", o.report_every,
            "iterations between lines; 0: the end only (default: a tenth)", CLI::NonNegativeNumber);
  add("--log", flags.log,
      "file to which JSON lines are added, one for each report and one for the end");
  add("--trace", flags.trace, "trace of every rank's communication, for Perfetto");
  add_checkpoint_flags(command, flags, "steps between checkpoints (default: a tenth of the run)");
  command.footer("Example: weft spiral -N 3 --sync ps --steps 1000");
}

void check_spiral(const CLI::App& command, const SpiralFlags& flags) {
  check_algorithm_of_sums(flags.options.algorithm);
  check_checkpoint_flags(command, flags);
  const auto& o = flags.options;
  if (o.sync != "allreduce" && o.algorithm != "auto")
    throw UsageError(
        fmt::format("--algo {} with --sync {}: a parameter server has no all-reduce; leave one out",
                    o.algorithm, o.sync));
  const int workers = launched() ? job_from_environment().size : std::max(flags.job.ranks, 1);
  if (o.algorithm != "auto" && workers == 1 && !restarted())
    throw UsageError(fmt::format(
        "--algo {} with one rank: it has nobody to add up with; leave it out, or say -N 2 or more",
        o.algorithm));
  if (flags.threads)
    for (const char* other : {"--hosts", "--rails", "--restart", "--elastic", "--kill", "--trace"})
      if (command.get_option(other)->count() > 0)
        throw UsageError(fmt::format(
            "{} with --threads: it is for ranks that are processes; leave one out", other));
  if (o.sync != "ps-async" && command.get_option("--staleness")->count() > 0)
    throw UsageError(fmt::format("--staleness {} with --sync {}: only --sync ps-async has any",
                                 o.staleness, o.sync));
}

int run_workers(const SpiralFlags& flags) {
  return run_job("spiral", flags.job, [&](World& world) {
    train::SpiralOptions o = flags.options;
    const Rank me = world.rank();
    check_restart(flags.restart, world, o.iterations);
    o.before = [&](int iteration) { die_on_purpose(flags.restart, me, iteration); };
    std::ofstream file;
    if (me == 0 && !flags.log.empty()) file.open(flags.log, std::ios::app);
    const auto write = [&](const nlohmann::json& line) {
      if (!flags.log.empty() && !(file << line.dump() << std::endl))
        throw Error(fmt::format("--log {}: cannot be written", flags.log));
    };
    const double begin = now_s();
    o.on_point = [&](const train::SpiralPoint& p) {
      auto line = to_json(p);
      line["seconds"] = now_s() - begin;
      write(line);
      if (p.iteration >= o.iterations) return;
      fmt::print("{}", train::to_text(p));
      std::fflush(stdout);
    };
    if (me == 0 && o.report_every > 0) fmt::print("# iteration      loss  accuracy\n");
    const train::SpiralResult result = train::run_spiral(world.world(), o);
    if (me != 0) return kExitOk;
    for (const std::string& why : result.left_out)
      fmt::print(stderr, "weft spiral: warning: left out: {}\n", why);
    for (const std::string& what : result.differs)
      fmt::print(stderr, "weft spiral: warning: {}\n", what);
    if (result.first > 0) fmt::print("# went on after step {} of {}\n", result.first, result.path);
    fmt::print("{}", train::to_text(result, o));
    write(to_json(result, o));
    return kExitOk;
  });
}

bool fewer_workers(SpiralFlags& flags) {
  const int least = flags.options.sync == "allreduce" ? 1 : 2;
  if (flags.job.ranks <= least) return false;
  set_ranks(flags.job, flags.job.ranks - 1);
  return true;
}

int train_spiral(SpiralFlags& flags, const CLI::App& command) {
  if (const int code = one_rank_tells([&] { check_spiral(command, flags); }); code != kExitOk)
    return code;
  check_train_folders(flags.save, flags.trace);
  if (flags.deterministic) setenv("WEFT_DETERMINISTIC", "1", 1);
  if (!flags.trace.empty()) setenv("WEFT_TRACE", flags.trace.c_str(), 1);
  auto& o = flags.options;
  const auto given = [&](const char* name) { return command.get_option(name)->count() > 0; };
  const int tenth = std::max(1, o.iterations / 10);
  if (!given("--report-every")) o.report_every = tenth;
  flags.job.threads = flags.threads;
  o.save_every = given("--save-every") ? flags.save_every : tenth;
  o.save = flags.save;
  o.keep = flags.keep;
  o.resume = flags.resume || restarted();
  if (!launched() && flags.job.ranks == 0) flags.job.ranks = o.sync == "allreduce" ? 1 : 3;
  if (flags.restart.elastic && restarted() && launched()) flags.job.ranks = flags.job.hosts = 0;
  return run_again(
      flags.restart, flags.job, [&] { return run_workers(flags); },
      [&] { return fewer_workers(flags); }, [] {});
}

}  // namespace

void add_spiral(CLI::App& app, int& exit_code) {
  const auto flags = std::make_shared<SpiralFlags>();
  CLI::App* command = app.add_subcommand(
      "spiral", "train a small network in fp64, with an all-reduce or a parameter server");
  add_spiral_flags(*command, *flags);
  command->callback([flags, command, &exit_code] { exit_code = train_spiral(*flags, *command); });
}

}  // namespace weft
