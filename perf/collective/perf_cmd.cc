// `weft perf COLLECTIVE`: times a collective over a range of sizes, as nccl-tests does, and checks
// every result bit by bit.
#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <vector>

#include "coll/jobs/report.h"
#include "coll/jobs/session.h"
#include "coll/runtime/calibrate.h"
#include "coll/runtime/internals.h"
#include "coll/schedule/algorithm.h"
#include "perf/cli/bytes.h"
#include "perf/cli/commands.h"
#include "perf/cli/names.h"
#include "perf/cli/parse_errors.h"
#include "perf/collective/exercise.h"
#include "perf/collective/perf_report.h"
#include "perf/collective/perf_table.h"
#include "perf/collective/rates.h"
#include "transport/factory/transport_factory.h"
#include "transport/launch/local_job.h"

namespace weft {
namespace {

struct PerfFlags {
  JobFlags job;
  std::string collective, begin = "8", end = "64M", type = "float", op = "sum";
  std::uint64_t factor = 4;
  int warm_up = -1, iterations = -1;  // -1: by the time an operation takes
  int root = 0;
  std::string algorithm = "auto", buffers = "malloc", json;
  int check = 1, gpus = 1, threads = 1;         // as nccl-tests has them
  bool in_place = false, out_of_place = false;  // this half only
  bool percentiles = false, back_to_back = false;
};

// The flags, understood. Throws Error on what cannot be.
struct PerfPlan {
  Collective collective;
  std::vector<std::uint64_t> sizes;
  std::vector<DType> types;
  std::vector<RedOp> ops;
};

PerfPlan plan_of(const PerfFlags& flags) {
  PerfPlan plan;
  plan.collective = collective_named(flags.collective);
  if (plan.collective == Collective::kBarrier)
    plan.sizes = {0};
  else
    plan.sizes =
        size_ladder(parse_bytes("-b", flags.begin), parse_bytes("-e", flags.end), flags.factor);
  plan.types = dtypes_named("-d", flags.type);
  plan.ops = redops_named("-o", flags.op);
  if (!reduces(plan.collective)) plan.ops.resize(1);
  if (plan.collective == Collective::kBarrier) plan.types.resize(1);
  // `all` leaves out what means nothing; what is asked for by name does not.
  if (plan.types.size() == 1 && plan.ops.size() == 1 && !defined(plan.ops[0], plan.types[0]))
    throw Error(fmt::format("-o {}: not defined for {}", name(plan.ops[0]), name(plan.types[0])));
  check_algorithm(plan.collective, flags.algorithm);
  if (flags.in_place && !has_in_place(plan.collective))
    throw Error(fmt::format("--in-place: {} has no form in place; leave the flag out",
                            name(plan.collective)));
  return plan;
}

class PerfRun {
 public:
  PerfRun(World& world, const PerfFlags& flags, PerfReport& report)
      : world_(world),
        comm_(world.world()),
        flags_(flags),
        plan_(plan_of(flags)),
        report_(report),
        progress_(world.rank() == 0) {}

  int run();

 private:
  void describe();
  PerfRow measure(Case what);
  PerfHalf measure_half(const Case& what);
  std::vector<double> time(Exercise& exercise, const std::string& label, int iterations);
  double bound_us(const Case& what);
  // Adds what is wrong on all ranks; rank 0 tells of the first.
  std::uint64_t count_wrong(const Exercise& exercise, const Case& what);
  bool speaks() const { return world_.rank() == 0; }

