// `weft spiral`: trains a small network in fp64, on workers synchronized by an all-reduce or a
// parameter server. Computes nothing itself.
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
  int threads = 0;  // workers as threads of one process; 0: workers are processes
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

void spiral_rows(CLI::App& command, const OptionTable& add, SpiralFlags& flags) {
  auto& o = flags.options;
  const bool server = o.sync != "allreduce";
  const int workers = !add.checks() ? 0  // adding rows must not throw
                      : launched()  ? job_from_environment().size
                                    : std::max({flags.job.ranks, flags.threads, 1});
  section(command, "Training");
  add("--steps", o.iterations, "steps to train", CLI::PositiveNumber);
  add("--lr", o.rate, "learning rate", CLI::PositiveNumber);
  add("--seed", o.seed, "seed of the points and of the first weights");
  section(command, "Workers");
  add_sync(add, o.sync, o.staleness, o.straggler_us);
  add_algorithm(add, o.algorithm, !server && workers == 1)
      .refused(server && o.algorithm != "auto",
               fmt::format("with --sync {}: a parameter server has no all-reduce; leave one out",
                           o.sync));
  add.unset(
      "--threads", flags.threads,
      "number of workers, as threads of one process; one thread trains first, to compare times",
      CLI::Range(1, 64));
  add.flag("--deterministic", flags.deterministic, "the same bits for every algorithm");
  section(command, "Output");
  add.unset("--report-every", o.report_every,
            "iterations between lines; 0: the end only (default: a tenth)", CLI::NonNegativeNumber);
  add("--log", flags.log,
      "file to which JSON lines are added, one for each report and one for the end");
  add("--trace", flags.trace, "trace of every rank's communication, for Perfetto");
  for (const char* other : {"-N", "--hosts", "--rails", "--trace"})
    add.row(other).refused(flags.threads > 0,
                           "with --threads: it is for ranks that are processes; leave one out");
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

// Trains on one thread, then on all, and compares times and operations per worker.
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

int train_spiral(SpiralFlags& flags, CLI::App& command) {
  std::string agreed;  // log and trace may differ between ranks
  const auto check = [&] { spiral_rows(command, OptionTable(command, agreed), flags); };
  if (const int code = one_rank_tells(check); code != kExitOk) return code;
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
  command->option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  add_job_flags(*command, flags->job);
  spiral_rows(*command, OptionTable(*command), *flags);
  command->footer("Example: weft spiral -N 3 --sync ps --steps 1000");
  command->callback([flags, command, &exit_code] { exit_code = train_spiral(*flags, *command); });
}

}  // namespace weft
