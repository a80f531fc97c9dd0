// Flags and output of the spiral and of measured bubbles. This file computes nothing.
#include "train/spiral/spiral_cmd.h"

#include <fmt/format.h>

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "topo/base/clock.h"
#include "topo/base/exit_code.h"
#include "transport/launch/local_job.h"

namespace weft {
namespace {

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

}  // namespace

void add_spiral_flags(CLI::App& command, SpiralFlags& flags) {
  auto& o = flags.options;
  const auto positive = CLI::PositiveNumber;
  const std::string group = "The spiral (--model spiral)";
  command
      .add_option("--sync", o.sync,
                  "allreduce; ps: the first rank (gpt: replica) is a parameter server; ps-async: "
                  "no waiting")
      ->check(CLI::IsMember({"allreduce", "ps", "ps-async"}))
      ->capture_default_str()
      ->group(group);
  command.add_option("--staleness", o.staleness, "iterations a worker may be ahead (ps-async)")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--straggler-us", o.straggler_us,
                  "the last worker (gpt: rank) is slower by so much")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--report-every", o.report_every,
                  "iterations between lines; 0: the end only (default: a tenth)")
      ->check(CLI::NonNegativeNumber)
      ->group(group);
  command.add_flag("--threads", flags.threads, "server and workers are threads of one process")
      ->group(group);
  command
      .add_flag("--bubbles", flags.bubbles,
                "measure the bubbles of all pipeline schedules with stages that sleep")
      ->group("Bubbles");
  command.add_option("--bubble-us", flags.bubble.op_us, "of F, B and W each")
      ->check(positive)
      ->capture_default_str()
      ->group("Bubbles");
}

int run_spiral_command(const JobFlags& job, const SpiralFlags& flags, const RestartFlags& restart,
                       const std::string& log) {
  return run_job("train", job, [&](World& world) {
    train::SpiralOptions o = flags.options;
    const Rank me = world.rank();
    check_restart(restart, world, o.iterations);
    o.before = [&](int iteration) { die_on_purpose(restart, me, iteration); };
    std::ofstream file;
    if (me == 0 && !log.empty()) file.open(log, std::ios::app);
    const auto write = [&](const nlohmann::json& line) {
      if (!log.empty() && !(file << line.dump() << std::endl))
        throw Error(fmt::format("--log {}: cannot be written", log));
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
      fmt::print(stderr, "weft train: warning: left out: {}\n", why);
    for (const std::string& what : result.differs)
      fmt::print(stderr, "weft train: warning: {}\n", what);
    if (result.first > 0) fmt::print("# went on after step {} of {}\n", result.first, result.path);
    fmt::print("{}", train::to_text(result, o));
    write(to_json(result, o));
    return kExitOk;
  });
}

int run_bubbles_command(JobFlags job, const SpiralFlags& flags) {
  if (!launched() && job.ranks == 0) job.ranks = 4;
  return run_job("train", job, [&](World& world) {
    const auto rows = train::measure_bubbles(world.world(), flags.bubble);
    if (world.rank() == 0)
      fmt::print("# {} stages; F, B and W take {} us each\n{}", world.size(), flags.bubble.op_us,
                 train::to_text(rows));
    return kExitOk;
  });
}

}  // namespace weft
