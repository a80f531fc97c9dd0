// Declares and reads the options of `weft perf COLLECTIVE`. Measures nothing.
#include "perf/sweep/perf_flags.h"

#include <fmt/format.h>

#include <map>

#include "coll/jobs/report.h"
#include "perf/cli/bytes.h"
#include "perf/cli/names.h"
#include "perf/cli/parse_errors.h"
#include "perf/sweep/perf_report.h"
#include "topo/base/status.h"
#include "transport/launch/local_job.h"

namespace weft {
namespace {

void add_sizes(CLI::App& command, PerfFlags& flags) {
  section(command, "Sizes and data");
  command.add_option("-b,--begin", flags.begin, "first size: bytes, 16K, 64M, 1G")
      ->capture_default_str();
  command.add_option("-e,--end", flags.end, "last size")->capture_default_str();
  command.add_option("-f,--factor", flags.factor, "from size to size, at least 2")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command.add_option("-i,--step", flags.step, "bytes from size to size, in place of -f");
  command.add_option("-d,--type", flags.type, dtype_names() + " or all")->capture_default_str();
  command.add_option("-o,--op", flags.op, redop_names() + " or all")->capture_default_str();
  command
      .add_option("-r,--root", flags.root,
                  "root of a broadcast, reduce, gather or scatter; all (or -1): each in turn")
      ->transform(CLI::Transformer(std::map<std::string, int>{{"all", -1}}))
      ->check(CLI::Range(-1, 1 << 30))
      ->capture_default_str();
  command
      .add_option("--buffers", flags.buffers,
                  "malloc, weft (mapped by all local ranks) or cuda (of a GPU)")
      ->check(CLI::IsMember({"malloc", "weft", "cuda"}))
      ->capture_default_str();
  command
      .add_option(
          "--compress", flags.compress,
          "int8 or fp8: a byte for each value on the way (docs/compression.md); results are "
          "compared within the stated error")
      ->check(CLI::IsMember({"none", "int8", "fp8"}))
      ->capture_default_str();
  command
      .add_option("-u,--unalign", flags.unalign, "elements by which buffers begin behind a page")
      ->check(CLI::Range(0, 1000000))
      ->capture_default_str();
}

void add_timing(CLI::App& command, PerfFlags& flags) {
  section(command, "How it is timed");
  command.add_option("-w,--warm-up", flags.warm_up, "operations before the timed ones")
      ->check(CLI::Range(0, 1000000));
  command.add_option("-n,--iters", flags.iterations, "timed iterations (default: 0.5 s worth)")
      ->check(CLI::Range(1, 100000000));
  command.add_option("--algo", flags.algorithm, "auto or an algorithm's name")
      ->capture_default_str();
  auto* in_place = command.add_flag("--in-place", flags.in_place,
                                    "only in place: input and output are the same buffer");
  command.add_flag("--out-of-place", flags.out_of_place, "only out of place")->excludes(in_place);
  command.add_flag("--back-to-back", flags.back_to_back,
                   "no barrier between operations; time is total / iterations");
  command
      .add_option("-m,--aggregate", flags.aggregate,
                  "operations of an iteration, one after the other; the time is of one of them")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  command
      .add_option("-a,--average", flags.average,
                  "whose time counts: 0 rank 0's, 1 the mean, 2 the fastest, 3 the slowest rank's")
      ->check(CLI::Range(0, 3))
      ->capture_default_str();
  command
      .add_option("-z,--blocking", flags.blocking,
                  "0 and 2: --back-to-back; 1 and 3: a barrier before each iteration, not timed")
      ->check(CLI::Range(0, 3))
      ->capture_default_str();
  command
      .add_option("--run-cycles", flags.cycles,
                  "how often to repeat all sizes; 0: until Ctrl-C (nccl-tests' -N)")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command
      .add_option("-T,--timeout-s", flags.timeout_s,
                  "as --timeout-ms, in seconds; 0: use --timeout-ms")
      ->check(CLI::Range(0, 86400))
      ->capture_default_str();
  command
      .add_option("-c,--check", flags.check,
                  "number of runs before and after the timed ones in which all results are "
                  "compared bit by bit")
      ->check(CLI::Range(0, 1000000))
      ->capture_default_str();
}

void add_ranks(CLI::App& command, PerfFlags& flags) {
  section(command, "As nccl-tests has them");
  command.add_option("-g,--ngpus", flags.gpus, "without a launcher and -N: -g times -t ranks")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command
      .add_option("-t,--nthreads", flags.threads, "without a launcher and -N: -g times -t ranks")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command.add_option("-R,--register", flags.registered, "1 and 2: --buffers weft")
      ->check(CLI::Range(0, 2))
      ->capture_default_str();
}

void add_output(CLI::App& command, PerfFlags& flags) {
  section(command, "Output");
  auto* percentiles = command.add_flag(
      "--percentiles", flags.percentiles,
      "min, p50 and p99 of the time, of_bound and algorithm, a line for each half");
  command
      .add_option("-I,--per-iteration", flags.per_iteration,
                  "1: min, max, p99 and deviation of the iterations; reports have all their times")
      ->check(CLI::Range(0, 1))
      ->capture_default_str()
      ->excludes(percentiles);
  command
      .add_option("-K,--skip-iterations", flags.skip_iterations,
                  "iterations that the numbers of -I leave out, from the first on")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command.add_option("-S,--timestamps", flags.timestamps, "1: each row ends with date and time")
      ->check(CLI::Range(0, 1))
      ->capture_default_str();
  command
      .add_option("-M,--memory", flags.memory,
                  "1: memory of the rank with most, of the host: at the start, buffers, calls")
      ->check(CLI::Range(0, 1))
      ->capture_default_str();
  command.add_flag("--ports", flags.ports,
                   "below each row, the counter changes of each rail's port");
  add_json_option(command, flags.json, "weft.perf/1");
  command.add_option("-J,--nccl-json", flags.nccl_json,
                     "write a report to this file as nccl-tests does");
  section(command, "What must be reached, else exit code 2");
  command
      .add_option("--min-busbw", flags.min_busbw, "busbw in GB/s, of each row of the largest size")
      ->check(CLI::PositiveNumber);
  command
      .add_option("--expect", flags.expect,
                  "share of the speed that the cost model predicts, of every row: 0.9")
      ->check(CLI::PositiveNumber);
}

// Refuses options that this collective ignores. Options that scripts pass to every program of
// nccl-tests only cause a warning.
void refuse_ignored(const CLI::App& command, const PerfFlags& flags,
                    std::vector<std::string>& warnings) {
  const Collective c = collective_named(flags.collective);
  const auto given = [&](const char* option) { return command.get_option(option)->count() > 0; };
  if (!rooted(c) && given("--root"))
    warnings.push_back(fmt::format("-r {} is ignored: {} has no root", flags.root, name(c)));
  if (!reduces(c) && given("--op"))
    warnings.push_back(fmt::format("-o {} is ignored: {} reduces nothing", flags.op, name(c)));
  if (c == Collective::kBarrier)
    refuse_given(command,
                 {"--begin", "--end", "--factor", "--step", "--type", "--buffers", "--unalign",
                  "--min-busbw", "--expect"},
                 "a barrier moves no data");
  if (c == Collective::kSendRecv)
    refuse_given(command, {"--expect"}, "no schedule is predicted for sendrecv");
  if (flags.compress != "none") {
    if (c != Collective::kAllReduce && c != Collective::kReduceScatter &&
        c != Collective::kAllGather)
      refuse_given(command, {"--compress"},
                   "only all_reduce, reduce_scatter and all_gather are compressed");
    refuse_given(command, {"--expect", "--algo"}, "a compressed call follows no single schedule");
  }
  if (flags.buffers == "cuda")
    refuse_given(command, {"--expect"}, "the cost model does not model copies of a GPU");
}

}  // namespace

void add_perf_flags(CLI::App& command, PerfFlags& flags) {
  command.add_option("collective", flags.collective, collective_names());
  add_job_flags(command, flags.job);
  add_sizes(command, flags);
  add_timing(command, flags);
  add_ranks(command, flags);
  add_output(command, flags);
}

std::vector<std::string> settle(const CLI::App& command, PerfFlags& flags) {
  std::vector<std::string> warnings;
  refuse_ignored(command, flags, warnings);
  const auto given = [&](const char* option) { return command.get_option(option)->count() > 0; };
  const auto say = [&](std::string text) { warnings.push_back(std::move(text)); };
  if (const int ranks = flags.gpus * flags.threads; ranks > 1) {
    if (launched() || given("--ranks"))
      say(fmt::format(
          "-g {} -t {} is ignored: a rank is one process with one GPU, and there are as "
          "many as {} says",
          flags.gpus, flags.threads, launched() ? "the launcher" : "-N"));
    else
      flags.job.ranks = ranks;
  }
  if (given("--blocking") && flags.blocking == 0)
    say("-z 0: a call returns when its operation is done, as with -z 2");
  if (given("--blocking") && flags.blocking == 1)
    say("-z 1: the time does not have the barrier, as with -z 3");
  if (given("--blocking") && flags.blocking % 2 == 0) flags.back_to_back = true;
  if (flags.aggregate > 1)
    say(fmt::format("-m {}: the operations follow each other, none is merged with another",
                    flags.aggregate));
  if (flags.registered > 0 && given("--buffers"))
    say(fmt::format("-R {} is ignored: --buffers is {}", flags.registered, flags.buffers));
  else if (flags.registered > 0)
    flags.buffers = "weft";
  if (!flags.step.empty() && given("--factor") && flags.factor > 1) {
    say(fmt::format("-i {} is ignored: sizes grow by -f {}", flags.step, flags.factor));
    flags.step.clear();
  }
  if (flags.skip_iterations > 0 && flags.per_iteration == 0)
    say(fmt::format("-K {} is ignored: it needs -I 1", flags.skip_iterations));
  else if (flags.iterations > 0 && flags.skip_iterations >= flags.iterations)
    say(fmt::format("-K {} is ignored: there are {} iterations", flags.skip_iterations,
                    flags.iterations));
  if (flags.per_iteration == 0 ||
      (flags.iterations > 0 && flags.skip_iterations >= flags.iterations))
    flags.skip_iterations = 0;
  if (flags.timeout_s > 0 && !given("--timeout-ms")) {
    flags.job.timeout_ms = 1000 * flags.timeout_s;
    flags.job.timeout = command.get_option("--timeout-s");
  } else if (flags.timeout_s > 0) {
    say(fmt::format("-T {} is ignored: --timeout-ms is {}", flags.timeout_s, flags.job.timeout_ms));
  }
  return warnings;
}

PerfPlan plan_of(const PerfFlags& flags) {
  PerfPlan plan;
  plan.collective = collective_named(flags.collective);
  if (!flags.step.empty()) plan.step = parse_bytes("-i", flags.step);
  if (plan.collective == Collective::kBarrier)
    plan.sizes = {0};
  else
    plan.sizes = size_ladder(parse_bytes("-b", flags.begin), parse_bytes("-e", flags.end),
                             flags.factor, plan.step);
  plan.types = dtypes_named("-d", flags.type);
  plan.ops = redops_named("-o", flags.op);
  if (!reduces(plan.collective)) plan.ops.resize(1);
  if (plan.collective == Collective::kBarrier) plan.types.resize(1);
  if (!rooted(plan.collective)) {
    plan.roots = {0};
  } else if (flags.root >= 0) {
    plan.roots = {flags.root};
  }
  // `all` skips undefined combinations; a combination named by the user is an error.
  if (plan.types.size() == 1 && plan.ops.size() == 1 && !defined(plan.ops[0], plan.types[0]))
    throw Error(fmt::format("-o {}: not defined for {}", name(plan.ops[0]), name(plan.types[0])));
  if (flags.compress != "none") {
    if (plan.types != std::vector{DType::kFloat32})
      throw Error(fmt::format("--compress {} with -d {}: only float is compressed; leave one out",
                              flags.compress, flags.type));
    for (const RedOp op : plan.ops)
      if (op != RedOp::kSum && op != RedOp::kAvg)
        throw Error(
            fmt::format("--compress {} with -o {}: pass sum or avg", flags.compress, flags.op));
    if (flags.buffers == "cuda")
      throw Error(
          fmt::format("--compress {} with --buffers cuda: only host memory is compressed; "
                      "leave one out",
                      flags.compress));
  }
  check_algorithm(plan.collective, flags.algorithm);
  if (flags.in_place && !has_in_place(plan.collective))
    throw Error(fmt::format("--in-place: {} has no form in place; leave the flag out",
                            name(plan.collective)));
  return plan;
}

}  // namespace weft
