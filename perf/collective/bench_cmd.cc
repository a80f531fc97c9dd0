// `weft bench`: runs scripts. perf/peers/compare builds other libraries and runs their collectives
// next to weft's; perf/peers/choice compares `auto` with the best fixed algorithm. This file
// declares their options and passes them on verbatim.
#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "coll/jobs/report.h"
#include "coll/jobs/session.h"
#include "perf/cli/commands.h"
#include "perf/cli/scripts.h"
#include "topo/base/status.h"

namespace weft {
namespace {

// An option of a script, which uses its longest name. `type` is empty for a flag.
struct ScriptOption {
  const char *names, *type, *about;
};

constexpr ScriptOption kPeerOptions[] = {
    {"--scenario", "TEXT", "shm: ranks of this host; netlab: hosts of namespaces (needs root)"},
    {"-N,--ranks", "INT ...", "numbers of ranks, with shm (default: 2,4,8)"},
    {"--layouts", "TEXT",
     "labs, as hosts x ranks per host x rails @ Mbit/s, with netlab (default: "
     "2x1x1@400,4x1x1@400,8x1x1@400,4x2x2@200,4x2x2@400)"},
    {"--sizes", "TEXT", "bytes of the whole buffer: 8,16K,64M (default: by collective)"},
    {"--collectives", "TEXT",
     "default: all_reduce,all_gather,reduce_scatter,broadcast; also all_to_all"},
    {"--in-place", "", "input and output are one buffer"},
    {"--back-to-back", "", "no barrier between operations"},
    {"--targets", "", "exactly the cases that have a target, in place and back to back included"},
    {"--only", "TEXT", "these contenders only (names as in the tables)"},
    {"--peers-only", "", "leave weft out"},
    {"--rounds", "INT", "interleaved runs of each (default: 5)"},
    {"--scale", "FLOAT", "times the usual iterations"},
    {"--budget-s", "FLOAT", "seconds of a peer's run (default: 2; netlab: 15)"},
    {"--limit-s", "FLOAT", "seconds that a run may take (default: 180)"},
    {"--install", "", "install missing packages (needs root)"},
    {"--build", "TEXT", "where the peers' drivers are built (default: in the user's cache)"},
    {"--weft", "TEXT", "the weft program (default: this one)"},
};

constexpr ScriptOption kChoiceOptions[] = {
    {"-N,--ranks", "INT ...", "numbers of ranks in shared memory; empty: none (default: 2,3,4,8)"},
    {"--layouts", "TEXT",
     "labs, as hosts x ranks per host x rails; empty: none (default: "
     "2x1x1,3x1x1,4x1x1,4x2x1,2x1x2,3x1x2,4x1x2,4x2x2)"},
    {"--rate", "TEXT", "rate of a lab's rail (default: 400mbit)"},
    {"--collective", "TEXT", "which one (default: all_reduce)"},
    {"-b,--begin", "TEXT", "first size (default: 8)"},
    {"-e,--end", "TEXT", "last size (default: 64M)"},
    {"-f,--factor", "INT", "from size to size (default: 4)"},
    {"--rounds", "INT", "rounds, in turns; medians count (default: 5)"},
    {"--budget-ms", "INT", "milliseconds of one algorithm in one round (default: 20)"},
    {"--limit-s", "FLOAT", "seconds of one layout (default: 1800)"},
    {"--weft", "TEXT", "the weft program (default: this one)"},
};

// The given options, in the script's syntax.
std::vector<std::string> given(const CLI::App& command, const std::string& json) {
  std::vector<std::string> words;
  for (const CLI::Option* option : command.get_options()) {
    if (option->count() == 0) continue;
    const std::string name = "--" + option->get_lnames().front();
    if (name == "--json")
      words.push_back(name + "=" + json);
    else if (option->get_items_expected_max() == 0)
      words.push_back(name);
    else
      words.push_back(name + "=" + (option->results().empty() ? "" : option->results().front()));
  }
  return words;
}

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
  const auto add = [&](const char* name, const char* about, const char* script, auto& options,
                       const char* schema, const char* example) {
    auto* command = bench->add_subcommand(name, about);
    section(*command, "What is run");
    // The script parses the values; CLI11 only checks their number.
    const auto values = std::make_shared<std::vector<std::string>>(std::size(options));
    const auto json = std::make_shared<std::string>();
    std::size_t i = 0;
    for (const ScriptOption& o : options) {
      if (*o.type == '\0')
        command->add_flag(o.names, o.about);
      else
        command->add_option(o.names, (*values)[i], o.about)->type_name(o.type);
      ++i;
    }
    section(*command, "Output");
    add_json_option(*command, *json, schema);
    command->footer(example);
    command->callback(
        [command, script, values, json] { run_script(script, given(*command, *json)); });
  };
  add("peers", "Open MPI, MPICH and Gloo next to weft", "perf/peers/compare", kPeerOptions,
      "weft.peers/1", "Example: weft bench peers -N 2,4 --sizes 8,1M --rounds 3");
  add("choice", "`auto` next to the best fixed algorithm", "perf/peers/choice", kChoiceOptions,
      "weft.tune/1, the rows of each layout",
      "Example: weft bench choice -N 2,4 --layouts '' -e 1M");
}

}  // namespace weft
