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

struct SpiralFlags {
  JobFlags job;
  train::SpiralOptions options;
  std::string log, trace;
  bool deterministic = false;
  int threads = 0;  // workers that are threads of one process; 0: workers are processes
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
          {"operations", r.operations},
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
  add("--straggler-us", o.straggler_us, "time that the last worker sleeps in each iteration, in us",
      CLI::NonNegativeNumber);
  add.unset(
      "--threads", flags.threads,
      "number of workers, as threads of one process; one thread trains first, to compare times",
      CLI::Range(1, 64));
  command.add_flag("--deterministic", flags.deterministic, "the same bits for every algorithm");
  section(command, "Output");
  add.unset("--report-every", o.report_every,
            "iterations between lines; 0: the end only (default: a tenth)", CLI::NonNegativeNumber);
  add("--log", flags.log,
      "file to which JSON lines are added, one for each report and one for the end");
  add("--trace", flags.trace, "trace of every rank's communication, for Perfetto");
  command.footer("Example: weft spiral -N 3 --sync ps --steps 1000");
}

void check_spiral(const CLI::App& command, const SpiralFlags& flags) {
  check_algorithm_of_sums(flags.options.algorithm);
  const auto& o = flags.options;
  if (o.sync != "allreduce" && o.algorithm != "auto")
    throw UsageError(
        fmt::format("--algo {} with --sync {}: a parameter server has no all-reduce; leave one out",
                    o.algorithm, o.sync));
  const int workers =
      launched() ? job_from_environment().size : std::max({flags.job.ranks, flags.threads, 1});
  if (o.algorithm != "auto" && workers == 1)
    throw UsageError(fmt::format(
        "--algo {} with one rank: it has nobody to add up with; leave it out, or say -N 2 or more",
        o.algorithm));
  if (flags.threads > 0)
    for (const char* other : {"-N", "--hosts", "--rails", "--trace"})
      if (command.get_option(other)->count() > 0)
        throw UsageError(fmt::format(
            "{} with --threads: it is for ranks that are processes; leave one out", other));
  if (o.sync != "ps-async" && command.get_option("--staleness")->count() > 0)
    throw UsageError(fmt::format("--staleness {} with --sync {}: only --sync ps-async has any",
                                 o.staleness, o.sync));
}

int run_workers(const SpiralFlags& flags, train::SpiralResult& seen) {
  return run_job("spiral", flags.job, [&](World& world) {
    train::SpiralOptions o = flags.options;
    const Rank me = world.rank();
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
    if (me + 1 == world.size()) seen = result;
    if (me != 0) return kExitOk;
    fmt::print("{}", train::to_text(result, o));
    write(to_json(result, o));
    return kExitOk;
  });
}

// Trains on one thread, then on all, and compares: time, and the operations of a worker.
int compare_threads(SpiralFlags& flags) {
  flags.job.threads = true;
  const int server = flags.options.sync == "allreduce" ? 0 : 1;
  const auto train_on = [&](int threads, train::SpiralResult& seen) {
    flags.job.ranks = threads + server;
    return run_workers(flags, seen);
  };
  train::SpiralResult one, all;
  const int threads = flags.threads;
  if (const int code = train_on(1, one); code != kExitOk || threads == 1) return code;
  if (const int code = train_on(threads, all); code != kExitOk) return code;
  fmt::print(
      "1 thread {:.2f} s, {} threads {:.2f} s: {:.2f} times as fast; a thread makes {} and {} "
      "multiply-adds\n",
      one.seconds, threads, all.seconds, one.seconds / all.seconds, one.operations, all.operations);
  return kExitOk;
}

int train_spiral(SpiralFlags& flags, const CLI::App& command) {
  if (const int code = one_rank_tells([&] { check_spiral(command, flags); }); code != kExitOk)
    return code;
  check_train_folders("", flags.trace);
  if (flags.deterministic) setenv("WEFT_DETERMINISTIC", "1", 1);
  if (!flags.trace.empty()) setenv("WEFT_TRACE", flags.trace.c_str(), 1);
  auto& o = flags.options;
  if (command.get_option("--report-every")->count() == 0)
    o.report_every = std::max(1, o.iterations / 10);
  if (flags.threads > 0) return compare_threads(flags);
  if (!launched() && flags.job.ranks == 0) flags.job.ranks = o.sync == "allreduce" ? 1 : 3;
  train::SpiralResult ignored;
  return run_workers(flags, ignored);
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
