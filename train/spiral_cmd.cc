#include "train/spiral_cmd.h"

#include <fmt/format.h>

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "perf/commands.h"
#include "perf/local_job.h"

namespace weft {
namespace {

nlohmann::json to_json(const train::SpiralResult& r, const train::SpiralOptions& o) {
  nlohmann::json curve = nlohmann::json::array(), workers = nlohmann::json::array();
  for (const train::SpiralPoint& p : r.curve)
    curve.push_back({{"iteration", p.iteration}, {"loss", p.loss}, {"accuracy", p.accuracy}});
  for (const auto& w : r.server.workers)
    workers.push_back({{"came_last", w.last}, {"waited_s", w.waited_s}, {"worked_s", w.worked_s}});
  return {{"model", "spiral"},
          {"sync", o.sync},
          {"algorithm", o.algorithm},
          {"workers", r.workers},
          {"iterations", o.iterations},
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
  command.add_option("--sync", o.sync, "allreduce; ps, ps-async: rank 0 is a parameter server")
      ->check(CLI::IsMember({"allreduce", "ps", "ps-async"}))
      ->capture_default_str()
      ->group(group);
  command.add_option("--staleness", o.staleness, "iterations a worker may be ahead (ps-async)")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str()
      ->group(group);
  command.add_option("--straggler-us", o.straggler_us, "the last worker is slower by so much")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str()
      ->group(group);
  command.add_option("--report-every", o.report_every, "iterations between lines; 0: the end only")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str()
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

int run_spiral_command(JobFlags job, const SpiralFlags& flags, const std::string& log) {
  const train::SpiralOptions& o = flags.options;
  if (!launched() && job.ranks == 0) job.ranks = o.sync == "allreduce" ? 1 : 3;
  return run_job("train", job, [&](World& world) {
    const train::SpiralResult result = train::run_spiral(world.world(), o);
    if (world.rank() != 0) return kExitOk;
    fmt::print("{}", train::to_text(result, o));
    if (!log.empty()) {
      std::ofstream file(log, std::ios::app);
      if (!(file << to_json(result, o).dump() << std::endl))
        throw Error(fmt::format("--log {}: cannot be written", log));
    }
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
