// The document of --json: the verdict and its reasons first, then what they rest on, down to raw
// samples.
#include <fmt/format.h>

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

template <typename T>
void put(ReportJson& json, const char* key, const std::optional<T>& value) {
  if (value) json[key] = *value;
}

ReportJson findings_json(const Report& report) {
  auto list = ReportJson::array();
  for (const Finding& finding : report.judgement.findings) {
    ReportJson json = to_json(finding);
    json["sentence"] = in_words(finding);
    if (std::string remedy = remedy_of(finding.id); !remedy.empty())
      json["remedy"] = std::move(remedy);
    list.push_back(std::move(json));
  }
  return list;
}

ReportJson coverage_json(const Report& report) {
  auto list = ReportJson::array();
  for (const Coverage& row : report.judgement.coverage)
    list.push_back({{"check", row.id}, {"judged", row.judged}, {"total", row.total}});
  return list;
}

ReportJson ports_json(const Report& report) {
  auto list = ReportJson::array();
  for (const PortNumbers& p : port_numbers(report)) {
    ReportJson json = {{"host", p.host}, {"rail", p.port.rail}, {"device", p.device}};
    put(json, "expected_gbps", p.expected_gbps);
    put(json, "transmit_gbps", p.transmit_gbps);
    put(json, "receive_gbps", p.receive_gbps);
    put(json, "lowest_window_gbps", p.lowest_gbps);
    put(json, "p50_us", p.p50_us);
    put(json, "p99_us", p.p99_us);
    put(json, "p999_us", p.p999_us);
    put(json, "loss_per_packet", p.loss_per_packet);
    list.push_back(std::move(json));
  }
  return list;
}

// A row for each port: the changes of its counters; of a change that is not exact, the state too.
ReportJson counters_json(const Report& report) {
  auto list = ReportJson::array();
  for (const CounterChange& c : counter_changes(report)) {
    if (list.empty() || list.back()["host"] != c.host || list.back()["rail"] != c.rail)
      list.push_back({{"host", c.host},
                      {"rail", c.rail},
                      {"device", c.device},
                      {"changes", ReportJson::object()}});
    ReportJson& change = list.back()["changes"][c.name];
    if (c.change.state == ChangeState::kKnown)
      change = c.change.change;
    else if (c.change.state == ChangeState::kUnknown)
      change = {{"state", word_of(c.change.state)}};
    else
      change = {{"state", word_of(c.change.state)}, {"change", c.change.change}};
  }
  return list;
}

ReportJson facts_json(const FleetFacts& facts) {
  auto hosts = ReportJson::array();
  for (const HostFacts& host : facts.hosts) hosts.push_back(to_json(host));
  return {{"between_readings_s", facts.seconds}, {"hosts", std::move(hosts)}};
}

ReportJson samples_json(const Samples& samples) {
  auto rounds = ReportJson::array(), flows = ReportJson::array();
  for (const Round& round : samples.rounds)
    rounds.push_back({{"probe", name(round.probe)}, {"duration_s", round.seconds}});
  for (const FlowSample& flow : samples.flows) flows.push_back(to_json(flow));
  return {{"time_s", samples.seconds},
          {"rounds", std::move(rounds)},
          {"flows", std::move(flows)}};
}

std::string dumped(const ReportJson& json) {
  return json.dump(-1, ' ', false, ReportJson::error_handler_t::replace);
}

// Writes members of objects down to `levels`, and items of lists of objects, on lines of their own.
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

nlohmann::ordered_json to_json(const Report& report) {
  FieldWriter writer;
  FieldsOf<Report>::visit(writer, report);
  ReportJson fields = writer.take(), json;
  for (const char* key : {"schema", "verdict"}) json[key] = fields[key];
  json["exit_code"] = static_cast<int>(report.verdict);
  json["headline"] = headline(report);
  json["findings"] = findings_json(report);
  for (auto& [key, value] : fields.items())
    if (!json.contains(key)) json[key] = std::move(value);
  if (!json.contains("hosts")) json["hosts"] = ReportJson::array();  // which a reader demands
  json["coverage"] = coverage_json(report);
  json["ports"] = ports_json(report);
  json["counters"] = counters_json(report);
  json["facts"] = facts_json(report.facts);
  json["samples"] = samples_json(report.samples);
  return json;
}

std::string json_text(const Report& report) {
  std::string text;
  write_lines(to_json(report), 2, "", text);
  return text + "\n";
}

}  // namespace weft::fabric
