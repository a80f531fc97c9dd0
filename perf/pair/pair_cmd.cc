// `weft perf bw` and `lat`: bandwidth and latency of pairs, with perftest's flags and columns.
#include <memory>
#include <string>

#include "perf/cli/commands.h"
#include "perf/cli/parse_errors.h"
#include "perf/pair/pair_options.h"
#include "perf/pair/pair_session.h"
#include "transport/launch/local_job.h"

namespace weft {
namespace {

// Refuses options that this kind of pair test would ignore.
void refuse_ignored(const CLI::App& command, const PairOptions& options) {
  if (options.op == "read")
    refuse_given(command, {"--inline_size"}, "reads cannot send inline data");
  if (options.server.empty() && launched()) {
    refuse_given(command, {"--port"}, "the ranks of a launched job connect by themselves");
    if (options.pairs != "random") refuse_given(command, {"--seed"}, "it is about --pairs random");
  } else {
    refuse_given(command, {"--pairs", "--seed"},
                 "a server and a client are one pair; weft launch and mpirun start many");
  }
}

}  // namespace

void add_pair_tests(CLI::App& perf, int& exit_code) {
  const auto add = [&](PairTest test, const char* title) {
    auto options = std::make_shared<PairOptions>();
    options->test = test;
    CLI::App* command = perf.add_subcommand(name(test), title);
    add_pair_flags(*command, *options);
    const std::string me = std::string("weft perf ") + name(test);
    command->footer("Example, server: " + me + " -d mlx5_0     client: " + me +
                    " -d mlx5_0 HOST\n" + "Both ends here: weft launch -N 2 -- " + me +
                    " --op shm\n" + "Many pairs: mpirun " + me + " --pairs rail");
    command->callback([command, options, &exit_code] {
      refuse_ignored(*command, *options);
      exit_code = run_pairs(*options);
    });
  };
  add(PairTest::kBandwidth, "bandwidth between two processes, or many pairs of them");
  add(PairTest::kLatency, "latency between two processes, or many pairs of them");
}

}  // namespace weft
