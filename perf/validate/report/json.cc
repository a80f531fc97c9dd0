// The document of --json: the verdict and its reasons first, then the data behind them.
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "perf/validate/report/counters.h"
#include "perf/validate/report/faults.h"
#include "perf/validate/report/port_numbers.h"
#include "perf/validate/report/report.h"
#include "perf/validate/report/report_fields.h"
#include "perf/validate/report/words.h"

namespace weft::fabric {
namespace {

using ReportJson = nlohmann::ordered_json;

// Writes whole numbers exactly and all others with five digits.
void shorten(ReportJson& json) {
  if (json.is_structured()) {
    for (auto& item : json) shorten(item);
  } else if (json.is_number_float()) {
    const double value = json.get<double>();
    if (value == std::floor(value) && std::abs(value) < 1e15)
      json = static_cast<std::int64_t>(value);
    else if (std::isfinite(value))
      json = std::stod(fmt::format("{:.5g}", value));
  }
}

ReportJson findings_json(const Report& report) {
  auto list = ReportJson::array();
  for (const Finding& finding : report.judgement.findings) {
    ReportJson json = to_json(finding);
    json["sentence"] = in_words(finding);
    if (finding.explained_by.empty()) {
      json["detail"] = detail_in_words(finding, report);
      if (std::string remedy = remedy_of(finding); !remedy.empty())
        json["remedy"] = std::move(remedy);
    }
    list.push_back(std::move(json));
  }
  return list;
}

// By check: the number of places that were judged, and to which the check applies.
ReportJson coverage_json(const Report& report) {
  auto all = ReportJson::object();
  for (const Coverage& row : report.judgement.coverage)
    all[std::string(row.id)] = {row.judged, row.total};
  return all;
}

ReportJson collectives_json(const Report& report) {
  auto list = ReportJson::array();
  for (const CollectiveResult& result : report.collectives) {
    ReportJson json = FieldWriter::written(result);
    for (const char* key : {"busbw_gbps", "predicted_busbw_gbps", "link_busbw_gbps", "timed_bytes"})
      if (json[key] == 0) json.erase(key);
    if (result.wrong_host.empty()) json.erase("wrong_sends");
    list.push_back(std::move(json));
  }
  return list;
}

ReportJson ports_json(const Report& report) {
  auto list = ReportJson::array();
  for (const PortNumbers& port : port_numbers(report))
    list.push_back(FieldWriter::written(port, Empty::kNull));
  return list;
}

// Returns one row per sending port: destination (an index of `hosts`), Gb/s, and microseconds per
// message. 0 Gb/s: nothing arrived.
ReportJson paths_json(const Report& report) {
  auto list = ReportJson::array();
  for (const PathNumbers& path : path_numbers(report)) {
    if (path.from.rail != path.to.rail) continue;
    if (list.empty() || list.back()["rail"] != path.from.rail ||
        list.back()["from"] != path.from.host)
      list.push_back(
          {{"rail", path.from.rail}, {"from", path.from.host}, {"to", ReportJson::array()}});
    auto row = ReportJson::array({path.to.host, ReportJson(), ReportJson()});
    if (path.gbps || !path.reached) row[1] = path.reached ? *path.gbps : 0;
    if (path.p50_us) row[2] = *path.p50_us;
    list.back()["to"].push_back(std::move(row));
  }
  return list;
}

// Returns one row per port, and per host: the changes of its counters, with the state if a change
// is not exact.
ReportJson counters_json(const Report& report) {
  auto list = ReportJson::array();
  for (const CounterChange& c : counter_changes(report)) {
    if (list.empty() || list.back()["host"] != c.host || list.back().value("rail", -1) != c.rail) {
      list.push_back({{"host", c.host}});
      if (c.rail >= 0) list.back().update({{"rail", c.rail}, {"device", c.device}});
      list.back()["changes"] = ReportJson::object();
    }
    ReportJson& change = list.back()["changes"][c.name];
    if (c.change.state == ChangeState::kKnown)
      change = c.change.change;
    else
      change = {{"state", word_of(c.change.state)}, {"change", c.change.change}};
  }
  return list;
}

ReportJson facts_json(const FleetFacts& facts) {
  auto hosts = ReportJson::array();
  for (const HostFacts& host : facts.hosts) {
    ReportJson json = to_json(host);
    for (ReportJson& port : json["ports"])
      for (const char* readings : {"before", "after"}) port.erase(readings);
    hosts.push_back(std::move(json));
  }
  return {{"between_readings_s", facts.seconds}, {"hosts", std::move(hosts)}};
}

ReportJson samples_json(const Samples& samples) {
  auto rounds = ReportJson::array(), flows = ReportJson::array();
  for (const Round& round : samples.rounds)
    rounds.push_back({{"probe", name(round.probe)}, {"duration_s", round.seconds}});
  for (const FlowSample& flow : samples.flows) flows.push_back(to_json(flow));
  return {{"time_s", samples.seconds}, {"rounds", std::move(rounds)}, {"flows", std::move(flows)}};
}

std::string dumped(const ReportJson& json) {
  return json.dump(-1, ' ', false, ReportJson::error_handler_t::replace);
}

// Puts members of objects down to `levels`, and items of lists of objects, on separate lines.
void write_lines(const ReportJson& json, int levels, const std::string& indent, std::string& out) {
  const bool split = !json.empty() && ((json.is_object() && levels > 0) ||
                                       (json.is_array() && json.front().is_object()));
  if (!split) {
    out += dumped(json);
    return;
  }
  const std::string inner = indent + "  ";
  out += json.is_object() ? "{\n" : "[\n";
  bool first = true;
  for (const auto& [key, item] : json.items()) {
    if (!first) out += ",\n";
    first = false;
    out += inner;
    if (json.is_object()) out += dumped(key) + ": ";
    if (json.is_object())
      write_lines(item, levels - 1, inner, out);
    else
      out += dumped(item);
  }
  out += "\n" + indent + (json.is_object() ? "}" : "]");
}

}  // namespace

nlohmann::ordered_json to_json(const Report& report, bool samples) {
  ReportJson fields = FieldWriter::written(report), json;
  json["schema"] = Report().schema;
  json["verdict"] = fields["verdict"];
  json["exit_code"] = static_cast<int>(report.verdict);
  json["headline"] = headline(report);
  json["findings"] = findings_json(report);
  for (auto& [key, value] : fields.items())
    if (!json.contains(key)) json[key] = std::move(value);
  if (!json.contains("hosts")) json["hosts"] = ReportJson::array();  // required by readers
  if (!report.collectives.empty()) json["collectives"] = collectives_json(report);
  json["coverage"] = coverage_json(report);
  json["ports"] = ports_json(report);
  json["paths"] = paths_json(report);
  json["counters"] = counters_json(report);
  json["facts"] = facts_json(report.facts);
  if (samples) {
    json["causes"] = FieldWriter::written(report.causes);
    json["samples"] = samples_json(report.samples);
  }
  shorten(json);
  return json;
}

std::string json_text(const Report& report, bool samples) {
  std::string text;
  write_lines(to_json(report, samples), 2, "", text);
  return text + "\n";
}

}  // namespace weft::fabric
