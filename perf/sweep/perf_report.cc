// Writes the report of `weft perf` as text and JSON. Does not measure.
#include "perf/sweep/perf_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "perf/cli/table.h"
#include "perf/collective/exercise.h"

namespace weft {
namespace {

std::string bound_in_words(const PerfReport& report) {
  if (report.collective == Collective::kBarrier) return "";
  if (report.buffers == "cuda" && !report.bound_by_rails())
    return "# of_bound: against the GPU's own copies, one for each rank that shares it\n";
  if (!report.bound_by_rails())
    return "# of_bound: against this machine's memory, measured with all ranks at once\n";
  if (report.rail.gbps <= 0) return "# of_bound: unknown, no rate of a rail\n";
  return report.rail.declared
             ? fmt::format(
                   "# of_bound: against {} x {:g} Gb/s rails as declared, {:.1f} % payload\n",
                   report.rails, report.rail.gbps, report.rail.payload_share * 100)
             : fmt::format("# of_bound: against {} x {:.3g} Gb/s rails as measured\n", report.rails,
                           report.rail.gbps);
}

template <class Visit>
void for_each_half(const PerfReport& report, const Visit& visit) {
  for (const PerfRow& row : report.rows)
    for (const auto* half : {&row.out_of_place, &row.in_place})
      if (*half) visit(row, **half);
}

std::string verdict(const PerfReport& report) {
  std::uint64_t wrong = 0, checked = 0;
  for_each_half(report, [&](const PerfRow&, const PerfHalf& half) {
    wrong += half.wrong.value_or(0);
    checked += half.wrong.has_value();
  });
  if (wrong > 0)
    return paint(Paint::kBad, fmt::format("# WRONG RESULTS: {} elements", wrong)) + "\n";
  if (checked == 0) return "# results were not checked\n";
  if (report.compress != "none") return "# all results within the stated error\n";
  return fmt::format("# all results exact\n");
}

// Names placements of ranks that slow short messages on any fabric.
std::string place_in_words(const PerfReport& report) {
  if (report.ranks_here > report.cores)
    return fmt::format("# {} ranks share {} {}: they wait for each other's turns\n",
                       report.ranks_here, report.cores, report.cores == 1 ? "core" : "cores");
  if (report.unbound && report.ranks > 1)
    return "# ranks are not bound to cores, which slows short messages down: weft launch and "
           "mpirun bind them\n";
  return "";
}

// A run faster than its bound means that the bound was measured on slower links.
std::string above_bound(const PerfReport& report) {
  double most = 0;
  for_each_half(report, [&](const PerfRow&, const PerfHalf& half) {
    most = std::max(most, of_bound(half).value_or(0));
  });
  if (most <= 1) return "";
  const std::string why =
      report.bound_by_rails()
          ? report.rail.declared ? "a rail is faster than declared (--rail-gbps or WEFT_RAIL_GBPS)"
                                 : "the rails were slower when they were measured, before the run"
      : report.buffers == "cuda" ? "the GPU copied more slowly when it was measured, before the run"
                                 : "the memory was slower when it was measured, before the run";
  return fmt::format("# of_bound is up to {:.2f}: {}\n", most, why);
}

// Returns the last line of nccl-tests.
std::string average(const PerfReport& report) {
  if (report.rows.empty() || report.collective == Collective::kBarrier) return "";
  return fmt::format("# Avg bus bandwidth    : {:.4g}\n", average_busbw(report));
}

// "1048576 bytes of float sum, in place", for a message about one half.
std::string named(const PerfReport& report, const PerfRow& row, const PerfHalf& half) {
  const bool in_place = row.in_place && &half == &*row.in_place;
  return fmt::format("{} bytes of {}{}{}", row.bytes, name(row.type),
                     reduces(report.collective) ? fmt::format(" {}", name(row.op)) : "",
                     in_place ? ", in place" : "");
}

std::string ranks_in_words(const std::vector<Rank>& ranks) {
  constexpr std::size_t kMost = 8;
  std::string text;
  for (std::size_t i = 0; i < std::min(ranks.size(), kMost); ++i)
    text += fmt::format("{}{}", i > 0 ? "," : "", ranks[i]);
  return text + (ranks.size() > kMost ? ",..." : "");
}

// Lists the bandwidth of each group of a split run at the largest size, and marks slow groups.
std::string groups_in_words(const PerfReport& report) {
  if (report.groups.empty() || report.rows.empty()) return "";
  const PerfRow& row = report.rows.back();
  const PerfHalf& half = first_half(row);
  const bool rates = report.collective != Collective::kBarrier;
  std::vector<double> values;
  for (std::size_t g = 0; g < report.groups.size(); ++g)
    values.push_back(rates ? busbw(report, row, half, g) : half.group_us[g]);
  const std::vector<bool> slow = out_of_line(values, !rates);
  std::vector<std::vector<std::string>> lines = {
      {"#   group", "ranks", rates ? "busbw GB/s" : "us", ""}};
  for (std::size_t g = 0; g < values.size(); ++g)
    lines.push_back(
        {fmt::format("#   {}", report.groups[g].color), ranks_in_words(report.groups[g].ranks),
         rates ? format_GBps(values[g]) : format_us(values[g]),
         slow[g] ? paint(Paint::kBad,
                         fmt::format("SLOW: {:.2f} of the median", values[g] / median(values)))
                 : ""});
  return fmt::format("# groups of {}, {}:\n{}", report.split, named(report, row, half),
                     align(lines));
}

const char* of_ranks_in_words(OfRanks which) {
  switch (which) {
    case OfRanks::kFirst:
      return "on rank 0";
    case OfRanks::kMean:
      return "mean of the ranks";
    case OfRanks::kLeast:
      return "on the fastest rank";
    case OfRanks::kMost:
      return "on the slowest rank";
  }
  return "";
}

}  // namespace

bool hosts_share_memory(const Topology& topology) {
  const auto share = [&](Rank a, Rank b) {
    return topology.same_host(a, b) && topology.place(a).machine == topology.place(b).machine;
  };
  for (int host = 0; host < topology.nhosts(); ++host)
    for (const Rank r : topology.ranks_of(host))
      if (!share(topology.ranks_of(host)[0], r)) return false;
  return true;
}

std::string transports_in_words(const std::string& transport, int ranks, int hosts,
                                bool memory_shared, const std::string& between_hosts) {
  if (transport != "auto") return transport;
  if (!memory_shared) return fmt::format("shm where ranks share memory, else {}", between_hosts);
  if (hosts < 2) return "shm";
  return ranks == hosts ? between_hosts
                        : fmt::format("shm inside a host, {} between hosts", between_hosts);
}

bool has_in_place(Collective collective) {
  return collective != Collective::kSendRecv && collective != Collective::kBarrier;
}

const PerfHalf& first_half(const PerfRow& row) {
  return row.out_of_place ? *row.out_of_place : row.in_place.value();
}

const char* op_name(const PerfReport& report, const PerfRow& row) {
  return reduces(report.collective) ? name(row.op) : "none";
}

double algbw(const PerfRow& row, const PerfHalf& half) {
  return algbw_gbps(row.bytes, half.time_us.p50);
}

double busbw(const PerfReport& report, const PerfRow& row, const PerfHalf& half) {
  return algbw(row, half) * busbw_factor(report.collective, report.ranks);
}

double busbw(const PerfReport& report, const PerfRow& row, const PerfHalf& half,
             std::size_t group) {
  const auto n = static_cast<int>(report.groups[group].ranks.size());
  const std::uint64_t bytes =
      with_bytes({report.collective, row.type}, row.bytes, n).bytes;  // rounded for n ranks
  return algbw_gbps(bytes, half.group_us[group]) * busbw_factor(report.collective, n);
}

double average_busbw(const PerfReport& report) {
  double sum = 0, halves = 0;
  for_each_half(report, [&](const PerfRow& row, const PerfHalf& half) {
    sum += busbw(report, row, half);
    ++halves;
  });
  return halves > 0 ? sum / halves : 0;
}

IterationStats statistics(const PerfReport& report, const PerfHalf& half) {
  std::vector<double> times = slowest_rank(half.rank_us);
  const auto skipped = static_cast<std::size_t>(report.skip_iterations);
  if (skipped < times.size())
    times.erase(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(skipped));
  return iteration_stats(std::move(times));
}

std::vector<std::string> missed_limits(const PerfReport& report, std::size_t& unknown) {
  std::vector<std::string> lines;
  const PerfLimits& limits = report.limits;
  std::uint64_t largest = 0;
  for (const PerfRow& row : report.rows) largest = std::max(largest, row.bytes);
  for_each_half(report, [&](const PerfRow& row, const PerfHalf& half) {
    const double GBps = busbw(report, row, half);
    if (limits.busbw > 0 && row.bytes == largest && !(GBps >= limits.busbw))
      lines.push_back(fmt::format("{}: busbw {} GB/s is below --min-busbw {:g}",
                                  named(report, row, half), format_GBps(GBps), limits.busbw));
    if (limits.share <= 0) return;
    const double share = half.predicted_us / half.time_us.p50;
    if (half.predicted_us <= 0) {
      ++unknown;
      lines.push_back(fmt::format("{}: no prediction for {}, which --expect requires",
                                  named(report, row, half), half.algorithm));
    } else if (!(share >= limits.share)) {
      lines.push_back(fmt::format(
          "{}: {} us, {} us predicted of {}: {:.2f} of the expected speed is below --expect {:g}",
          named(report, row, half), format_us(half.time_us.p50), format_us(half.predicted_us),
          half.algorithm, share, limits.share));
    }
  });
  constexpr double kOfAverage = 0.9;  // nccl-tests' threshold
  if (limits.average_busbw > 0 && !(average_busbw(report) >= kOfAverage * limits.average_busbw))
    lines.push_back(
        fmt::format("the average bus bandwidth, {:.4g} GB/s, is below 0.9 of "
                    "NCCL_TESTS_MIN_BW={:g}",
                    average_busbw(report), limits.average_busbw));
  return lines;
}

std::optional<double> of_bound(const PerfHalf& half) {
  if (half.bound_us <= 0 || half.time_us.p50 <= 0) return std::nullopt;
  return half.bound_us / half.time_us.p50;
}

namespace {

std::string time_in_words(const PerfReport& report) {
  const std::string ranks = of_ranks_in_words(report.of_ranks);
  const std::string runs = report.aggregate > 1
                               ? fmt::format("iterations of {} operations", report.aggregate)
                               : "operations";
  if (!report.back_to_back)
    return fmt::format("median of the {}, {}, a barrier before each", runs, ranks);
  return report.per_iteration ? fmt::format("median of the {}, {}, no barrier between", runs, ranks)
                              : fmt::format("total / operations, back to back, {}", ranks);
}

std::string split_in_words(const PerfReport& report) {
  if (report.split.empty()) return "";
  return fmt::format("# {}: {} groups run at the same time; rows are about all, busbw is of one\n",
                     report.split, report.groups.size());
}

}  // namespace

std::string header(const PerfReport& report) {
  std::string place =
      fmt::format("{} {} on {} {}", report.ranks, report.ranks == 1 ? "rank" : "ranks",
                  report.hosts, report.hosts == 1 ? "host" : "hosts");
  if (report.hosts > 1)
    place += fmt::format(" x {} {}{}", report.rails, report.rails == 1 ? "rail" : "rails",
                         report.emulated ? ", emulated on one machine" : "");
  return fmt::format("# weft perf {}: {}\n# {}; {} memory{}{}\n# time: {}\n",
                     name(report.collective), place,
                     transports_in_words(report.transport, report.ranks, report.hosts,
                                         report.memory_shared, report.between_hosts),
                     report.buffers,
                     report.compress == "none" ? "" : fmt::format(", {} blocks", report.compress),
                     !report.out_of_place ? ", in place"
                     : !report.in_place   ? ", out of place"
                                          : "",
                     time_in_words(report)) +
         split_in_words(report) + place_in_words(report) + bound_in_words(report);
}

std::string footer(const PerfReport& report) {
  std::string ports;
  for (const std::string& line : trouble(report.counts)) ports += fmt::format("# {}\n", line);
  std::size_t unknown = 0;
  std::string limits;
  for (const std::string& line : missed_limits(report, unknown))
    limits += paint(Paint::kBad, wrapped("# MISSED: " + line, kColumns, "#   ")) + "\n";
  return ports + groups_in_words(report) + above_bound(report) + average(report) + report.memory +
         limits + verdict(report);
}

std::string port_lines(const PerfRow& row) {
  std::string lines;
  for (const RailCount& c : row.ports)
    if (const std::string line = evidence(c.rail, c.host, c.changes); !line.empty())
      lines += wrapped("# " + line, kColumns, "#   ") + "\n";
  return lines.empty() ? "# no counter of a port moved\n" : lines;
}

namespace {

// Adds the fields that a row and its "in_place" object share.
void add_half(nlohmann::ordered_json& json, const PerfReport& report, const PerfRow& row,
              const PerfHalf& half) {
  json["algorithm"] = half.algorithm;
  json["iterations"] = half.iterations;
  json["time_us_min"] = half.time_us.min;
  json["time_us_p50"] = half.time_us.p50;
  json["time_us_p99"] = half.time_us.p99;
  json["time_us_max"] = half.time_us.max;
  json["algbw_GBps"] = algbw(row, half);
  json["busbw_GBps"] = busbw(report, row, half);
  json["of_bound"] = nullptr;
  json["wrong"] = nullptr;
  if (const auto share = of_bound(half)) {
    json["of_bound"] = *share;
    json["bound_us"] = half.bound_us;
  }
  if (half.wrong) json["wrong"] = *half.wrong;
  if (half.predicted_us > 0) json["predicted_us"] = half.predicted_us;
  if (!half.rank_us.empty()) json["rank_us"] = half.rank_us;
  for (std::size_t g = 0; g < half.group_us.size(); ++g) {
    json["group_us"].push_back(half.group_us[g]);
    json["group_busbw_GBps"].push_back(busbw(report, row, half, g));
  }
}

}  // namespace

nlohmann::ordered_json to_json(const PerfReport& report) {
  nlohmann::ordered_json json = {{"schema", "weft.perf/1"},
                                 {"collective", name(report.collective)},
                                 {"ranks", report.ranks},
                                 {"hosts", report.hosts},
                                 {"rails", report.rails},
                                 {"emulated", report.emulated},
                                 {"transport", report.transport},
                                 {"buffers", report.buffers},
                                 {"in_place", !report.out_of_place},
                                 {"back_to_back", report.back_to_back}};
  if (report.compress != "none") json["compress"] = report.compress;
  if (report.hosts > 1 && report.rail.gbps > 0) {
    json["rail_gbps"] = report.rail.gbps;
    json["rail_rate_from"] = report.rail.declared ? "declared" : "measured";
  }
  json["rows"] = nlohmann::ordered_json::array();
  for (const PerfRow& row : report.rows) {
    nlohmann::ordered_json r = {{"bytes", row.bytes},
                                {"count", row.count},
                                {"type", name(row.type)},
                                {"op", op_name(report, row)},
                                {"root", row.root}};
    add_half(r, report, row, first_half(row));
    if (report.out_of_place && report.in_place) {  // null: the form does not exist
      r["in_place"] = nullptr;
      if (row.in_place) add_half(r["in_place"], report, row, *row.in_place);
    }
    if (report.ports) r["ports"] = to_json(row.ports);
    json["rows"].push_back(std::move(r));
  }
  if (!report.split.empty()) json["split"] = report.split;
  for (const PerfGroup& g : report.groups)
    json["groups"].push_back({{"color", g.color}, {"ranks", g.ranks}});
  std::size_t unknown = 0;
  if (const auto missed = missed_limits(report, unknown); !missed.empty()) json["missed"] = missed;
  if (!report.counts.empty()) json["ports"] = to_json(report.counts);
  if (!report.failure.ok()) {
    json["error"] = {{"code", name(report.failure.code())}, {"message", report.failure.message()}};
    if (report.failure.rank() != kNoRank) json["error"]["rank"] = report.failure.rank();
  }
  return json;
}

}  // namespace weft
