// `weft launch`: starts a program once per rank on this host.
#include <fmt/format.h>

#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "perf/cli/commands.h"
#include "perf/cli/scripts.h"
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
  if (a.command.front() == "weft") a.command.front() = this_binary();  // as the labs do
  return run_local_job(a.command, a.options);
}

}  // namespace

void add_launch(CLI::App& app, int& exit_code) {
  auto* command =
      app.add_subcommand("launch", "start a program as the ranks of a job on this host");
  const auto a = std::make_shared<LaunchArguments>();
  command->add_option("-N,--ranks", a->options.ranks, "number of ranks")->required();
  auto* ids =
      command->add_option("--host-ids", a->host_ids, "emulated host of each rank, as in a,a,b,b");
  command->add_option("--hosts", a->options.hosts, "emulate this many hosts, in blocks of ranks")
      ->excludes(ids);
  command->add_option("--rails", a->options.rails, "emulate this many rails per host");
  command->add_option("--timeout-ms", a->timeout_ms, "deadline of the rendezvous (WEFT_TIMEOUT_MS)")
      ->check(CLI::PositiveNumber);
  command
      ->add_option("--grace-ms", a->grace_ms,
                   "after a rank failed, how long the others may take to end by themselves")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_flag("--bind,!--no-bind", a->options.bind,
                    "give each rank its share of the cores (default)");
  command->add_flag("--tag", a->options.tag, "put [rank] before each line of output");
  // Everything after "--" belongs to the program, even if it looks like an option of weft.
  command
      ->add_option("program", a->command,
                   "what to run, and its arguments, after --; `weft` is this binary")
      ->required()
      ->expected(1, CLI::detail::expected_max_vector_size);
  command->footer("Example: weft launch -N 4 -- ./program its arguments");
  command->callback([a, &exit_code] { exit_code = launch(*a); });
}

}  // namespace weft
