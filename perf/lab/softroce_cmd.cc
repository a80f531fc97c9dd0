// `weft lab softroce`: runs a command as the ranks of several hosts with RDMA devices, in the guest
// of the script tests/lab/softroce. Outside a guest, boots a guest that runs the same command line;
// inside, starts the ranks. The scripts make the lab.
#include <fmt/core.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include "perf/cli/commands.h"
#include "perf/cli/parse_errors.h"
#include "perf/cli/scripts.h"
#include "perf/lab/lab_job.h"
#include "perf/lab/lab_ranks.h"
#include "topo/base/status.h"

namespace weft {
namespace {

// Rank 0 listens on this port; the guest has no other users.
constexpr int kGuestRootPort = 7100;
// Time between the request to shut the guest down and its kill.
constexpr std::chrono::seconds kGuestGrace{10};

struct SoftroceOptions {
  LabJob job;
  std::string rate;
  int mtu = 4500;
  std::string out;
  int timeout_s = 600;
  bool once = false;
};

bool inside_guest() {
  const char* guest = std::getenv("WEFT_LAB_GUEST");
  return guest != nullptr && std::string(guest) == "softroce";
}

std::string ask_guest(const std::string& question) {
  std::string answer;
  if (run_helper({"softroce", question}, &answer) != 0) {
    throw Error(fmt::format("softroce {} failed in the guest", question));
  }
  return answer;
}

int run_inside(const SoftroceOptions& options) {
  const LabJob& job = options.job;
  const LabFacts facts = parse_facts(ask_guest("status"));
  if (job.hosts > facts.hosts || job.rails > facts.rails) {
    throw Error(
        fmt::format("--hosts {} --rails {}: this guest was started with {} hosts and {} rails",
                    job.hosts, job.rails, facts.hosts, facts.rails));
  }
  const SignalGuard guard;
  const LabHosts hosts = {fmt::format("127.0.0.1:{}", kGuestRootPort),
                          [](int host) { return fmt::format("h{}", host); },
                          [](int host, int rail) { return fmt::format("rxe_h{}r{}", host, rail); },
                          [](int) { return std::vector<std::string>(); }};
  std::vector<RankCommand> ranks = ranks_of(job, facts.rates, hosts);
  if (options.once) ranks = {{ranks.front().argv, {}, -1}};
  return run_counted(job, facts, ranks, [] { return parse_ports(ask_guest("counters")); });
}

// Runs the same command line in a new guest.
int run_in_new_guest(const SoftroceOptions& options) {
  for (const std::string& rate : split_list(options.rate)) lab_gbps_of(rate);
  std::vector<std::string> argv = {find_script("tests/lab/softroce"), "run"};
  const auto add = [&argv](const std::string& flag, const std::string& value) {
    argv.insert(argv.end(), {flag, value});
  };
  add("--hosts", std::to_string(options.job.hosts));
  add("--rails", std::to_string(options.job.rails));
  add("--mtu", std::to_string(options.mtu));
  add("--timeout", std::to_string(options.timeout_s));
  if (!options.rate.empty()) add("--rate", options.rate);
  if (!options.out.empty()) add("--out", options.out);
  argv.insert(argv.end(), {"--", this_binary(), "lab", "softroce"});
  add("--hosts", std::to_string(options.job.hosts));
  add("--rails", std::to_string(options.job.rails));
  add("--ppn", std::to_string(options.job.ranks_per_host));
  add("--grace-ms", std::to_string(options.job.grace_ms));
  if (options.once) argv.emplace_back("--once");
  if (options.job.summary) argv.emplace_back("--summary");
  if (!options.job.counters_file.empty()) add("--json", options.job.counters_file);
  argv.emplace_back("--");
  argv.insert(argv.end(), options.job.command.begin(), options.job.command.end());
  const SignalGuard guard;
  return run_ranks({{argv, {}, -1}}, kGuestGrace);
}

}  // namespace

void add_softroce(CLI::App& lab, int& exit_code) {
  auto* softroce = lab.add_subcommand(
      "softroce",
      "run a command as the ranks of hosts with RDMA devices (Soft-RoCE), in a guest of QEMU");
  static SoftroceOptions options;
  options.job.rails = 2;
  softroce->add_option("--hosts", options.job.hosts, "hosts")
      ->check(CLI::Range(1, 32))
      ->capture_default_str();
  softroce->add_option("--ppn", options.job.ranks_per_host, "ranks per host")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  softroce
      ->add_option("--rails", options.job.rails,
                   "RDMA devices per host, each on a switch of its own")
      ->check(CLI::Range(1, 16))
      ->capture_default_str();
  softroce->add_option(
      "--rate", options.rate,
      "rate of a port, or of each rail: 160mbit,40mbit (default: as fast as it goes)");
  softroce->add_option("--mtu", options.mtu, "MTU of the ports in bytes")
      ->check(CLI::Range(576, 65535))
      ->capture_default_str();
  softroce->add_option("--out", options.out,
                       "folder that shows what the guest writes to /out; made where it is missing");
  softroce->add_option("--limit-s", options.timeout_s, "seconds until the guest is ended")
      ->check(CLI::Range(1, 86400))
      ->capture_default_str();
  softroce->add_flag("--once", options.once, "run the command once in the guest, not as ranks");
  add_job_options(*softroce, options.job);
  softroce->get_option("command")->required();
  softroce->footer(
      "Example: weft lab softroce --hosts 2 --rails 2 -- weft perf all_reduce --transport verbs");
  softroce->callback([softroce, &exit_code] {
    if (inside_guest())
      refuse_given(*softroce, {"--rate", "--mtu", "--limit-s", "--out"},
                   "this guest is up already");
    else if (options.once)
      refuse_given(*softroce, {"--ppn"}, "--once starts one process");
    exit_code = inside_guest() ? run_inside(options) : run_in_new_guest(options);
  });
}

}  // namespace weft
