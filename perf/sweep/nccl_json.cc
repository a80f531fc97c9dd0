// Writes nccl-tests' JSON. Field names and types follow its src/util.cu: booleans are strings, and
// the root is a string padded to six columns.
#include "perf/sweep/nccl_json.h"

#include <fmt/format.h>
#include <unistd.h>

#include <ctime>
#include <fstream>
#include <string_view>

namespace weft {
namespace {

using Json = nlohmann::ordered_json;

const char* truth(bool value) { return value ? "true" : "false"; }

Json arguments() {
  Json all = Json::array();
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  for (std::string argument; std::getline(file, argument, '\0');) all.push_back(argument);
  return all;
}

Json environment() {
  Json all = Json::array();
  for (char** e = environ; *e != nullptr; ++e) {
    const std::string_view variable = *e;
    if (variable.starts_with("WEFT_SECRET")) continue;
    for (const char* of : {"WEFT_", "NCCL_", "SLURM_", "OMPI_", "PMIX_", "UCX_"})
      if (variable.starts_with(of)) all.push_back(variable);
  }
  return all;
}

Json config(const PerfReport& report, const NcclRun& run) {
  int iterations = 0;
  for (const PerfRow& row : report.rows)
    iterations = std::max(iterations, first_half(row).iterations);
  Json json = {
      {"nthreads", 1}, {"ngpus", 1}, {"minimum_bytes", run.begin}, {"maximum_bytes", run.end}};
  if (run.step > 0)
    json["step_bytes"] = run.step;
  else
    json["step_factor"] = run.factor;
  json["warmup_iters"] = run.warm_up;
  json["iterations"] = iterations;
  json["aggregated_iterations"] = report.aggregate;
  json["validation"] = run.checks;
  json["graph"] = 0;
  json["blocking_collectives"] = truth(run.blocking != 0);
  json["per_iter_timing"] = truth(report.per_iteration);
  json["per_iter_skip"] = report.skip_iterations;
  json["parallel_init"] = truth(true);
  json["devices"] = Json::array();
  for (std::size_t r = 0; r < run.devices.size(); ++r) {
    const NcclDevice& d = run.devices[r];
    json["devices"].push_back({{"rank", r},
                               {"group", d.group},
                               {"pid", d.pid},
                               {"hostname", d.host},
                               {"device", d.device},
                               {"device_hex", ""},
                               {"device_info", d.info}});
  }
  return json;
}

Json body(const PerfReport& report, const PerfRow& row, const PerfHalf& half) {
  Json json = {{"time", half.time_us.p50},
               {"alg_bw", algbw(row, half)},
               {"bus_bw", busbw(report, row, half)},
               {"nwrong", nullptr}};
  if (half.wrong) json["nwrong"] = static_cast<double>(*half.wrong);
  return json;
}

Json iterations(const PerfReport& report, const PerfHalf& half) {
  const IterationStats s = statistics(report, half);
  Json json = {{"skipped_iterations", report.skip_iterations},
               {"min_us", s.min},
               {"max_us", s.max},
               {"avg_us", s.mean},
               {"p50_us", s.p50},
               {"p95_us", s.p95},
               {"p99_us", s.p99},
               {"stdev_us", s.deviation},
               {"cv_pct", s.percent()},
               {"times_us", slowest_rank(half.rank_us)}};
  if (half.rank_us.size() > 1) json["per_process_max_times_us"] = half.rank_us;
  return json;
}

}  // namespace

nlohmann::ordered_json to_nccl_json(const PerfReport& report, const NcclRun& run) {
  Json json = {{"version", 3},
               {"start_time", run.started},
               {"args", arguments()},
               {"env", environment()},
               {"nccl_version", 0},
               {"weft_version", WEFT_VERSION},
               {"config", config(report, run)},
               {"results", Json::array()}};
  std::uint64_t wrong = 0;
  for (const PerfRow& row : report.rows) {
    Json r = {{"size", row.bytes},
              {"count", row.count},
              {"type", name(row.type)},
              {"redop", op_name(report, row)},
              {"root", fmt::format("{:>6}", row.root)},
              {"out_of_place", nullptr}};
    for (const auto& [key, half] :
         {std::pair{"out_of_place", &row.out_of_place}, {"in_place", &row.in_place}}) {
      if (!*half) continue;
      wrong += (*half)->wrong.value_or(0);
      r[key] = body(report, row, **half);
      if (!(*half)->rank_us.empty()) r[std::string(key) + "_per_iter"] = iterations(report, **half);
    }
    r["actual_iterations"] = first_half(row).iterations;
    r["experiment_name"] = "";
    json["results"].push_back(std::move(r));
  }
  const double average = average_busbw(report), least = report.limits.average_busbw;
  json["out_of_bounds"] = {{"count", wrong}, {"okay", truth(wrong == 0)}};
  json["average_bus_bandwidth"] = {
      {"bandwidth", average}, {"okay", least <= 0 ? "unchecked" : truth(average >= 0.9 * least)}};
  json["errors"] = Json::array();
  if (!report.failure.ok()) json["errors"].push_back(report.failure.message());
  json["end_time"] = run.ended;
  return json;
}

std::string time_stamp() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  localtime_r(&now, &parts);
  char text[32];
  return std::string(text, std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts));
}

}  // namespace weft
