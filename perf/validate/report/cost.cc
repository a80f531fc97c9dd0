// The cost of a fault to a job. All numbers are upper bounds: a job that overlaps communication
// with computation loses less.
#include <fmt/format.h>

#include <algorithm>

#include "perf/validate/report/report.h"
#include "perf/validate/report/words.h"

namespace weft::fabric {
namespace {

constexpr double kGpuHourUsd = 2.50;
constexpr double kCommunicationShare = 0.30;
constexpr double kGpusPerHost = 8;
constexpr double kGpuWatts = 700;  // H100 SXM
constexpr double kKwhUsd = 0;      // a rented GPU-hour includes its energy

double price(const Policy& policy, const char* key, double otherwise) {
  const auto found = policy.cost.find(key);
  return found == policy.cost.end() ? otherwise : found->second;
}

double gpus_of(const Report& report) {
  const std::size_t hosts = std::max(report.hosts.size(), report.facts.hosts.size());
  if (report.policy.cost.contains("gpus_per_host"))
    return report.policy.cost.at("gpus_per_host") * static_cast<double>(hosts);
  double gpus = 0;
  for (const HostFacts& host : report.facts.hosts) gpus += host.gpus;
  return gpus > 0 ? gpus : kGpusPerHost * static_cast<double>(hosts);
}

}  // namespace

Cost cost_of(const Finding& finding, const Report& report) {
  const double left = share_left(finding);
  Cost cost;
  // A job can run on a slow link, but with no other fatal fault.
  const bool fatal = finding.severity == Severity::kFatal && finding.unit != Unit::kGbps;
  cost.stops = !finding.unknown && (fatal || left <= 0);
  if (!cost.stops && left >= 1) return cost;
  const double communication = price(report.policy, "communication_share", kCommunicationShare);
  double lost = 1;  // fraction of all GPU-hours
  if (!cost.stops) {
    cost.slower_step = communication * (1 / left - 1);
    lost = cost.slower_step / (1 + cost.slower_step);
  }
  cost.gpu_hours_per_day = gpus_of(report) * 24 * lost;
  cost.kwh_per_day = cost.gpu_hours_per_day * price(report.policy, "gpu_watts", kGpuWatts) / 1000;
  cost.usd_per_day = cost.gpu_hours_per_day * price(report.policy, "gpu_hour_usd", kGpuHourUsd) +
                     cost.kwh_per_day * price(report.policy, "kwh_usd", kKwhUsd);
  return cost;
}

std::string cost_in_words(const Finding& finding, const Report& report) {
  const Cost cost = cost_of(finding, report);
  if (!cost.stops && cost.slower_step <= 0) return "";
  const std::string what = cost.stops
                               ? "a job stops or hangs"
                               : fmt::format("steps up to {} slower", percent(cost.slower_step));
  return fmt::format("{}: up to {:.0f} GPU-hours, {:.0f} kWh and {:.0f} $ a day", what,
                     cost.gpu_hours_per_day, cost.kwh_per_day, cost.usd_per_day);
}

}  // namespace weft::fabric
