// `weft sim COLLECTIVE`: runs a job of any size on the simulated fabric, and shows its time and the
// port or core that limits it.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "coll/jobs/report.h"
#include "coll/jobs/session.h"
#include "coll/select/cost.h"
#include "coll/sim/simulate.h"
#include "perf/cli/bytes.h"
#include "perf/cli/commands.h"
#include "perf/cli/names.h"
#include "perf/cli/parse_errors.h"
#include "perf/cli/table.h"
#include "perf/predict/bound.h"
#include "perf/predict/model_flags.h"
#include "perf/predict/sim_call.h"
#include "perf/stats/stats.h"
#include "transport/launch/failures.h"

namespace weft {
namespace {

constexpr int kNeverRefused = 1024;  // ranks

struct Simulated {
  const Algorithm* algorithm;
  SimResult result;
};

// An algorithm to simulate, and the method.
struct Wanted {
  const Algorithm* algorithm;
  std::optional<OneHost> one_host;  // simulate one host or rail, if the others behave alike
  bool few_rounds = false;          // simulate a few rounds, if all would take too long
  // Estimated run time of the simulation, from the messages that ranks send and receive, and the
  // chunks in each rank's plan.
  double seconds = 0;
};

Wanted wanted(const SimulatedCall& job, const Algorithm& a, double longest_s) {
  constexpr double kMessage = 3e-6, kChunk = 0.05e-6, kStep = 0.4e-6;
  const Schedule first = a.build(job.shape);
  const auto per_host = static_cast<Rank>(job.shape.hosts[0].size());
  std::set<Rank> far;
  for (const Step& s : first.steps)
    if (s.peer >= per_host) far.insert(s.peer);
  const Messages m = messages_of(a, job.shape, job.bytes, job.model);
  const auto seconds_of = [&](std::size_t ranks, double rounds) {
    return static_cast<double>(ranks) * (m.each_round * rounds * kMessage + first.nchunks * kChunk);
  };
  // With one host: the messages of its ranks, and inspecting the steps of the ranks they send to.
  const double looks =
      static_cast<double>(job.shape.hosts.size() + far.size() * job.shape.hosts[0].size()) *
      static_cast<double>(first.steps.size()) * kStep;
  auto ranks = static_cast<std::size_t>(job.shape.nranks);
  Wanted w{.algorithm = &a, .one_host = {}, .seconds = seconds_of(ranks, m.rounds)};
  if (job.whole) return w;
  if (w.seconds > looks && seconds_of(job.shape.hosts[0].size(), m.rounds) + looks < longest_s)
    w.one_host = one_host_of(a, job.shape, job.count, job.type, job.fabric);
  if (w.one_host) {
    ranks = w.one_host->ranks().size();
    w.seconds = seconds_of(ranks, m.rounds) + looks;
  }
  if (w.seconds > longest_s && m.rounds >= kManyRounds * m.lanes) {
    w.few_rounds = true;
    w.seconds = seconds_of(ranks, (2 * kFewRounds + 1) * m.lanes);
  }
  return w;
}

SimResult simulate(const SimulatedCall& job, const Wanted& w) {
  const Algorithm& a = *w.algorithm;
  if (w.few_rounds)
    return simulate_few_rounds(a, job.shape, job.count, job.type, job.fabric,
                               w.one_host ? &*w.one_host : nullptr);
  if (w.one_host)
    return simulate_one_host(a, job.shape, job.count, job.type, job.fabric, *w.one_host);
  return weft::simulate(a, job.shape, job.count, job.type, job.fabric);
}

// Returns the algorithms to simulate. For "all", leaves out those estimated above `longest_s`, with
// their names in `left_out`, but never the quickest.
std::vector<Wanted> wanted(const SimulatedCall& job, const std::string& algorithm, double longest_s,
                           std::string& left_out) {
  if (algorithm == "all") {
    std::vector<Wanted> timed, all;
    for (const Algorithm& a : algorithms())
      if (a.collective == job.collective && a.applies(job.shape))
        timed.push_back(wanted(job, a, longest_s));
    if (timed.empty())
      throw Error(fmt::format("{}: it has no schedules to simulate", name(job.collective)));
    const double most =
        std::max(longest_s, std::ranges::min_element(timed, {}, &Wanted::seconds)->seconds);
    for (Wanted& w : timed)
      if (w.seconds <= most)
        all.push_back(std::move(w));
      else
        left_out.append(left_out.empty() ? "" : ", ").append(w.algorithm->name);
    return all;
  }
  check_algorithm(job.collective, algorithm);
  check_applies(job.collective, algorithm, job.shape);
  const Algorithm* found = algorithm == "auto"
                               ? pick(job.collective, job.shape, job.bytes, job.model).algorithm
                               : find_algorithm(job.collective, algorithm);
  if (found == nullptr)
    throw Error(fmt::format("{}: it has no schedules to simulate", name(job.collective)));
  std::vector<Wanted> one;
  one.push_back(wanted(job, *found, longest_s));
  if (one[0].seconds > longest_s && job.shape.nranks > kNeverRefused)
    throw Error(fmt::format(
        "{} {}: simulating it would take about {:.0f} s, and --longest-s is {:g}; give more, or "
        "take the cost model's {} us (weft explain)",
        name(job.collective), found->name, one[0].seconds, longest_s,
        format_us(predict(*found, job.shape, job.bytes, size_of(job.type), job.model).time_us)));
  return one;
}

double busbw(const SimulatedCall& job, const SimResult& r) {
  return algbw_gbps(job.bytes, r.time_us) * busbw_factor(job.collective, job.shape.nranks);
}

double of_bound(const SimulatedCall& job, const SimResult& r) {
  return r.time_us > 0 ? job.bound.us / r.time_us : 0;
}

std::string MiB(std::uint64_t bytes) {
  return fmt::format("{:.1f}", static_cast<double>(bytes) / (1 << 20));
}

// Uses the fabric's leaves, even if schedules ignore them.
double least_between_leaves(const SimulatedCall& job) {
  Shape shape = job.shape;
  shape.leaf = job.fabric.leaf_of_host;
  return weft::least_between_leaves(job.collective, shape, job.bytes);
}

// `picked`: the choice of `auto`, if all algorithms were requested.
std::string text(const SimulatedCall& job, const std::vector<Simulated>& rows,
                 const Algorithm* picked) {
  const SimFabricOptions& f = job.fabric;
  std::string out =
      fmt::format("weft sim {}: {} bytes of {} over {}\n{}{}\nlower bound {} us ({})\n\n",
                  name(job.collective), format_bytes(job.bytes), name(job.type), where(job),
                  unequal_hosts_in_words(job), in_words(job.machine, job.shape.hosts.size() > 1),
                  format_us(job.bound.us), job.bound.limiting);
  std::vector<std::vector<std::string>> table = {{"  algorithm", "time us", "busbw GB/s",
                                                  "of_bound", "messages", "cross-rail MiB",
                                                  "busiest, % of the time"}};
  for (const auto& [algorithm, r] : rows)
    table.push_back(
        {fmt::format("  {}", algorithm->name), fmt::format("{:>7}", format_us(r.time_us)),
         fmt::format("{:>10}", format_GBps(busbw(job, r))),
         fmt::format("{:>8.3f}", of_bound(job, r)), fmt::format("{:>8}", r.traffic.messages),
         fmt::format("{:>14}", MiB(r.traffic.cross_rail_bytes)),
         r.limiting.empty() ? "nothing moved"
                            : fmt::format("{}, {:.0f} %", r.limiting, 100 * r.busy_share)});
  out += align(table);
  double most = 0;
  for (const auto& [algorithm, r] : rows) most = std::max(most, of_bound(job, r));
  out += above_bound_in_words(most, "the bound is wrong here");
  for (const auto& [algorithm, r] : rows)
    if (r.simulated_rounds < r.rounds)
      out += fmt::format(
          "{}: by the first {} of {} rounds, so the time may be 15 % off (--whole: all)\n",
          algorithm->name, r.simulated_rounds, r.rounds);
  if (picked) out += fmt::format("\nauto takes {}\n", picked->name);
  if (job.shape.hosts.size() < 2) return out;
  if (!f.leaf_of_host.empty()) {
    table = {{"\n  algorithm", "MiB from leaf to leaf", "of the least"}};
    const double least = least_between_leaves(job);
    for (const auto& [algorithm, r] : rows)
      table.push_back({fmt::format("  {}", algorithm->name),
                       fmt::format("{:>21}", MiB(r.traffic.uplink_bytes)),
                       least > 0 ? fmt::format("{:>12.3f}", r.traffic.uplink_bytes / least) : ""});
    out += align(table);
  }
  out += "\nMiB that left on each rail, all hosts together\n";
  constexpr std::size_t kRailsOfALine = 8;
  const std::size_t rails = f.rail_scale.size();
  for (std::size_t first = 0; first < rails; first += kRailsOfALine) {
    const std::size_t end = std::min(first + kRailsOfALine, rails);
    table = {{"  algorithm"}};
    for (std::size_t l = first; l < end; ++l)
      table[0].push_back(fmt::format("{:>8}", fmt::format("rail {}", l)));
    for (const auto& [algorithm, r] : rows) {
      auto& line = table.emplace_back(1, fmt::format("  {}", algorithm->name));
      for (std::size_t l = first; l < end; ++l)
        line.push_back(fmt::format("{:>8}", MiB(r.traffic.rail_bytes[l])));
    }
    out += align(table);
  }
  return out;
}

nlohmann::ordered_json to_json(const SimulatedCall& job, const std::vector<Simulated>& rows,
                               const Algorithm* picked, std::uint64_t seed) {
  nlohmann::ordered_json out = {{"schema", "weft.sim/1"},
                                {"collective", name(job.collective)},
                                {"ranks", job.shape.nranks},
                                {"hosts", job.shape.hosts.size()},
                                {"rails", job.fabric.rail_scale.size()},
                                {"bytes", job.bytes},
                                {"type", name(job.type)},
                                {"seed", seed},
                                {"machine", job.machine.name},
                                {"lower_bound_us", job.bound.us},
                                {"bound_by", job.bound.limiting},
                                {"least_uplink_bytes", least_between_leaves(job)},
                                {"rows", nlohmann::ordered_json::array()}};
  if (picked) out["auto"] = picked->name;
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
                           {"uplink_bytes", r.traffic.uplink_bytes},
                           {"trace", fmt::format("{:016x}", r.trace_hash)}});
  return out;
}

