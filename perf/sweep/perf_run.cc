// Runs the cases of `weft perf` in turn. Does not format rows and reports.
#include "perf/sweep/perf_run.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "coll/engine/codec.h"
#include "coll/runtime/calibrate.h"
#include "coll/runtime/internals.h"
#include "coll/schedule/algorithm.h"
#include "perf/cli/bytes.h"
#include "perf/cli/names.h"
#include "perf/collective/rates.h"
#include "perf/sweep/perf_table.h"
#include "topo/base/exit_code.h"
#include "transport/factory/transport_factory.h"
#include "transport/launch/failures.h"

namespace weft {
namespace {

constexpr int kWarmUp = 10;  // operations, for short messages

std::int64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::int64_t all = 0, pages = 0;
  statm >> all >> pages;
  return pages * sysconf(_SC_PAGESIZE);
}

}  // namespace

PerfRun::PerfRun(World& world, const PerfFlags& flags, PerfReport& report, NcclRun& nccl)
    : world_(world),
      all_(world.world()),
      comm_(all_),
      flags_(flags),
      plan_(plan_of(flags)),
      report_(report),
      nccl_(nccl),
      progress_(world.rank() == 0),
      resident_{resident_bytes()} {}

void PerfRun::split() {
  groups_ = groups_from_environment(world_.size());
  const auto everywhere = job_of(world_).all_gather(groups_.from);
  for (std::size_t r = 1; r < everywhere.size(); ++r)
    if (everywhere[r] != everywhere[0])
      throw UsageError(
          fmt::format("ranks would be split differently: rank 0 has `{}`, rank {} `{}`; "
                      "set the variable on all of them",
                      everywhere[0], r, everywhere[r]));
  lead_ = groups_.members(groups_.colors[0]);
  if (groups_.from.empty()) return;
  comm_ = all_.split(groups_.colors[static_cast<std::size_t>(world_.rank())], world_.rank());
  report_.split = groups_.from;
  for (const int color : groups_.names()) report_.groups.push_back({color, groups_.members(color)});
}

void PerfRun::describe() {
  const Topology& t = world_.topology();
  report_.collective = plan_.collective;
  report_.ranks = static_cast<int>(lead_.size());
  report_.hosts = static_cast<int>(lead_shape(0).hosts.size());
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
  report_.compress = flags_.compress;
  report_.out_of_place = !flags_.in_place;
  report_.in_place = !flags_.out_of_place;
  report_.back_to_back = flags_.back_to_back;
  report_.of_ranks = static_cast<OfRanks>(flags_.average);
  report_.aggregate = flags_.aggregate;
  report_.per_iteration = flags_.per_iteration != 0;
  report_.skip_iterations = flags_.skip_iterations;
  report_.timestamps = flags_.timestamps != 0;
  report_.ports = flags_.ports;
  const char* least = std::getenv("NCCL_TESTS_MIN_BW");
  report_.limits = {flags_.min_busbw, flags_.expect, least ? std::atof(least) : 0};

  nccl_.started = time_stamp();
  nccl_.begin = plan_.sizes.front();
  nccl_.end = plan_.sizes.back();
  nccl_.factor = flags_.factor;
  nccl_.step = plan_.step;
  nccl_.warm_up = flags_.warm_up >= 0 ? flags_.warm_up : kWarmUp;
  nccl_.checks = flags_.check;
  nccl_.blocking = flags_.back_to_back ? 2 : 3;
  const auto pids = job_of(world_).all_gather(std::to_string(getpid()));
  for (Rank r = 0; r < t.nranks(); ++r)
    nccl_.devices.push_back({groups_.colors[static_cast<std::size_t>(r)],
                             std::stoi(pids[static_cast<std::size_t>(r)]), t.local(r),
                             t.host_name(t.host(r)), fmt::format("{} memory", flags_.buffers)});
}

// Every rank checks every group, so that all ranks fail together.
void PerfRun::check_roots() {
  std::size_t smallest = lead_.size();
  for (const int color : groups_.names())
    smallest = std::min(smallest, groups_.members(color).size());
  const int n = static_cast<int>(smallest);
  if (plan_.roots.empty())
    for (Rank r = 0; r < n; ++r) plan_.roots.push_back(r);
  if (plan_.roots.back() >= n)
    throw UsageError(fmt::format("--root {}: the ranks are 0 to {}", plan_.roots.back(), n - 1));
  if (plan_.collective == Collective::kSendRecv && n < 2)
    throw UsageError("sendrecv with 1 rank: at least 2 are needed");
  if (flags_.expect > 0 && n < 2)
    throw UsageError("--expect with 1 rank: nothing is predicted; use -N 2 or more");
  for (const int color : groups_.names())
    for (const Rank root : plan_.roots)
      check_applies(plan_.collective, flags_.algorithm,
                    shape_of(world_.topology(), groups_.members(color), 0, root));
}

