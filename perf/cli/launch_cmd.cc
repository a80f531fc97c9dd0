// `weft launch`: starts a program once per rank on this host.
#include <fmt/format.h>

#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "perf/cli/commands.h"
#include "transport/launch/local_job.h"

namespace weft {
namespace {

struct LaunchArguments {
  LaunchOptions options;
  int timeout_ms = 0;
  int grace_ms = 5000;
  std::string host_ids;
  std::vector<std::string> command;
};

int launch(LaunchArguments& a) {
  a.options.name = "weft launch";
  a.options.timeout = std::chrono::milliseconds(a.timeout_ms);
  a.options.grace = std::chrono::milliseconds(a.grace_ms);
  std::stringstream ids(a.host_ids);
  for (std::string id; std::getline(ids, id, ',');) a.options.host_ids.push_back(id);
  return run_local_job(a.command, a.options);
}

}  // namespace

void add_launch(CLI::App& app, int& exit_code) {
  auto* command =
      app.add_subcommand("launch", "Start a program as the ranks of a job on this host");
  const auto a = std::make_shared<LaunchArguments>();
  command->add_option("-N,--ranks", a->options.ranks, "Number of ranks")->required();
  auto* ids =
      command->add_option("--host-ids", a->host_ids, "Emulated host of each rank, as in a,a,b,b");
  command->add_option("--hosts", a->options.hosts, "Emulate this many hosts, in blocks of ranks")
      ->excludes(ids);
  command->add_option("--rails", a->options.rails, "Emulate this many rails per host");
  command->add_option("--timeout-ms", a->timeout_ms, "Deadline of the rendezvous (WEFT_TIMEOUT_MS)")
      ->check(CLI::PositiveNumber);
  command
      ->add_option("--grace-ms", a->grace_ms,
                   "After a rank failed, how long the others may take to end by themselves")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_flag("--bind,!--no-bind", a->options.bind,
                    "Give each rank its share of the cores (default)");
  command->add_flag("--tag", a->options.tag, "Put [rank] before each line of output");
  // Behind "--" everything is the program's, also what looks like an option of ours.
  command->add_option("program", a->command, "What to run, and its arguments, after --")
      ->required()
      ->expected(1, CLI::detail::expected_max_vector_size);
  command->footer("weft launch -N 4 [options] -- program arguments");
  command->callback([a, &exit_code] { exit_code = launch(*a); });
}

}  // namespace weft
