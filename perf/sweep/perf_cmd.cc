// `weft perf COLLECTIVE`: times a collective over a range of sizes, as nccl-tests does, and checks
// every result bit by bit.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "coll/jobs/report.h"
#include "coll/jobs/session.h"
#include "coll/runtime/calibrate.h"
#include "perf/cli/commands.h"
#include "perf/cli/parse_errors.h"
#include "perf/sweep/perf_flags.h"
#include "perf/sweep/perf_run.h"
#include "transport/job/bootstrap.h"
#include "transport/launch/local_job.h"

namespace weft {
namespace {

void write_reports(const PerfFlags& flags, const PerfReport& report, const NcclRun& nccl) {
  if (!flags.json.empty()) write_report(flags.json, to_json(report).dump(2) + "\n");
  if (!flags.nccl_json.empty())
    write_report(flags.nccl_json, to_nccl_json(report, nccl).dump(1) + "\n", "-J");
}

int perf(const PerfFlags& flags) {
  (void)plan_of(flags);  // before any rank is started
  (void)groups_from_environment(1);
  declared_rail_gbps(flags.job.rail_gbps);
  if (!launched()) {
    check_report(flags.json);
    check_report(flags.nccl_json, "-J");
  }
  PerfReport report;
  NcclRun nccl;
  return run_job(
      "perf", flags.job,
      [&](World& world) {
        check_report(world, flags.json);
        check_report(world, flags.nccl_json, "-J");
        const int code = PerfRun(world, flags, report, nccl).run();
        if (world.rank() == 0) write_reports(flags, report, nccl);
        return code;
      },
      [&](Rank me, const Status& failure) {
        if (me != speaker(failure.rank()) && job_from_environment().size > 1) return;
        fmt::print(stderr, "weft perf: {}\n", failure.to_string());
        report.failure = failure;
        nccl.ended = time_stamp();
        write_reports(flags, report, nccl);
      });
}

}  // namespace

void add_perf(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<PerfFlags>();
  CLI::App* command =
      app.add_subcommand("perf", "time a collective and check its results, or pairs (bw, lat)");
  add_perf_flags(*command, *flags);
  command->footer("Example: weft perf all_reduce -N 4 -b 8 -e 1M -f 16 -n 20");
  add_pair_tests(*command, exit_code);
  command->callback([command, flags, &exit_code] {
    if (!command->get_subcommands().empty()) return;
    if (flags->collective.empty()) throw CLI::RequiredError("collective, bw or lat");
    warn(settle(*command, *flags));
    exit_code = perf(*flags);
  });
}

}  // namespace weft
