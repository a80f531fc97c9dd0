// The `weft` command: parses the command line, sets exit codes. Each command has its own file.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "perf/cli/commands.h"
#include "perf/cli/completion.h"
#include "perf/cli/help.h"
#include "perf/cli/mark.h"
#include "perf/cli/parse_errors.h"
#include "perf/cli/spellings.h"
#include "perf/cli/variables.h"
#include "topo/base/status.h"
#include "train/cli/commands.h"
#include "transport/launch/closed_pipe.h"
#include "transport/loaded/loaded.h"

namespace {

// If a standard stream is closed, the next file or socket would get the stream's descriptor and its
// output.
void open_missing_streams() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (fcntl(fd, F_GETFD) < 0 && errno == EBADF) (void)open("/dev/null", O_RDWR);
  }
}

// Fails if standard output could not be written, such as to a full disk.
int after_output(int exit_code) {
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return exit_code;
  std::fprintf(stderr, "weft: standard output cannot be written%s%s: what it got is not complete\n",
               errno != 0 ? ": " : "", errno != 0 ? std::strerror(errno) : "");
  return weft::kExitError;
}

// Returns the version, and for each optional library its file or why it could not be loaded.
std::string version() {
  std::string text = "weft " WEFT_VERSION;
  for (const weft::LibraryState& l : weft::libraries())
    text += "\n" + l.title + ": " + (l.why_not.empty() ? l.file : "none: " + l.why_not);
  return text;
}

}  // namespace

int main(int argc, char** argv) {
  open_missing_streams();
  weft::end_at_closed_pipe();
  CLI::App app{"weft: can this fabric be trusted, and how fast do gradients move over it?", "weft"};
  app.formatter(weft::help_formatter());
  app.require_subcommand(1);
  app.set_version_flag("--version", version, "Print the version and the libraries, and exit");
  int exit_code = weft::kExitOk;
  weft::add_perf(app, exit_code);
  weft::add_validate(app, exit_code);
  weft::add_explain(app, exit_code);
  weft::add_sim(app, exit_code);
  weft::add_topo(app, exit_code);
  weft::add_launch(app, exit_code);
  weft::add_replay(app, exit_code);
  weft::add_lab(app, exit_code);
  CLI::App* bench = app.add_subcommand("bench", "benchmarks of parts of weft");
  bench->require_subcommand(1);
  weft::add_doctor(app, exit_code);
  weft::add_trace(app, exit_code);
  weft::add_tune(app, exit_code);
  weft::add_drain(app, exit_code);
  weft::add_train(app, exit_code);
  weft::add_spiral(app, exit_code);
  weft::add_pipeline(app, exit_code);
  weft::add_kernels(*bench, exit_code);
  weft::add_plan(app, exit_code);
  weft::add_cost(app, exit_code);
  weft::add_completion(app, exit_code);
  weft::refuse_what_is_not_finite(app);
  app.footer("weft COMMAND --help lists a command's options.");  // last: commands would inherit it
  std::vector<char*> arguments(argv, argv + argc);
  std::string help = "--help";
  if (argc > 1 && std::string_view(argv[1]) == "help") {  // weft help perf: weft perf --help
    arguments.erase(arguments.begin() + 1);
    arguments.push_back(help.data());
  }
  weft::keep_mark(arguments);
  const std::vector<std::string> ignored = weft::take_foreign(arguments);
  argc = static_cast<int>(arguments.size());
  argv = arguments.data();
  if (argc == 1) {
    std::fputs(app.help().c_str(), stderr);
    return weft::kExitError;
  }
  if (argv[1][0] != '-') {  // CLI11's error would not name the word
    const auto commands = app.get_subcommands([](CLI::App*) { return true; });
    if (std::ranges::none_of(commands, [&](const auto* c) { return c->check_name(argv[1]); })) {
      std::fprintf(stderr, "weft: %s\n", weft::no_command(app, argv[1]).c_str());
      return weft::kExitError;
    }
  }
  if (std::getenv("WEFT_RANK") == nullptr) weft::warn(weft::misspelt_variables(environ), false);
  if (!ignored.empty()) weft::warn(ignored);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return after_output(app.exit(e));  // --help, --version
    std::fprintf(stderr, "%s\n", weft::explain_parse_error(app, e).c_str());
    return weft::kExitError;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "weft: %s\n", e.what());
    return weft::kExitError;
  }
  return after_output(exit_code);
}
