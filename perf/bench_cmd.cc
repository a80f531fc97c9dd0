// weft bench peers: hands over to perf/peers/compare, which builds and runs other libraries'
// collectives next to weft's.
#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "perf/commands.h"
#include "perf/scripts.h"
#include "topo/status.h"

namespace weft {
namespace {

[[noreturn]] void run_compare(const std::vector<std::string>& arguments) {
  std::vector<std::string> words = {find_script("perf/peers/compare"), "--weft", this_binary()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  execv(argv[0], argv.data());
  throw Error(fmt::format("{}: {} (is python3 installed?)", words[0], std::strerror(errno)));
}

}  // namespace

void add_bench(CLI::App& app, int&) {
  auto* bench = app.add_subcommand("bench", "Benchmarks against other libraries");
  bench->require_subcommand(1);
  auto* peers = bench->add_subcommand(
      "peers", "Open MPI, MPICH and Gloo next to weft (--help tells the options)");
  // The script knows its options, help included.
  peers->set_help_flag();
  peers->prefix_command();
  peers->callback([peers] { run_compare(peers->remaining()); });
}

}  // namespace weft
