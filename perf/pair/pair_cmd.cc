// `weft perf bw` and `lat`: bandwidth and latency of pairs, with perftest's flags and columns.
#include <memory>
#include <string>

#include "perf/cli/commands.h"
#include "perf/pair/pair_options.h"
#include "perf/pair/pair_session.h"

namespace weft {

void add_pair_tests(CLI::App& perf, int& exit_code) {
  const auto add = [&](PairTest test, const char* title) {
    auto options = std::make_shared<PairOptions>();
    options->test = test;
    CLI::App* command = perf.add_subcommand(name(test), title);
    add_pair_flags(*command, *options);
    const std::string me = std::string("weft perf ") + name(test);
    command->footer("Example, server: " + me + " -d mlx5_0     client: " + me +
                    " -d mlx5_0 HOST\n" + "Many pairs: mpirun " + me + " --pairs rail");
    command->callback([options, &exit_code] { exit_code = run_pairs(*options); });
  };
  add(PairTest::kBandwidth, "bandwidth between two processes, or many pairs of them");
  add(PairTest::kLatency, "latency between two processes, or many pairs of them");
}

}  // namespace weft
