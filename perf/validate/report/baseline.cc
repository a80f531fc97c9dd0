// Stores the numbers of ports and compares a run with them.
#include "perf/validate/report/baseline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "coll/jobs/report.h"
#include "perf/validate/facts/json_fields.h"
#include "perf/validate/report/port_numbers.h"
#include "perf/validate/report/words.h"

namespace weft::fabric {

template <typename A, Of<Baseline> T>
void fields(A& a, T& b) {
  a("schema", b.schema);
  a("started", b.started);
  a("transport", b.transport);
  a("emulated", b.emulated);
  a("simulated", b.simulated);
  a("rails", b.rails);
  a("hosts", b.hosts);
  a("numbers", b.numbers);
}

namespace {

using Document = nlohmann::ordered_json;

constexpr std::size_t kMostNamed = 8;  // hosts in an error

std::vector<std::string> missing_from(const std::vector<std::string>& some,
                                      const std::vector<std::string>& others) {
  std::vector<std::string> missing;
  for (const std::string& one : some)
    if (std::find(others.begin(), others.end(), one) == others.end()) missing.push_back(one);
  return missing;
}

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size() && i < kMostNamed; ++i)
    text += (i ? ", " : "") + printable(names[i]);
  if (names.size() > kMostNamed) text += fmt::format(" and {} more", names.size() - kMostNamed);
  return text;
}

// Throws Error unless both are comparable.
void check_alike(const Baseline& before, const Baseline& now, const std::string& path) {
  const std::vector<std::string> gone = missing_from(before.hosts, now.hosts);
  const std::vector<std::string> added = missing_from(now.hosts, before.hosts);
  const auto kind = [](const Baseline& b) {
    return fmt::format("{} rails, {}{}", b.rails, b.transport,
                       b.simulated  ? ", simulated"
                       : b.emulated ? ", emulated"
                                    : "");
  };
  std::string why;
  if (!gone.empty() || !added.empty()) {
    why = "of other hosts:";
    if (!gone.empty()) why += fmt::format(" {} are not in this run", listed(gone));
    if (!added.empty())
      why += fmt::format("{} {} are not in the baseline", gone.empty() ? "" : ",", listed(added));
  } else if (kind(before) != kind(now)) {
    why = fmt::format("of another kind of run ({}; this run: {})", kind(before), kind(now));
  } else {
    return;
  }
  throw Error(
      fmt::format("--baseline {}: {}. Give each fleet a file of its own, or remove this one "
                  "to store a new baseline",
                  path, why));
}

// How much worse a number is: 1 if equal. Rates get worse by falling, latencies by rising.
double worse_by(const std::string& name, double before, double now) {
  return name.ends_with("_gbps") ? before / now : now / before;
}

}  // namespace

Baseline baseline_of(const Report& report) {
  Baseline baseline;
  baseline.started = report.started;
  baseline.transport = report.transport;
  baseline.emulated = report.emulated;
  baseline.simulated = report.simulated;
  baseline.rails = report.rails;
  for (const FleetHost& host : report.hosts) baseline.hosts.push_back(host.name);
  for (const PortNumbers& p : port_numbers(report)) {
    const auto put = [&](const char* name, const std::optional<double>& value) {
      if (value)
        baseline.numbers[fmt::format("port.{}.rail{}.{}", p.host, p.port.rail, name)] = *value;
    };
    put("transmit_gbps", p.transmit_gbps);
    put("receive_gbps", p.receive_gbps);
    put("p50_us", p.p50_us);
    put("p99_us", p.p99_us);
  }
  return baseline;
}

void write_baseline(const Baseline& baseline, const std::string& path) {
  const std::string text =
      FieldWriter::written(baseline).dump(2, ' ', false, Document::error_handler_t::replace);
  write_report(path, text + "\n", "--baseline");
}

Baseline read_baseline(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::error_code ignored;
  if (!file || std::filesystem::is_directory(path, ignored))
    throw Error(fmt::format("--baseline {}: cannot be read: {}", path,
                            errno ? std::strerror(errno) : "a folder"));
  // Values are read recursively, so limit the depth.
  const auto flat = [&](int depth, Document::parse_event_t, Document&) {
    if (depth > 64) throw Error(fmt::format("--baseline {}: nested too deeply", path));
    return true;
  };
  const Document json = Document::parse(file, flat, false);
  Baseline baseline;
  const std::string schema = baseline.schema;
  try {
    if (json.is_object() && json.value("schema", "").starts_with("weft.validate/"))
      return baseline_of(report_from_json(json));
    const FieldReader read(json, "");
    for (const char* key : {"schema", "hosts", "numbers"}) read.demand(key);
    baseline = read_fields<Baseline>(json);
  } catch (const Error& e) {
    throw Error(fmt::format("--baseline {}: neither a baseline nor a report of --json: {}", path,
                            e.what()));
  }
  if (baseline.schema != schema)
    throw Error(fmt::format("--baseline {}: schema \"{}\", and not {}", path,
                            printable(baseline.schema), schema));
  return baseline;
}

std::vector<Drift> drift_since(const Baseline& baseline, const Report& report,
                               const std::string& path) {
  const Baseline now = baseline_of(report);
  check_alike(baseline, now, path);
  const Thresholds& t = report.policy.thresholds;
  std::vector<Drift> drift;
  for (const auto& [name, before] : baseline.numbers) {
    const auto found = now.numbers.find(name);
    if (found == now.numbers.end() || before == found->second) continue;
    const double allowed = name.ends_with("_gbps") ? 1 / t.warn_rate : t.warn_latency;
    const double off = worse_by(name, before, found->second);
    if (off > allowed || off < 1 / allowed) drift.push_back({name, before, found->second});
  }
  // Order: degradations, then improvements.
  std::stable_sort(drift.begin(), drift.end(), [](const Drift& a, const Drift& b) {
    return worse_by(a.name, a.before, a.now) > worse_by(b.name, b.before, b.now);
  });
  return drift;
}

bool compare_with_baseline(const std::string& path, Report& report) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return false;
  report.drift = drift_since(read_baseline(path), report, path);
  report.baseline = path;
  return true;
}

bool store_baseline(const std::string& path, Report& report) {
  if (report.verdict == Verdict::kCritical || report.verdict == Verdict::kTester) {
    report.baseline_note =
        fmt::format("not stored in {}, because the verdict is {}: repair the faults first",
                    printable(path), word_of(report.verdict));
    return true;
  }
  write_baseline(baseline_of(report), path);
  return true;
}

}  // namespace weft::fabric