// Writes the activity of rank 0's ports and core, message by message.
void write_timeline(const std::string& path, const std::vector<Simulated>& rows) {
  std::ofstream out(path);
  out << "algorithm,at,from_us,to_us,round,bytes\n";
  for (const auto& [algorithm, r] : rows)
    for (const SimService& s : r.traffic.watched)
      out << fmt::format("{},{},{:.3f},{:.3f},{},{}\n", algorithm->name, s.at, s.from_us, s.to_us,
                         s.tag >> kOrdinalBits & ((1u << kRoundBits) - 1), s.bytes);
  if (!out.flush()) throw Error(fmt::format("--timeline {}: cannot be written", path));
}

// Throws Error for options of `sim` that this run would ignore.
void refuse_of_sim(const CLI::App& command, const SimFlags& flags) {
  if (flags.hosts == 1)
    refuse_given(command, {"--slow-rail", "--cut"}, "one host (--hosts) uses no rail");
  if (flags.delay_us <= 0 && flags.skew_us <= 0)
    refuse_given(command, {"--seed"}, "nothing is drawn without --delay-us or --skew-us");
  const bool slow = std::ranges::any_of(
      flags.slow_rails, [](const std::string& text) { return text.find('@') == text.npos; });
  if (!slow && flags.slow_ports.empty())
    refuse_given(command, {"--equal-shares"},
                 "no rail or port is slow from the start (--slow-rail, --slow-port)");
  if (flags.hosts_per_leaf == 0)
    refuse_given(command, {"--unknown-leaves"},
                 "all hosts are on one leaf without --hosts-per-leaf");
}

