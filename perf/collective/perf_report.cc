// Writes the report of `weft perf` as text and JSON. Does not measure.
#include "perf/collective/perf_report.h"

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
  return fmt::format("# all results exact\n");
}

// What makes short messages slow on any fabric.
std::string place_in_words(const PerfReport& report) {
  if (report.ranks_here > report.cores)
    return fmt::format("# {} ranks share {} {}: they wait for each other's turns\n",
                       report.ranks_here, report.cores, report.cores == 1 ? "core" : "cores");
  if (report.unbound && report.ranks > 1)
    return "# ranks are not bound to cores, which slows short messages down: weft launch and "
           "mpirun bind them\n";
  return "";
}

// No run is faster than its bound, unless the bound was taken from something slower.
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

// As nccl-tests ends.
std::string average(const PerfReport& report) {
  if (report.rows.empty() || report.collective == Collective::kBarrier) return "";
  double sum = 0, halves = 0;
  for_each_half(report, [&](const PerfRow& row, const PerfHalf& half) {
    sum += busbw(report, row, half);
    ++halves;
  });
  return fmt::format("# Avg bus bandwidth    : {:.4g}\n", sum / halves);
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

std::optional<double> of_bound(const PerfHalf& half) {
  if (half.bound_us <= 0 || half.time_us.p50 <= 0) return std::nullopt;
  return half.bound_us / half.time_us.p50;
}

std::string header(const PerfReport& report) {
  std::string place =
      fmt::format("{} {} on {} {}", report.ranks, report.ranks == 1 ? "rank" : "ranks",
                  report.hosts, report.hosts == 1 ? "host" : "hosts");
  if (report.hosts > 1)
    place += fmt::format(" x {} {}{}", report.rails, report.rails == 1 ? "rail" : "rails",
                         report.emulated ? ", emulated on one machine" : "");
  return fmt::format("# weft perf {}: {}\n# {}; {} memory{}\n# time: {}\n", name(report.collective),
                     place,
                     transports_in_words(report.transport, report.ranks, report.hosts,
                                         report.memory_shared, report.between_hosts),
                     report.buffers,
                     !report.out_of_place ? ", in place"
                     : !report.in_place   ? ", out of place"
                                          : "",
                     report.back_to_back
                         ? "total / operations, back to back, of the slowest rank"
                         : "median of the operations, on the slowest rank, a barrier before each") +
         place_in_words(report) + bound_in_words(report);
}

std::string footer(const PerfReport& report) {
  std::string ports;
  for (const std::string& line : trouble(report.counts)) ports += fmt::format("# {}\n", line);
  return ports + above_bound(report) + average(report) + verdict(report);
}

namespace {

// The fields of a half that are the same in a row and in its "in_place".
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
    if (report.out_of_place && report.in_place) {  // null: there is no such form
      r["in_place"] = nullptr;
      if (row.in_place) add_half(r["in_place"], report, row, *row.in_place);
    }
    json["rows"].push_back(std::move(r));
  }
  if (!report.counts.empty()) json["ports"] = to_json(report.counts);
  if (!report.failure.ok()) {
    json["error"] = {{"code", name(report.failure.code())}, {"message", report.failure.message()}};
    if (report.failure.rank() != kNoRank) json["error"]["rank"] = report.failure.rank();
  }
  return json;
}

}  // namespace weft
