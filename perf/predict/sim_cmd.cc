// `weft sim COLLECTIVE`: runs a job of any size on the simulated fabric, and shows its time and the
// port or core that limits it.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "coll/runtime/calibrate.h"
#include "coll/select/cost.h"
#include "coll/sim/simulate.h"
#include "perf/cli/bytes.h"
#include "perf/cli/commands.h"
#include "perf/cli/names.h"
#include "perf/cli/table.h"
#include "perf/collective/stats.h"
#include "perf/predict/bound.h"
#include "perf/predict/explain.h"
#include "perf/predict/model_flags.h"
#include "transport/launch/failures.h"

namespace weft {
namespace {

struct SimFlags : ModelFlags {
  SimFlags() {
    rail_us = 5;
    host_gbps = 200;
    host_us = 0.5;
  }
  double spine_gbps = 0, spine_us = 8, cpu_us = 0;
  std::vector<std::string> slow_rails;
  bool equal_shares = false;
  std::uint64_t seed = 1;
  double delay_us = 0;
  bool reorder = false, json = false;
};

// What is asked, in the terms of the library.
struct SimJob {
  Collective collective;
  DType type;
  Shape shape;
  std::size_t count;    // elements of the message, or of a block
  std::uint64_t bytes;  // of the whole buffer
  SimFabricOptions fabric;
  CostModel model;
  Bound bound;
};

struct Simulated {
  const Algorithm* algorithm;
  SimResult result;
};

// "1:0.5" slows rail 1 down to half its rate.
void slow_down(const std::string& text, std::vector<double>& scale) {
  int rail = -1, end = 0;
  double factor = 0;
  const int read = std::sscanf(text.c_str(), "%d:%lf%n", &rail, &factor, &end);
  if (read != 2 || static_cast<std::size_t>(end) != text.size() || factor <= 0 || factor > 1 ||
      rail < 0 || static_cast<std::size_t>(rail) >= scale.size())
    throw Error(
        fmt::format("--slow-rail {}: give RAIL:FACTOR, a rail from 0 to {} and a factor "
                    "above 0 and at most 1, as in 1:0.5",
                    text, scale.size() - 1));
  scale[static_cast<std::size_t>(rail)] = factor;
}

SimJob job_of(const SimFlags& flags) {
  SimJob job;
  job.collective = collective_of(flags);
  job.type = type_of(flags);
  if (flags.reorder && flags.delay_us <= 0)
    throw Error("--reorder: messages overtake each other by their delays; give --delay-us too");
  job.shape = shape_of(flags, 0);

  const bool blocks = by_blocks(job.collective);
  const std::size_t unit = size_of(job.type) * (blocks ? static_cast<std::size_t>(flags.ranks) : 1);
  const std::uint64_t bytes =
      job.collective == Collective::kBarrier ? 0 : parse_bytes("--bytes", flags.bytes);
  job.count = bytes / unit;
  job.bytes = job.count * unit;
  if (bytes > 0 && job.count == 0)
    throw Error(fmt::format("--bytes {}: less than one {} for each block; give at least {}",
                            flags.bytes, name(job.type), unit));

  const int rails = flags.rails > 0 ? flags.rails : static_cast<int>(job.shape.hosts[0].size());
  SimFabricOptions& fabric = job.fabric;
  fabric = fabric_of(job.shape, rails);
  fabric.carry_data = false;
  const double declared = declared_rail_gbps(flags.rail_gbps);
  const double rail_gbps = declared > 0 ? declared : fabric.rail.gbps;
  fabric.rail = {flags.rail_us, rail_gbps};
  fabric.spine = {flags.spine_us, flags.spine_gbps > 0 ? flags.spine_gbps : rail_gbps};
  fabric.host = {flags.host_us, flags.host_gbps};
  fabric.payload_share = kTcpPayloadShare;  // as `weft explain` and `weft perf` have it
  fabric.post_us = fabric.complete_us = flags.cpu_us;
  fabric.seed = flags.seed;
  fabric.delay_us_max = flags.delay_us;
  fabric.reorder = flags.reorder;
  fabric.rail_scale.assign(static_cast<std::size_t>(rails), 1.0);
  for (const std::string& text : flags.slow_rails) slow_down(text, fabric.rail_scale);
  if (!flags.slow_rails.empty() && !flags.equal_shares)
    for (std::size_t l = 0; l < job.shape.hosts[0].size(); ++l)
      job.shape.rail_weight.push_back(fabric.rail_scale[l % fabric.rail_scale.size()]);

  job.model = model_of(fabric);
  // A simulated rank sends through a port of its own: a scatter takes what a gather takes.
  const Collective as =
      job.collective == Collective::kScatter ? Collective::kGather : job.collective;
  CostModel own_ports = job.model;
  if (flags.slow_rails.empty()) own_ports.rails_per_host = flags.rails;  // 0: a host's ranks
  job.bound = bound_of(as, job.shape, job.bytes, own_ports);
  return job;
}

// About how long a simulation runs here: by its messages, and by the chunks that each rank's plan
// knows.
double simulating_s(const SimJob& job, const Algorithm& a) {
  constexpr double kMessage = 15e-6, kChunk = 0.2e-6;
  const double chunks = a.build(job.shape).nchunks;
  return job.shape.nranks *
         (messages_of(a, job.shape, job.bytes, job.model) * kMessage + chunks * kChunk);
}

// `left_out`: the names of those that would run for more than a minute, of `all`.
std::vector<const Algorithm*> wanted(const SimJob& job, const std::string& algorithm,
                                     std::string& left_out) {
  constexpr double kLongest = 60;
  if (algorithm == "all") {
    std::vector<const Algorithm*> all;
    for (const Algorithm& a : algorithms()) {
      if (a.collective != job.collective || !a.applies(job.shape)) continue;
      if (simulating_s(job, a) < kLongest)
        all.push_back(&a);
      else
        left_out.append(left_out.empty() ? "" : ", ").append(a.name);
    }
    if (all.empty() && left_out.empty())
      throw Error(fmt::format("{}: it has no schedules to simulate", name(job.collective)));
    return all;
  }
  check_algorithm(job.collective, algorithm);
  check_applies(job.collective, algorithm, job.shape);
  const Algorithm* found = algorithm == "auto"
                               ? pick(job.collective, job.shape, job.bytes, job.model).algorithm
                               : find_algorithm(job.collective, algorithm);
  if (found == nullptr)
    throw Error(fmt::format("{}: it has no schedules to simulate", name(job.collective)));
  return {found};
}

double busbw(const SimJob& job, const SimResult& r) {
  return algbw_gbps(job.bytes, r.time_us) * busbw_factor(job.collective, job.shape.nranks);
}

double of_bound(const SimJob& job, const SimResult& r) {
  return r.time_us > 0 ? job.bound.us / r.time_us : 0;
}

std::string MiB(std::uint64_t bytes) {
  return fmt::format("{:.1f}", static_cast<double>(bytes) / (1 << 20));
}

std::string text(const SimJob& job, const std::vector<Simulated>& rows) {
  const SimFabricOptions& f = job.fabric;
  std::string out = fmt::format(
      "weft sim {}: {} bytes of {} over {} ranks on {} hosts x {} rails\n"
      "a rail {:g} us, {:g} Gb/s; inside a host {:g} us, {:g} Gb/s; lower bound {} us ({})\n\n",
      name(job.collective), format_bytes(job.bytes), name(job.type), job.shape.nranks,
      job.shape.hosts.size(), f.rail_scale.size(), f.rail.latency_us, f.rail.gbps,
      f.host.latency_us, f.host.gbps, format_us(job.bound.us), job.bound.limiting);
  std::vector<std::vector<std::string>> table = {{"  algorithm", "time us", "busbw GB/s",
                                                  "of_bound", "messages", "cross-rail MiB",
                                                  "busiest"}};
  for (const auto& [algorithm, r] : rows)
    table.push_back(
        {fmt::format("  {}", algorithm->name), fmt::format("{:>7}", format_us(r.time_us)),
         fmt::format("{:>10}", format_GBps(busbw(job, r))),
         fmt::format("{:>8.3f}", of_bound(job, r)), fmt::format("{:>8}", r.traffic.messages),
         fmt::format("{:>14}", MiB(r.traffic.cross_rail_bytes)),
         r.limiting.empty()
             ? "nothing moved"
             : fmt::format("{}, {:.0f} % of the time", r.limiting, 100 * r.busy_share)});
  out += align(table);
  if (job.shape.hosts.size() < 2) return out;
  out += "\nMiB that left on each rail, all hosts together\n";
  table = {{"  algorithm"}};
  for (std::size_t l = 0; l < f.rail_scale.size(); ++l)
    table[0].push_back(fmt::format("{:>10}", fmt::format("rail {}", l)));
  for (const auto& [algorithm, r] : rows) {
    auto& line = table.emplace_back(1, fmt::format("  {}", algorithm->name));
    for (const std::uint64_t bytes : r.traffic.rail_bytes)
      line.push_back(fmt::format("{:>10}", MiB(bytes)));
  }
  return out + align(table);
}

nlohmann::ordered_json to_json(const SimJob& job, const std::vector<Simulated>& rows,
                               std::uint64_t seed) {
  nlohmann::ordered_json out = {{"schema", "weft.sim/1"},
                                {"collective", name(job.collective)},
                                {"ranks", job.shape.nranks},
                                {"hosts", job.shape.hosts.size()},
                                {"rails", job.fabric.rail_scale.size()},
                                {"bytes", job.bytes},
                                {"type", name(job.type)},
                                {"seed", seed},
                                {"lower_bound_us", job.bound.us},
                                {"bound_by", job.bound.limiting},
                                {"rows", nlohmann::ordered_json::array()}};
  for (const auto& [algorithm, r] : rows)
    out["rows"].push_back({{"algorithm", algorithm->name},
                           {"time_us", r.time_us},
                           {"busbw_GBps", busbw(job, r)},
                           {"of_bound", of_bound(job, r)},
                           {"rounds", r.rounds},
                           {"messages", r.traffic.messages},
                           {"limiting", r.limiting},
                           {"busy_share", r.busy_share},
                           {"host_bytes", r.traffic.host_bytes},
                           {"rail_bytes", r.traffic.rail_bytes},
                           {"cross_rail_bytes", r.traffic.cross_rail_bytes},
                           {"trace", fmt::format("{:016x}", r.trace_hash)}});
  return out;
}

int run(const SimFlags& flags) {
  const SimJob job = job_of(flags);
  std::vector<Simulated> rows;
  Progress progress(!flags.json);
  std::string left_out;
  for (const Algorithm* a : wanted(job, flags.algorithm, left_out)) {
    progress.show(fmt::format("simulating {}", a->name));
    rows.push_back({a, simulate(*a, job.shape, job.count, job.type, job.fabric)});
  }
  progress.clear();
  if (!left_out.empty())
    fmt::print(stderr,
               "weft sim: left out, since each would run for minutes: {}. Name one to run it\n",
               left_out);
  std::stable_sort(rows.begin(), rows.end(), [](const Simulated& a, const Simulated& b) {
    return a.result.time_us < b.result.time_us;
  });
  fmt::print("{}", flags.json ? to_json(job, rows, flags.seed).dump(2) + "\n" : text(job, rows));
  return kExitOk;
}

}  // namespace

void add_sim(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<SimFlags>();
  CLI::App* command =
      app.add_subcommand("sim", "a collective of any size on a simulated fabric, in virtual time");
  add_model_flags(*command, *flags, "auto, all or an algorithm's name");
  const auto number = [command](const char* flag, auto& value, const char* about) {
    return command->add_option(flag, value, about)->capture_default_str();
  };
  command
      ->add_option("--spine-gbps", flags->spine_gbps,
                   "from host to host, of what crosses from rail to rail (default: as a rail)")
      ->check(CLI::PositiveNumber);
  number("--spine-us", flags->spine_us, "latency of what crosses from rail to rail")
      ->check(CLI::NonNegativeNumber);
  number("--cpu-us", flags->cpu_us, "core time of a message, at each end")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--slow-rail", flags->slow_rails, "RAIL:FACTOR, e.g. 1:0.5; repeatable")
      ->type_name("RAIL:FACTOR");
  command->add_flag("--equal-shares", flags->equal_shares, "do not give slow rails less to carry");
  number("--seed", flags->seed, "of the delays");
  number("--delay-us", flags->delay_us, "each message takes up to this much longer")
      ->check(CLI::NonNegativeNumber);
  command->add_flag("--reorder", flags->reorder, "delayed messages may overtake each other");
  command->add_flag("--json", flags->json, "for programs");
  command->callback([flags, &exit_code] { exit_code = run(*flags); });
}

}  // namespace weft
