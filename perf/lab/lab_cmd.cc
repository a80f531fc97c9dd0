// `weft lab netlab`: runs a command as the ranks of several hosts, which are network namespaces.
// Sets the ranks' environment and reports the bytes that crossed the ports. The script
// tests/lab/netlab makes the hosts.
#include <fmt/core.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "coll/jobs/report.h"
#include "perf/cli/commands.h"
#include "perf/cli/scripts.h"
#include "perf/lab/lab_job.h"
#include "perf/lab/lab_ranks.h"
#include "topo/base/status.h"

namespace weft {
namespace {

// Rank 0 listens on this port; its network namespace has no other users.
constexpr int kRootPort = 7100;

struct LabOptions {
  LabJob job;
  std::string rate = "400mbit";
  std::string name;
  std::string use;
  bool keep = false;
};

// A lab: either created and removed by this object, or one that was already up.
class Lab {
 public:
  explicit Lab(const LabOptions& options) : script_(find_script("tests/lab/netlab")) {
    if (!options.use.empty()) {
      name_ = options.use;
      return;
    }
    name_ = options.name.empty() ? fmt::format("p{}", getpid()) : options.name;
    const std::string owner = options.keep ? "none" : std::to_string(getpid());
    const int code = run_helper(
        {script_, "up", "--lab", name_, "--hosts", std::to_string(options.job.hosts), "--rails",
         std::to_string(options.job.rails), "--rate", options.rate, "--owner", owner});
    if (code != 0) throw Error(fmt::format("netlab up ended with code {}", code));
    owned_ = !options.keep;
  }
  ~Lab() {
    if (owned_ && run_helper({script_, "down", "--lab", name_}) != 0) {
      fmt::print(stderr, "weft: lab {} could not be removed: try {} down --lab {}\n", name_,
                 script_, name_);
    }
  }
  Lab(const Lab&) = delete;
  Lab& operator=(const Lab&) = delete;

  const std::string& name() const { return name_; }
  const std::string& script() const { return script_; }

  LabFacts facts() const { return parse_facts(ask("status")); }
  std::vector<LabPort> counters() const { return parse_ports(ask("counters")); }

 private:
  std::string ask(const std::string& question) const {
    std::string answer;
    if (run_helper({script_, question, "--lab", name_}, &answer) != 0) {
      throw Error(fmt::format("netlab {} --lab {} failed", question, name_));
    }
    return answer;
  }

  std::string script_, name_;
  bool owned_ = false;
};

int run_lab(const LabOptions& options) {
  if (geteuid() != 0) {
    throw Error("lab netlab makes network namespaces and needs root: run it with sudo");
  }
  for (const std::string& rate : split_list(options.rate)) lab_gbps_of(rate);
  if (!options.job.counters_file.empty()) check_report(options.job.counters_file);
  const SignalGuard guard;
  const Lab lab(options);
  const LabFacts facts = lab.facts();
  LabJob job = options.job;
  job.hosts = facts.hosts;
  job.rails = facts.rails;
  const LabHosts hosts = {
      fmt::format("10.0.0.1:{}", kRootPort), [](int host) { return fmt::format("h{}", host + 1); },
      [](int, int rail) { return fmt::format("rail{}", rail); },
      [&](int host) {
        return std::vector<std::string>{lab.script(), "exec", "--lab", lab.name(),
                                        fmt::format("h{}", host + 1)};
      }};
  const int code =
      run_counted(job, facts, ranks_of(job, facts.rates, hosts), [&] { return lab.counters(); });
  if (options.keep) {
    fmt::print(stderr,
               "weft: lab {0} stays up: weft lab netlab --use {0} -- CMD runs in it, {1} exec "
               "--lab {0} h1 CMD in one host, {1} down --lab {0} removes it\n",
               lab.name(), lab.script());
  }
  return code;
}

// Reads the list from the script, so that the help always matches the script.
std::string faults() {
  std::string list;
  try {
    run_helper({find_script("tests/lab/netlab"), "fault"}, &list);
  } catch (const Error& e) {
    list = e.what();
  }
  return list;
}

void add_fault(CLI::App& netlab, int& exit_code) {
  CLI::App* fault =
      netlab.add_subcommand("fault", "break something in a lab that is up; none: print the faults");
  const auto lab = std::make_shared<std::string>();
  const auto words = std::make_shared<std::vector<std::string>>();
  fault->add_option("--lab", *lab, "name of the lab (default: WEFT_LAB)");
  fault->add_option("words", *words, "KIND PLACE STRENGTH, as below");
  fault->footer(
      [] { return "Example: weft lab netlab fault --lab demo rate h2r1:tx 50%\n\n" + faults(); });
  fault->callback([lab, words, &exit_code] {
    std::vector<std::string> argv = {find_script("tests/lab/netlab"), "fault"};
    if (!lab->empty()) argv.insert(argv.end(), {"--lab", *lab});
    argv.insert(argv.end(), words->begin(), words->end());
    exit_code = run_helper(argv);
  });
}

}  // namespace

void add_lab(CLI::App& app, int& exit_code) {
  auto* lab = app.add_subcommand("lab", "emulated fabrics on this machine");
  lab->require_subcommand(1);
  auto* netlab = lab->add_subcommand(
      "netlab", "run a command as the ranks of hosts with real, slow, separate links (needs root)");
  static LabOptions options;
  auto* hosts = netlab->add_option("--hosts", options.job.hosts, "hosts (default: 2)")
                    ->check(CLI::Range(1, 250));
  netlab->add_option("--ppn", options.job.ranks_per_host, "ranks per host (default: 1)")
      ->check(CLI::Range(1, 256));
  auto* rails = netlab
                    ->add_option("--rails", options.job.rails,
                                 "ports per host, each on a switch of its own (default: 1)")
                    ->check(CLI::Range(1, 64));
  auto* rate =
      netlab->add_option("--rate", options.rate,
                         "rate of a port, or of each rail: 400mbit,100mbit (default: 400mbit)");
  auto* name = netlab->add_option("--name", options.name, "name of the lab (a-z, 0-9, _)");
  auto* keep = netlab->add_flag("--keep", options.keep, "leave the lab up at the end");
  netlab->add_option("--use", options.use, "run in this lab, which is up, and leave it up")
      ->excludes(hosts)
      ->excludes(rails)
      ->excludes(rate)
      ->excludes(name)
      ->excludes(keep);
  add_job_options(*netlab, options.job);
  netlab->footer(
      "Example: weft lab netlab --hosts 4 --ppn 2 --rails 2 -- weft perf all_reduce -e 1M\n"
      "Faults in a lab that --keep left up: weft lab netlab fault --help. The script "
      "tests/lab/netlab "
      "(share/weft/netlab where weft is installed) has more commands.");
  add_fault(*netlab, exit_code);
  add_softroce(*lab, exit_code);
  netlab->callback([netlab, &exit_code] {
    if (!netlab->get_subcommands().empty()) return;
    if (options.job.command.empty()) throw CLI::RequiredError("command");
    exit_code = run_lab(options);
  });
}

}  // namespace weft