  World& world_;
  Communicator comm_;
  const PerfFlags& flags_;
  PerfPlan plan_;
  PerfReport& report_;
  Progress progress_;
  std::unique_ptr<Memory> memory_;
  std::map<std::pair<std::uint64_t, int>, MemoryRate> memory_rates_;  // of bytes and writers
};

void PerfRun::describe() {
  const Topology& t = world_.topology();
  report_.collective = plan_.collective;
  report_.ranks = t.nranks();
  report_.hosts = t.nhosts();
  report_.rails = t.nrails();
  bool one_machine = true;
  for (Rank r = 1; r < t.nranks(); ++r)
    one_machine = one_machine && t.place(r).machine == t.place(0).machine;
  report_.emulated = t.nhosts() > 1 && one_machine;
  cpu_set_t mask;
  CPU_ZERO(&mask);
  sched_getaffinity(0, sizeof mask, &mask);
  report_.cores = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  report_.ranks_here = 0;
  for (Rank r = 0; r < t.nranks(); ++r)
    report_.ranks_here += t.place(r).machine == t.place(0).machine;
  report_.unbound = report_.cores > 1 && CPU_COUNT(&mask) == report_.cores;
  report_.transport = flags_.job.transport;
  report_.between_hosts = transport_between_hosts(t);
  report_.memory_shared = hosts_share_memory(t);
  report_.buffers = flags_.buffers;
  report_.out_of_place = !flags_.in_place;
  report_.in_place = !flags_.out_of_place;
  report_.back_to_back = flags_.back_to_back;
}

int PerfRun::run() {
  describe();
  if (flags_.root >= report_.ranks)
    throw UsageError(
        fmt::format("--root {}: the ranks are 0 to {}", flags_.root, report_.ranks - 1));
  if (plan_.collective == Collective::kSendRecv && report_.ranks < 2)
    throw UsageError("sendrecv with 1 rank: at least 2 are needed");
  check_applies(plan_.collective, flags_.algorithm,
                shape_of(world_.topology(), world_.rank(), flags_.root));
  if (flags_.algorithm != "auto") comm_.set_algorithm(plan_.collective, flags_.algorithm);

  std::uint64_t largest = 0;
  for (DType type : plan_.types)
    largest = std::max(
        largest, with_bytes({plan_.collective, type}, plan_.sizes.back(), report_.ranks).bytes);
  memory_ = flags_.buffers == "cuda"
                ? Memory::on_gpu(gpu_of_rank(world_), largest, flags_.in_place)
                : std::make_unique<Memory>(largest, flags_.in_place, flags_.buffers == "weft");
  const std::string& between =
      report_.transport == "auto" ? report_.between_hosts : report_.transport;
  report_.rail = {declared_rail_gbps(flags_.job.rail_gbps), true,
                  between == "verbs" ? kRocePayloadShare : kTcpPayloadShare};
  if (report_.hosts > 1 && report_.transport != "shm" && report_.rail.gbps <= 0 &&
      plan_.collective != Collective::kBarrier)
    report_.rail = measure_rails(world_, comm_);

  const std::vector<CounterSnapshot> ports = world_.rail_counters();
  const bool quiet = !speaks() || flags_.json == "-";
  const PerfTable table(report_, {largest, plan_.types, plan_.ops}, flags_.percentiles);
  if (!quiet) fmt::print("{}{}", header(report_), table.header());
  std::fflush(stdout);  // whoever waits for the first row sees what it is
  std::uint64_t wrong = 0;
  for (DType type : plan_.types)
    for (RedOp op : plan_.ops) {
      if (!defined(op, type)) continue;
      std::uint64_t last = ~std::uint64_t{0};  // sizes too small to divide come out equal
      for (std::uint64_t size : plan_.sizes) {
        const Case what =
            with_bytes({plan_.collective, type, op, flags_.root, false, 0, 0}, size, report_.ranks);
        if (what.bytes == last) continue;
        last = what.bytes;
        report_.rows.push_back(measure(what));
        for (const auto* half : {&report_.rows.back().out_of_place, &report_.rows.back().in_place})
          if (*half) wrong += (*half)->wrong.value_or(0);
        progress_.clear();
        if (!quiet) fmt::print("{}", table.row(report_.rows.back()));
        std::fflush(stdout);
      }
    }
  report_.counts = count_rails(world_, ports);
  if (!quiet)
    fmt::print("{}{}", table.shows_algorithms() ? "" : algorithms_in_words(report_),
               footer(report_));
  return wrong == 0 ? kExitOk : kExitCritical;
}

PerfRow PerfRun::measure(Case what) {
  PerfRow row;
  row.bytes = what.bytes;
  row.count = what.count;
  row.type = what.type;
  row.op = what.op;
  row.root = rooted(what.collective) ? what.root : kNoRank;
  if (report_.out_of_place) row.out_of_place = measure_half(what);
  what.in_place = true;
  if (report_.in_place && has_in_place(what.collective)) row.in_place = measure_half(what);
  return row;
}

PerfHalf PerfRun::measure_half(const Case& what) {
  constexpr double kBudgetUs = 500e3;
  constexpr std::uint64_t kLarge = 1 << 20;
  const std::string label = fmt::format("{} {}{}", name(what.collective), format_bytes(what.bytes),
                                        what.in_place ? " in place" : "");
  progress_.show(label);
  PerfHalf half;
  half.bound_us = bound_us(what);
  Exercise exercise(comm_, what, *memory_);
  const auto count_wrong_of_a_run = [&] {
    exercise.prepare();
    require(exercise.run());
    half.wrong = half.wrong.value_or(0) + count_wrong(exercise, what);
  };
  if (flags_.check)
    count_wrong_of_a_run();
  else
    exercise.prepare();
  exercise.prepare_to_time();
  const int warm_up = flags_.warm_up >= 0 ? flags_.warm_up : what.bytes > kLarge ? 2 : 10;
  const auto rehearsal = time(exercise, label, std::max(warm_up, flags_.iterations < 0 ? 1 : 0));
  half.iterations = flags_.iterations > 0
                        ? flags_.iterations
                        : iterations_for(rehearsal.empty() ? 0 : median(rehearsal), kBudgetUs);
  half.time_us = summarize(time(exercise, label, half.iterations));
  half.algorithm = plan_.collective == Collective::kSendRecv ? "p2p" : comm_.last_algorithm();
  // Again, now that slots, credits and caches have been round many times.
  if (flags_.check) count_wrong_of_a_run();
  return half;
}

// The time of each iteration. Back to back: of each of ten batches.
std::vector<double> PerfRun::time(Exercise& exercise, const std::string& label, int iterations) {
  const int batch = flags_.back_to_back ? std::max(iterations / 10, 1) : 1;
  return time_runs(job_of(world_), comm_, exercise, iterations, batch, [&](int done) {
    progress_.show(fmt::format("{}: {} of {}", label, done, iterations));
  });
}

double PerfRun::bound_us(const Case& what) {
  if (what.collective == Collective::kBarrier) return 0;
  if (report_.bound_by_rails())
    return rail_bound_us(what.collective, shape_of(world_.topology(), world_.rank(), what.root),
                         what.bytes, report_.rails, report_.rail);
  if (flags_.buffers == "cuda")
    return device_bound_us(what.collective, ranks_per_gpu(world_), report_.ranks,
                           measure_device_copy_us(world_, what.bytes));
  const std::uint64_t footprint = std::max<std::uint64_t>(what.bytes, 64 << 10);
  const int writers = writing_ranks(what.collective, report_.ranks, what.in_place);
  auto [known, missing] = memory_rates_.try_emplace({footprint, writers});
  if (missing) known->second = measure_memory(world_, comm_, footprint, writers);
  return memory_bound_us(what.collective, what.bytes, report_.ranks, what.in_place, known->second);
}

std::uint64_t PerfRun::count_wrong(const Exercise& exercise, const Case& what) {
  const Mismatch mine = exercise.check();
  const std::string line = mine.wrong == 0 ? "" : fmt::format("{} {}", mine.wrong, mine.first);
  const auto all = job_of(world_).all_gather(line);
  std::uint64_t wrong = 0;
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (all[r].empty()) continue;
    if (wrong == 0 && speaks()) {
      progress_.clear();
      fmt::print(stderr, "weft perf: wrong result of {} ({} {}, {} bytes, {}) on rank {}: {}\n",
                 name(what.collective), name(what.type), name(what.op), what.bytes,
                 comm_.last_algorithm(), r, all[r].substr(all[r].find(' ') + 1));
    }
    wrong += std::stoull(all[r]);
  }
  return wrong;
}

// Refuses what this collective would not look at.
void refuse_ignored(const CLI::App& command, const PerfFlags& flags) {
  const Collective c = collective_named(flags.collective);
  if (!rooted(c)) refuse_given(command, {"--root"}, fmt::format("{} has no root", name(c)));
  if (!reduces(c)) refuse_given(command, {"--op"}, fmt::format("{} reduces nothing", name(c)));
  if (c == Collective::kBarrier)
    refuse_given(command, {"--begin", "--end", "--factor", "--type", "--buffers"},
                 "a barrier moves no data");
}

void write_json(const PerfReport& report, const std::string& path) {
  write_report(path, to_json(report).dump(2) + "\n");
}

int perf(const PerfFlags& flags) {
  (void)plan_of(flags);  // before any rank is started
  declared_rail_gbps(flags.job.rail_gbps);
  if (!launched()) check_report(flags.json);
  PerfReport report;
  return run_job(
      "perf", flags.job,
      [&](World& world) {
        check_report(world, flags.json);
        const int code = PerfRun(world, flags, report).run();
        if (world.rank() == 0 && !flags.json.empty()) write_json(report, flags.json);
        return code;
      },
      [&](Rank me, const Status& failure) {
        if (me != speaker(failure.rank()) && job_from_environment().size > 1) return;
        fmt::print(stderr, "weft perf: {}\n", failure.to_string());
        report.failure = failure;
        if (!flags.json.empty()) write_json(report, flags.json);
      });
}

}  // namespace

