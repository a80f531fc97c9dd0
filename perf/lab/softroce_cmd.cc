// `weft lab softroce`: runs a command as the ranks of several hosts with RDMA devices, in the guest
// of the script tests/lab/softroce. Outside the guest it boots one that runs this command line
// again; inside it starts the ranks. Does not know how the scripts make the lab.
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "coll/jobs/report.h"
#include "perf/cli/commands.h"
#include "perf/cli/parse_errors.h"
#include "perf/cli/scripts.h"
#include "perf/lab/lab_ports.h"
#include "perf/lab/lab_ranks.h"
#include "topo/base/status.h"

namespace weft {
namespace {

// Rank 0 listens here; the guest is nobody else's.
constexpr int kGuestRootPort = 7100;
// A guest that was asked to end has this long before it is ended.
constexpr std::chrono::seconds kGuestGrace{10};

struct SoftroceOptions {
  int hosts = 2;
  int ranks_per_host = 1;
  int rails = 2;
  std::string rate;
  int mtu = 4500;
  std::string out;
  int timeout_s = 600;
  bool once = false;
  bool summary = false;
  std::string counters_file;
  int grace_ms = 60000;
  std::vector<std::string> command;
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

LabFacts guest_facts() {
  LabFacts facts;
  std::stringstream words(ask_guest("status"));
  for (std::string word; words >> word;) {
    const std::string value = word.substr(word.find('=') + 1);
    if (word.starts_with("hosts=")) facts.hosts = std::stoi(value);
    if (word.starts_with("rails=")) facts.rails = std::stoi(value);
    if (word.starts_with("rate=") && value != "none") facts.rates = split_list(value);
  }
  if (facts.rates.size() == 1) {
    facts.rates.resize(static_cast<std::size_t>(facts.rails), facts.rates.front());
  }
  return facts;
}

std::vector<RankCommand> make_ranks(const LabFacts& facts, const SoftroceOptions& options) {
  std::vector<std::string> command = options.command;
  if (command.front() == "weft") command.front() = this_binary();
  if (options.once) return {{command, {}, -1}};
  // Of unequal rails the mean: rails x rate is then still what a host can send.
  double gbps = 0;
  for (int r = 0; r < options.rails && !facts.rates.empty(); ++r)
    gbps += lab_gbps_of(facts.rates[static_cast<std::size_t>(r)]) / options.rails;

  const std::string secret = random_secret();
  std::vector<RankCommand> ranks;
  for (int h = 0; h < options.hosts; ++h) {
    std::vector<std::string> rails;
    for (int r = 0; r < options.rails; ++r) rails.push_back(fmt::format("rxe_h{}r{}", h, r));
    for (int l = 0; l < options.ranks_per_host; ++l) {
      RankCommand rank;
      rank.argv = command;
      rank.environment = {
          {"WEFT_RANK", std::to_string(ranks.size())},
          {"WEFT_SIZE", std::to_string(options.hosts * options.ranks_per_host)},
          {"WEFT_LOCAL_RANK", std::to_string(l)},
          {"WEFT_ROOT", fmt::format("127.0.0.1:{}", kGuestRootPort)},
          {"WEFT_SECRET", secret},
          {"WEFT_HOST_ID", fmt::format("h{}", h)},
          {"WEFT_RAILS", fmt::format("{}", fmt::join(rails, ","))},
      };
      if (gbps > 0) rank.environment.emplace_back("WEFT_RAIL_GBPS", fmt::format("{:.6g}", gbps));
      rank.core = h;  // a host is a core here, as far as there are any
      ranks.push_back(std::move(rank));
    }
  }
  return ranks;
}

int run_inside(const SoftroceOptions& options) {
  const LabFacts facts = guest_facts();
  if (options.hosts > facts.hosts || options.rails > facts.rails) {
    throw Error(
        fmt::format("--hosts {} --rails {}: this guest was started with {} hosts and {} rails",
                    options.hosts, options.rails, facts.hosts, facts.rails));
  }
  std::ofstream counters_file = open_counters(options.counters_file);
  const SignalGuard guard;
  const std::vector<LabPort> before = parse_ports(ask_guest("counters"));
  const auto start = std::chrono::steady_clock::now();
  const int code =
      run_ranks(make_ranks(facts, options), std::chrono::milliseconds(options.grace_ms));
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  const std::vector<LabPort> ports = difference(parse_ports(ask_guest("counters")), before);
  if (counters_file.is_open()) {
    write_lab_report(counters_file, options.counters_file,
                     {facts, options.ranks_per_host, options.command, ports, took.count(), code});
  }
  if (options.summary) print_ports(ports);
  return code;
}

// The same command line, in a guest of its own.
int run_in_new_guest(const SoftroceOptions& options) {
  for (const std::string& rate : split_list(options.rate)) lab_gbps_of(rate);
  std::vector<std::string> argv = {find_script("tests/lab/softroce"), "run"};
  const auto add = [&argv](const std::string& flag, const std::string& value) {
    argv.insert(argv.end(), {flag, value});
  };
  add("--hosts", std::to_string(options.hosts));
  add("--rails", std::to_string(options.rails));
  add("--mtu", std::to_string(options.mtu));
  add("--timeout", std::to_string(options.timeout_s));
  if (!options.rate.empty()) add("--rate", options.rate);
  if (!options.out.empty()) add("--out", options.out);
  argv.insert(argv.end(), {"--", this_binary(), "lab", "softroce"});
  add("--hosts", std::to_string(options.hosts));
  add("--rails", std::to_string(options.rails));
  add("--ppn", std::to_string(options.ranks_per_host));
  add("--grace-ms", std::to_string(options.grace_ms));
  if (options.once) argv.emplace_back("--once");
  if (options.summary) argv.emplace_back("--summary");
  if (!options.counters_file.empty()) add("--json", options.counters_file);
  argv.emplace_back("--");
  argv.insert(argv.end(), options.command.begin(), options.command.end());
  const SignalGuard guard;
  return run_ranks({{argv, {}, -1}}, kGuestGrace);
}

}  // namespace

void add_softroce(CLI::App& lab, int& exit_code) {
  auto* softroce = lab.add_subcommand(
      "softroce",
      "run a command as the ranks of hosts with RDMA devices (Soft-RoCE), in a guest of QEMU");
  static SoftroceOptions options;
  softroce->add_option("--hosts", options.hosts, "hosts")
      ->check(CLI::Range(1, 32))
      ->capture_default_str();
  softroce->add_option("--ppn", options.ranks_per_host, "ranks per host")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  softroce
      ->add_option("--rails", options.rails, "RDMA devices per host, each on a switch of its own")
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
  add_json_option(*softroce, options.counters_file, "weft.lab/1: the bytes that crossed each port");
  softroce->add_flag("--summary", options.summary, "print the bytes that crossed each port");
  softroce
      ->add_option("--grace-ms", options.grace_ms,
                   "milliseconds that ranks may run on after the first one failed")
      ->check(CLI::Range(0, 86400000))
      ->capture_default_str();
  softroce
      ->add_option("command", options.command,
                   "-- and the command of every rank; `weft` is this binary")
      ->required();
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