void PerfRun::make_memory() {
  for (DType type : plan_.types)
    for (const int color : groups_.names()) {
      const auto n = static_cast<int>(groups_.members(color).size());
      largest_ =
          std::max(largest_, with_bytes({plan_.collective, type}, plan_.sizes.back(), n).bytes);
    }
  const std::uint64_t bytes = largest_ + static_cast<std::uint64_t>(flags_.unalign) * 8;
  memory_ = flags_.buffers == "cuda"
                ? Memory::on_gpu(gpu_of_rank(world_), bytes, flags_.in_place)
                : std::make_unique<Memory>(bytes, flags_.in_place, flags_.buffers == "weft");
  resident_.push_back(resident_bytes());
}

int PerfRun::run() {
  split();
  describe();
  check_roots();
  if (const Codec codec = codec_from(flags_.compress).value_or(Codec::kNone); codec != Codec::kNone)
    comm_ = comm_.compressed({.codec = codec});
  if (flags_.algorithm != "auto") comm_.set_algorithm(plan_.collective, flags_.algorithm);
  make_memory();
  const std::string& between =
      report_.transport == "auto" ? report_.between_hosts : report_.transport;
  report_.rail = {declared_rail_gbps(flags_.job.rail_gbps), true,
                  between == "verbs" ? kRocePayloadShare : kTcpPayloadShare};
  if (report_.hosts > 1 && report_.transport != "shm" && report_.rail.gbps <= 0 &&
      plan_.collective != Collective::kBarrier)
    report_.rail = measure_rails(world_, all_);

  const std::vector<CounterSnapshot> ports = world_.rail_counters();
  const bool quiet = !speaks() || flags_.json == "-";
  const PerfLines lines = flags_.per_iteration ? PerfLines::kIterations
                          : flags_.percentiles ? PerfLines::kPercentiles
                                               : PerfLines::kRows;
  const PerfTable table(report_, {largest_, plan_.types, plan_.ops}, lines);
  if (!quiet) fmt::print("{}{}", header(report_), table.header());
  std::fflush(stdout);  // show the header before the first row is measured
  const auto show = [&](const PerfRow& row) {
    progress_.clear();
    if (!quiet) fmt::print("{}{}", table.row(row), report_.ports ? port_lines(row) : "");
    std::fflush(stdout);
  };
  for (int cycle = 0; flags_.cycles == 0 || cycle < flags_.cycles; ++cycle) {
    if (flags_.cycles == 0) report_.rows.clear();  // endless run: no final report
    for (DType type : plan_.types)
      for (RedOp op : plan_.ops)
        for (const Rank root : plan_.roots)
          if (defined(op, type)) sweep(type, op, root, show);
  }
  report_.counts = count_rails(world_, ports);
  if (flags_.memory) report_.memory = memory_in_words();
  nccl_.ended = time_stamp();
  if (!quiet)
    fmt::print("{}{}", table.shows_algorithms() ? "" : algorithms_in_words(report_),
               footer(report_));
  return exit_code();
}

void PerfRun::sweep(DType type, RedOp op, Rank root,
                    const std::function<void(const PerfRow&)>& show) {
  std::uint64_t last = ~std::uint64_t{0};  // skip sizes that round to the same count
  for (std::uint64_t size : plan_.sizes) {
    Case what{plan_.collective, type, op, root};
    what.codec = codec_from(flags_.compress).value_or(Codec::kNone);
    what.shift = static_cast<std::size_t>(flags_.unalign);
    const std::uint64_t bytes = with_bytes(what, size, report_.ranks).bytes;
    if (bytes == last) continue;
    last = bytes;
    const std::vector<CounterSnapshot> ports = world_.rail_counters();
    report_.rows.push_back(measure(with_bytes(what, size, comm_.size())));
    PerfRow& row = report_.rows.back();
    if (report_.ports) row.ports = count_rails(world_, ports);
    row.finished = time_stamp();
    show(row);
  }
}

