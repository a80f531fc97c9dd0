// `weft validate`: says whether this fabric can be trusted. Checks hosts, pairs and collectives,
// and gives a verdict for each and one over all.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "coll/jobs/report.h"
#include "coll/jobs/session.h"
#include "perf/cli/commands.h"
#include "perf/cli/table.h"
#include "perf/collective/perf_report.h"
#include "perf/validate/pairs.h"
#include "perf/validate/rail_counts.h"
#include "perf/validate/validate_collectives.h"
#include "perf/validate/validate_host.h"
#include "perf/validate/validate_rails.h"
#include "perf/validate/verdict.h"
#include "topo/base/clock.h"
#include "transport/factory/transport_factory.h"
#include "transport/launch/local_job.h"

namespace weft {
namespace {

struct ValidateFlags {
  JobFlags job;
  double budget_s = 45;
  std::string json;
};

// What is known so far, on every rank alike, so that any of them can tell when others die.
class Validation {
 public:
  explicit Validation(const ValidateFlags& flags) : flags_(flags) {}

  int run(World& world);
  void failed(Rank me, const Status& failure);

 private:
  void begin(World& world);
  void add(const std::string& section, std::vector<Item> items);
  int finish();
  std::string name_of(Rank r) const {
    const auto i = static_cast<std::size_t>(r);
    return i < host_of_.size() ? fmt::format("rank {} host {}", r, host_of_[i])
                               : fmt::format("rank {}", r);
  }
  bool prints() const { return speaks_ && flags_.json != "-"; }