int run(const SimFlags& flags) {
  check_report(flags.json);
  const SimulatedCall job = call_of(flags);
  std::vector<Simulated> rows;
  Progress progress(flags.json != "-");
  std::string left_out;
  for (const Wanted& w : wanted(job, flags.algorithm, flags.longest_s, left_out)) {
    progress.show(fmt::format("simulating {}, about {:.0f} s", w.algorithm->name, w.seconds));
    rows.push_back({w.algorithm, simulate(job, w)});
  }
  progress.clear();
  if (!left_out.empty())
    fmt::print(stderr,
               "weft sim: left out, since each would run for more than {:g} s: {}. Name one to run "
               "it, or give --longest-s\n",
               flags.longest_s, left_out);
  std::stable_sort(rows.begin(), rows.end(), [](const Simulated& a, const Simulated& b) {
    return a.result.time_us < b.result.time_us;
  });
  if (!flags.timeline.empty()) write_timeline(flags.timeline, rows);
  const Algorithm* const picked =
      flags.algorithm == "all" ? pick(job.collective, job.shape, job.bytes, job.model).algorithm
                               : nullptr;
  if (!flags.json.empty())
    write_report(flags.json, to_json(job, rows, picked, flags.seed).dump(2) + "\n");
  if (flags.json != "-") fmt::print("{}", text(job, rows, picked));
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
  section(*command, "What is slow or fails");
  number("--skew-us", flags->skew_us, "ranks start up to this much late")
      ->check(CLI::NonNegativeNumber);
  command
      ->add_option("--slow-rail", flags->slow_rails,
                   "e.g. 1:0.5, or 1:0.25@300: from 300 us on; repeatable")
      ->type_name("RAIL:FACTOR[@US]");
  command
      ->add_option("--slow-host", flags->slow_hosts,
                   "speed of its cores and of the links inside, e.g. 3:0.5; repeatable")
      ->type_name("HOST:FACTOR");
  command->add_option("--cut", flags->cuts, "a host's link goes down, e.g. 3:1@500; repeatable")
      ->type_name("HOST:RAIL@US");
  command->add_flag("--unknown-leaves", flags->unknown_leaves,
                    "schedules do not know which hosts share a leaf (--hosts-per-leaf)");
  command->add_flag("--equal-shares", flags->equal_shares,
                    "do not give slow rails and ports less to carry");
  number("--seed", flags->seed, "seed of the delays");
  number("--delay-us", flags->delay_us, "each message takes up to this much longer")
      ->check(CLI::NonNegativeNumber);
  command->add_flag("--reorder", flags->reorder, "delayed messages may overtake each other");
  section(*command, "Output");
  number("--longest-s", flags->longest_s,
         "do not run simulations that would take longer, by estimate")
      ->check(CLI::PositiveNumber);
  command->add_flag("--whole", flags->whole,
                    "simulate all hosts, rails and rounds even if a few are representative");
  command
      ->add_option("--timeline", flags->timeline,
                   "a CSV file of what rank 0's ports and core do, message by message")
      ->type_name("FILE");
  add_json_option(*command, flags->json, "weft.sim/1");
  command->footer("Example: weft sim all_reduce -N 64 --hosts 8 --bytes 16M --algo all");
  command->callback([command, flags, &exit_code] {
    refuse_ignored(*command, *flags);
    refuse_of_sim(*command, *flags);
    exit_code = run(*flags);
  });
}

}  // namespace weft
