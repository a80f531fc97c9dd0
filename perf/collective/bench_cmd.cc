// `weft bench`: runs scripts. perf/peers/compare builds other libraries and runs their collectives
// next to weft's, perf/peers/choice compares `auto` with the best fixed algorithm.
#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "perf/cli/commands.h"
#include "perf/cli/scripts.h"
#include "topo/base/status.h"

namespace weft {
namespace {

[[noreturn]] void run_script(const char* script, const std::vector<std::string>& arguments) {
  std::vector<std::string> words = {find_script(script), "--weft", this_binary()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  execv(argv[0], argv.data());
  throw Error(fmt::format("{}: {} (is python3 installed?)", words[0], std::strerror(errno)));
}

}  // namespace

void add_bench(CLI::App& app, int&) {
  auto* bench = app.add_subcommand("bench", "benchmarks: against other libraries, and of `auto`");
  bench->require_subcommand(1);
  const auto add = [&](const char* name, const char* about, const char* script) {
    auto* command = bench->add_subcommand(name, about);
    // The script knows its options, help included.
    command->set_help_flag();
    command->prefix_command();
    command->callback([command, script] { run_script(script, command->remaining()); });
  };
  add("peers", "Open MPI, MPICH and Gloo next to weft (--help tells the options)",
      "perf/peers/compare");
  add("choice", "`auto` next to the best fixed algorithm (--help tells the options)",
      "perf/peers/choice");
}

}  // namespace weft