  const ValidateFlags& flags_;
  double start_s_ = now_s();
  bool speaks_ = false, emulated_ = false;
  std::string phase_ = "start";
  int ranks_ = 0, hosts_ = 0, rails_ = 0;
  std::string transport_;
  std::vector<std::string> host_of_;  // by rank
  std::vector<Item> items_;
  std::vector<PairResult> pairs_;
  std::vector<RailCount> counts_;
  nlohmann::ordered_json machines_ = nlohmann::ordered_json::array();
};

void Validation::begin(World& world) {
  const Topology& t = world.topology();
  speaks_ = world.rank() == 0;
  ranks_ = t.nranks();
  hosts_ = t.nhosts();
  rails_ = t.nrails();
  for (Rank r = 0; r < ranks_; ++r) host_of_.push_back(t.host_name(t.host(r)));
  transport_ = flags_.job.transport;
  for (Rank r = 1; r < ranks_; ++r)
    emulated_ |= !t.same_host(r, 0) && t.place(r).machine == t.place(0).machine;
  if (prints())
    fmt::print("weft validate: {} ranks on {} {} x {} {}{}; {}\n\n", ranks_, hosts_,
               hosts_ == 1 ? "host" : "hosts", rails_, rails_ == 1 ? "rail" : "rails",
               emulated_ ? ", emulated on one machine" : "",
               transports_in_words(transport_, ranks_, hosts_, hosts_share_memory(t),
                                   transport_between_hosts(t)));
}

void Validation::add(const std::string& section, std::vector<Item> items) {
  items_.insert(items_.end(), items.begin(), items.end());
  if (prints()) fmt::print("{}\n", section_text(section, items));
  std::fflush(stdout);
}

int Validation::run(World& world) {
  begin(world);
  const std::vector<CounterSnapshot> ports = world.rail_counters();
  Progress progress(prints());
  const auto show = [&](const std::string& text) { progress.show("  " + text); };

  phase_ = "hosts";
  HostReport host = validate_hosts(world);
  const PairLimits& limits = limits_for(emulated_, host.oversubscribed);
  machines_ = std::move(host.hosts);
  add("host", std::move(host.items));

  phase_ = "pairs";
  if (ranks_ > 1) {
    show("all pairs");
    pairs_ = measure_pairs(world, transport_, flags_.budget_s / 3, limits);
    const auto directions = static_cast<std::size_t>(ranks_) * (ranks_ - 1);
    progress.clear();
    add("pairs", judge_pairs(pairs_, directions, limits));
  }

  phase_ = "collectives";
  auto collectives = validate_collectives(world, flags_.budget_s * 2 / 3, show);
  progress.clear();
  add("collectives", std::move(collectives));
  counts_ = count_rails(world, ports);
  if (!counts_.empty()) add("ports", judge_ports(counts_));
  if (auto outages = judge_outages(rail_outages(world)); !outages.empty())
    add("rails", std::move(outages));
  return finish();
}

void Validation::failed(Rank me, const Status& failure) {
  const Rank culprit = failure.rank();
  if (ranks_ == 0) ranks_ = job_from_environment().size;  // before there was a topology
  speaks_ = me == speaker(culprit) || ranks_ == 1;
  Item item{"job",
            // A deadline that passed may name the sender on a link that is at fault.
            culprit == kNoRank || failure.code() == Code::kTimeout ? "the job" : name_of(culprit),
            Verdict::kFail, fmt::format("{} (while at {})", failure.to_string(), phase_), "", ""};
  switch (failure.code()) {
    case Code::kPeerFailed:
      item.fault = "rank-lost";
      item.remedy =
          "look at the log of that rank and host: out of memory, killed, powered off; and whether "
          "its network still answers (`ping`)";
      break;
    case Code::kTimeout:
      item.fault = "deadline-passed";
      item.remedy =
          "of a link that is named, look at the cable, the port, its switch, the firewall, and the "
          "MTU all along the way; where none is, rerun with fewer hosts to find what hangs";
      break;
    default:
      item.fault = "job-failed";
      item.remedy = "the message above says what failed";
  }
  add("job", {item});
  (void)finish();
}

int Validation::finish() {
  const Verdict verdict = overall(items_);
  const double seconds = now_s() - start_s_;
  if (!speaks_) return exit_code(verdict);
  if (prints()) fmt::print("{}", summary_text(items_, seconds));
  if (flags_.json.empty()) return exit_code(verdict);
  nlohmann::ordered_json json = {{"schema", "weft.validate/1"},
                                 {"verdict", in_words(verdict)},
                                 {"exit_code", exit_code(verdict)},
                                 {"ranks", ranks_},
                                 {"hosts", hosts_},
                                 {"rails", rails_},
                                 {"emulated", emulated_},
                                 {"transport", transport_},
                                 {"time_s", seconds},
                                 {"machines", machines_},
                                 {"items", nlohmann::ordered_json::array()},
                                 {"pairs", nlohmann::ordered_json::array()}};
  for (const Item& item : items_) json["items"].push_back(to_json(item));
  for (const PairResult& p : pairs_)
    json["pairs"].push_back({{"from", p.from},
                             {"to", p.to},
                             {"from_host", p.from_host},
                             {"to_host", p.to_host},
                             {"link", p.link},
                             {"latency_us", p.latency_us},
                             {"bandwidth_GBps", p.bandwidth_GBps}});
  if (!counts_.empty()) json["ports"] = to_json(counts_);
  write_report(flags_.json, json.dump(2) + "\n");
  return exit_code(verdict);
}

int validate(ValidateFlags& flags) {
  if (!launched()) {  // what to emulate where nothing is said
    check_report(flags.json);
    const bool free = flags.job.hosts == 0 && flags.job.ranks == 0;
    if (flags.job.hosts == 0) flags.job.hosts = free || flags.job.ranks >= 4 ? 2 : 1;
    if (flags.job.ranks == 0) flags.job.ranks = 2 * flags.job.hosts;
    if (flags.job.rails == 0) flags.job.rails = 2;
  }
  Validation validation(flags);
  return run_job(
      "validate", flags.job,
      [&](World& world) {
        check_report(world, flags.json);
        return validation.run(world);
      },
      [&](Rank me, const Status& failure) { validation.failed(me, failure); });
}

}  // namespace

void add_validate(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<ValidateFlags>();
  flags->job.timeout_ms = 15000;
  CLI::App* command = app.add_subcommand(
      "validate", "can this fabric be trusted? exit code 0 OK, 1 WARN, 2 CRITICAL, 3 UNKNOWN");
  add_job_flags(*command, flags->job);
  command->add_option("--budget-s", flags->budget_s, "what does not fit into this time is UNKNOWN")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--json", flags->json, "also write a report to this file; - for stdout only");
  command->footer(
      "Without a launcher: 2 ranks on each of 2 hosts with 2 rails, emulated on this machine.");
  command->callback([flags, &exit_code] { exit_code = validate(*flags); });
}

}  // namespace weft