// Rank 0, whose group the rows show, decides.
int PerfRun::exit_code() const {
  std::uint64_t wrong = 0;
  for (const PerfRow& row : report_.rows)
    for (const auto* half : {&row.out_of_place, &row.in_place})
      if (*half) wrong += (*half)->wrong.value_or(0);
  std::size_t unknown = 0;
  const std::size_t missed = missed_limits(report_, unknown).size();
  const int mine = wrong > 0 || missed > unknown ? kExitCritical
                   : unknown > 0                 ? kExitUnknown
                                                 : kExitOk;
  return std::stoi(job_of(world_).all_gather(std::to_string(mine)).front());
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
  const auto count_wrong_of_runs = [&] {
    for (int run = 0; run < flags_.check; ++run) {
      exercise.prepare();
      require(exercise.run());
      half.wrong = half.wrong.value_or(0) + count_wrong(exercise, what);
    }
  };
  count_wrong_of_runs();
  if (flags_.check == 0) exercise.prepare();
  exercise.prepare_to_time();
  const int warm_up = flags_.warm_up >= 0 ? flags_.warm_up : what.bytes > kLarge ? 2 : kWarmUp;
  const Times rehearsal =
      time(exercise, label, std::max(warm_up, flags_.iterations < 0 ? 1 : 0), {});
  const int m = flags_.aggregate;
  half.iterations = flags_.iterations;
  if (half.iterations <= 0) {
    const double once_us = rehearsal[0].empty() ? 0 : median(slowest_rank(rehearsal));
    half.iterations = std::max(iterations_for(once_us, kBudgetUs) / m, 1);
  }
  Rhythm rhythm{m, !flags_.back_to_back};
  // Back to back: time ten batches.
  if (flags_.back_to_back && !flags_.per_iteration)
    rhythm = {std::max(half.iterations / 10, 1) * m, true};
  Times times = time(exercise, label, half.iterations * m, rhythm);
  half.time_us = summarize(times_of(times, report_.of_ranks));
  for (const PerfGroup& group : report_.groups) {
    Times of_group;
    for (const Rank r : group.ranks) of_group.push_back(times[static_cast<std::size_t>(r)]);
    half.group_us.push_back(median(slowest_rank(of_group)));
  }
  if (flags_.per_iteration) half.rank_us = std::move(times);
  half.algorithm = plan_.collective == Collective::kSendRecv ? "p2p" : comm_.last_algorithm();
  if (flags_.expect > 0) half.predicted_us = predicted_us(what, half.algorithm);
  // Check again, after slots, credits and caches have been reused many times.
  count_wrong_of_runs();
  return half;
}

PerfRun::Times PerfRun::time(Exercise& exercise, const std::string& label, int runs,
                             Rhythm rhythm) {
  return time_runs(job_of(world_), all_, exercise, runs, rhythm, [&](int done) {
    progress_.show(fmt::format("{}: {} of {}", label, done, runs));
  });
}

// Returns the bound of rank 0's group; all ranks take part in the measurement.
double PerfRun::bound_us(const Case& of_this_group) {
  const Case what = with_bytes(of_this_group, of_this_group.bytes, report_.ranks);
  if (what.collective == Collective::kBarrier) return 0;
  const bool compressed = what.codec != Codec::kNone;
  if (report_.bound_by_rails())
    return rail_bound_us(what.collective, lead_shape(what.root),
                         compressed ? coded_bytes(what.bytes / sizeof(float)) : what.bytes,
                         report_.rails, report_.rail);
  if (compressed) return 0;  // the cost of quantization is unknown
  if (flags_.buffers == "cuda")
    return device_bound_us(what.collective, ranks_per_gpu(world_), report_.ranks,
                           measure_device_copy_us(world_, what.bytes));
  const std::uint64_t footprint = std::max<std::uint64_t>(what.bytes, 64 << 10);
  const int groups = std::max(static_cast<int>(report_.groups.size()), 1);
  const int writers = std::min(
      writing_ranks(what.collective, report_.ranks, what.in_place) * groups, world_.size());
  auto [known, missing] = memory_rates_.try_emplace({footprint, writers});
  if (missing) known->second = measure_memory(world_, all_, footprint, writers);
  return memory_bound_us(what.collective, what.bytes, report_.ranks, what.in_place, known->second);
}

double PerfRun::predicted_us(const Case& what, const std::string& algorithm) const {
  const Algorithm* found = find_algorithm(what.collective, algorithm);
  if (found == nullptr) return 0;
  return predict(*found, lead_shape(what.root), what.bytes, size_of(what.type),
                 Internals::costs(world_))
      .time_us;
}

std::string PerfRun::memory_in_words() {
  const std::int64_t now = resident_bytes();
  std::vector<std::int64_t> most(3);
  for (const std::string& text :
       job_of(world_).all_gather(fmt::format("{} {} {}", resident_[0], resident_[1] - resident_[0],
                                             std::max<std::int64_t>(now - resident_[1], 0)))) {
    std::istringstream words(text);
    for (std::int64_t& m : most) {
      std::int64_t theirs = 0;
      words >> theirs;
      m = std::max(m, theirs);
    }
  }
  const auto mb = [](std::int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  return fmt::format(
      "# Memory usage         : Initialization {:.1f} MB | User-Allocated {:.1f} MB | Collective "
      "{:.1f} MB\n",
      mb(most[0]), mb(most[1]), mb(most[2]));
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

}  // namespace weft
