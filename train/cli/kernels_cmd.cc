// `weft bench kernels`: times the kernels of the device backend. Trains nothing.
#include <CLI/CLI.hpp>
#include <memory>

#include "coll/jobs/session.h"
#include "topo/base/exit_code.h"
#include "train/cli/commands.h"
#include "train/cli/options.h"
#include "train/device/bench.h"
#include "train/device/context.h"

namespace weft {

void add_kernels(CLI::App& bench, int& exit_code) {
  const auto flags = std::make_shared<train::KernelBench>();
  CLI::App* command = bench.add_subcommand(
      "kernels", "the trainer's kernels on a GPU, against its memory and its peak");
  const OptionAdder add(*command);
  add("--rows", flags->rows, "rows: samples x positions", CLI::PositiveNumber);
  add("--repeat", flags->repeat, "runs of each", CLI::PositiveNumber);
  add.unset("--peak-tflops", flags->peaks.tflops,
            "peak of the GPU in TFLOP/s (default: dense bf16 by its name)", CLI::PositiveNumber);
  add.unset("--peak-gbs", flags->peaks.gb_per_s,
            "rate of the GPU's memory in GB/s (default: by its name)", CLI::PositiveNumber);
  command->footer("Example: weft bench kernels --rows 16384");
  command->callback([flags, &exit_code] {
    train::DeviceContext::make(0);
    train::bench_kernels(*flags);
    exit_code = kExitOk;
  });
}

}  // namespace weft
