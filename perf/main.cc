// The `weft` command: command line and exit codes. Each command lives in a file of its own.
#include <cstdio>
#include <string>

#include "perf/commands.h"
#include "topo/status.h"
#include "train/commands.h"

int main(int argc, char** argv) {
  CLI::App app{"weft: can this fabric be trusted, and how fast do gradients move over it?"};
  app.require_subcommand(1);
  int exit_code = weft::kExitOk;
  weft::add_perf(app, exit_code);
  weft::add_validate(app, exit_code);
  weft::add_explain(app, exit_code);
  weft::add_sim(app, exit_code);
  weft::add_topo(app, exit_code);
  weft::add_launch(app, exit_code);
  weft::add_lab(app, exit_code);
  weft::add_bench(app, exit_code);
  weft::add_doctor(app, exit_code);
  weft::add_trace(app, exit_code);
  weft::add_tune(app, exit_code);
  weft::add_train(app, exit_code);
  weft::add_plan(app, exit_code);
  weft::add_cost(app, exit_code);
  if (argc > 1 && argv[1][0] != '-') {  // CLI11 would only say that a command is missing
    std::string names;
    bool known = false;
    for (const CLI::App* command : app.get_subcommands([](CLI::App*) { return true; })) {
      names += " " + command->get_name();
      known = known || command->check_name(argv[1]);
    }
    if (!known) {
      std::fprintf(stderr, "weft: no command '%s'; there are:%s\n", argv[1], names.c_str());
      return weft::kExitError;
    }
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? weft::kExitOk : weft::kExitError;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "weft: %s\n", e.what());
    return weft::kExitError;
  }
  return exit_code;
}