void add_perf(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<PerfFlags>();
  CLI::App* command =
      app.add_subcommand("perf", "time a collective and check its results, or pairs (bw, lat)");
  command->add_option("collective", flags->collective, collective_names());
  add_job_flags(*command, flags->job);
  section(*command, "Sizes and data");
  command->add_option("-b,--begin", flags->begin, "first size: bytes, 16K, 64M, 1G")
      ->capture_default_str();
  command->add_option("-e,--end", flags->end, "last size")->capture_default_str();
  command->add_option("-f,--factor", flags->factor, "from size to size, at least 2")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("-d,--type", flags->type, dtype_names() + " or all")->capture_default_str();
  command->add_option("-o,--op", flags->op, redop_names() + " or all")->capture_default_str();
  section(*command, "How it is timed");
  command->add_option("-w,--warm-up", flags->warm_up, "operations before the timed ones")
      ->check(CLI::Range(0, 1000000));
  command->add_option("-n,--iters", flags->iterations, "timed operations (default: 0.5 s worth)")
      ->check(CLI::Range(1, 100000000));
  command->add_option("--algo", flags->algorithm, "auto or an algorithm's name")
      ->capture_default_str();
  command->add_option("-r,--root", flags->root, "root of a broadcast, reduce, gather or scatter")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command
      ->add_option("--buffers", flags->buffers,
                   "malloc, weft (mapped by all local ranks) or cuda (of a GPU)")
      ->check(CLI::IsMember({"malloc", "weft", "cuda"}))
      ->capture_default_str();
  auto* in_place = command->add_flag("--in-place", flags->in_place,
                                     "only in place: input and output are the same buffer");
  command->add_flag("--out-of-place", flags->out_of_place, "only out of place")->excludes(in_place);
  command->add_flag("--back-to-back", flags->back_to_back,
                    "no barrier between operations; time is total / iterations");
  section(*command, "As nccl-tests has them");
  const auto one = [](const char* what) {
    return CLI::Validator(
        [what](std::string& text) { return text == "1" ? "" : text + ": " + what; }, "");
  };
  command
      ->add_option("-c,--check", flags->check, "1: compare all results bit by bit; 0: compare none")
      ->check(CLI::Range(0, 1))
      ->capture_default_str();
  command->add_option("-g,--ngpus", flags->gpus, "GPUs of a rank: one")
      ->check(one("a rank has one GPU; ranks are -N"))
      ->capture_default_str();
  command->add_option("-t,--nthreads", flags->threads, "threads of a process: one")
      ->check(one("a process is one rank; ranks are -N"))
      ->capture_default_str();
  section(*command, "Output");
  command->add_flag("--percentiles", flags->percentiles,
                    "min, p50 and p99 of the time, of_bound and algorithm, a line for each half");
  add_json_option(*command, flags->json, "weft.perf/1");
  command->footer("Example: weft perf all_reduce -N 4 -b 8 -e 1M -f 16 -n 20");
  add_pair_tests(*command, exit_code);
  command->callback([command, flags, &exit_code] {
    if (!command->get_subcommands().empty()) return;
    if (flags->collective.empty()) throw CLI::RequiredError("collective, bw or lat");
    refuse_ignored(*command, *flags);
    exit_code = perf(*flags);
  });
}

}  // namespace weft
