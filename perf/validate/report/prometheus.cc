// Metrics of a run for the textfile collector of node_exporter; values that were not measured are
// omitted. Source: Prometheus, "Text-based format", version 0.0.4.
#include <fmt/format.h>

#include <cmath>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "perf/validate/report/counters.h"
#include "perf/validate/report/port_numbers.h"
#include "perf/validate/report/report.h"
#include "perf/validate/report/words.h"

namespace weft::fabric {
namespace {

using Labels = std::vector<std::pair<std::string_view, std::string>>;

// Collects metrics by family, because the format requires a family's samples in one group.
class Exposition {
 public:
  // Begins a family: samples belong to it until the next one.
  void family(std::string_view name, std::string_view help) {
    end_family();
    name_ = fmt::format("weft_validate_{}", name);
    help_ = help;
  }
  // Adds a sample. Omits it if it has no finite value, or if an earlier one has the same labels.
  void add(const Labels& labels, std::optional<double> value) {
    if (!value || !std::isfinite(*value)) return;
    std::string list;
    for (const auto& [label, text] : labels)
      list += fmt::format("{}{}=\"{}\"", list.empty() ? "" : ",", label, quoted(text));
    if (!seen_.insert(list).second) return;
    const bool whole = *value == std::floor(*value) && std::abs(*value) < 1e15;
    samples_ += fmt::format("{}{} {}\n", name_, list.empty() ? "" : "{" + list + "}",
                            whole ? fmt::format("{:.0f}", *value) : fmt::format("{:.6g}", *value));
  }
  std::string take() {
    end_family();
    return std::move(text_);
  }

 private:
  void end_family() {
    if (!samples_.empty())
      text_ += fmt::format("# HELP {0} {1}\n# TYPE {0} gauge\n{2}", name_, help_, samples_);
    samples_.clear();
    seen_.clear();
  }
  static std::string quoted(std::string_view text) {
    std::string out;
    for (const char c : printable(text)) {
      if (c == '\\' || c == '"') out += '\\';
      out += c;
    }
    return out;
  }

  std::string name_, help_, samples_, text_;
  std::set<std::string> seen_;
};

Labels labels_of(const PortNumbers& p, Labels more = {}) {
  Labels labels = {
      {"host", p.host}, {"rail", fmt::format("{}", p.port.rail)}, {"device", p.device}};
  labels.insert(labels.end(), more.begin(), more.end());
  return labels;
}

std::optional<double> scaled(const std::optional<double>& value, double factor) {
  return value ? std::optional<double>(*value * factor) : std::nullopt;
}

std::optional<double> positive(double value) {
  return value > 0 ? std::optional<double>(value) : std::nullopt;
}

void add_run(const Report& report, Exposition& out) {
  out.family("verdict", "0 OK, 1 WARN, 2 CRITICAL, 3 UNKNOWN, 4 the tester itself.");
  out.add({}, static_cast<double>(report.verdict));
  out.family("info", "The run: 1, with its properties as labels.");
  out.add({{"version", report.version},
           {"started", report.started},
           {"transport", report.transport},
           {"emulated", report.emulated ? "true" : "false"},
           {"simulated", report.simulated ? "true" : "false"}},
          1);
  out.family("duration_seconds", "Time that the run took.");
  out.add({}, report.seconds);
  out.family("hosts", "Hosts that took part.");
  out.add({}, static_cast<double>(report.hosts.size()));
  out.family("smallest_loss_ratio", "Loss per packet that the run would have seen.");
  out.add({}, report.plan.smallest_loss < 1 ? positive(report.plan.smallest_loss) : std::nullopt);
  out.family("smallest_rate_cut_ratio",
             "Share of a port's rate whose loss the run would have seen.");
  out.add({}, positive(report.plan.smallest_rate_cut));
}

// One line per cause; findings that others explain are left out.
void add_findings(const Report& report, Exposition& out) {
  std::map<std::string, int> counts = {{"warn", 0}, {"critical", 0}, {"unknown", 0}};
  const auto severity_of = [](const Finding& f) {
    return f.unknown ? "unknown" : f.severity > Severity::kWarn ? "critical" : "warn";
  };
  std::vector<std::pair<const Finding*, Labels>> rows;
  for (const Finding& f : report.judgement.findings) {
    if (f.severity == Severity::kInfo || !f.explained_by.empty()) continue;
    ++counts[severity_of(f)];
    if (f.unknown) continue;
    Labels& labels = rows.emplace_back(&f, Labels{}).second;
    labels = {{"check", f.id},
              {"severity", severity_of(f)},
              {"place", std::string(word_of(f.where.kind))}};
    if (!f.where.host.empty()) labels.emplace_back("host", f.where.host);
    if (f.where.rail >= 0) labels.emplace_back("rail", fmt::format("{}", f.where.rail));
    if (!f.where.peer.empty()) labels.emplace_back("peer", f.where.peer);
    labels.emplace_back("direction", std::string(word_of(f.where.direction)));
  }
  out.family("findings", "Causes by severity.");
  for (const auto& [severity, count] : counts) out.add({{"severity", severity}}, count);
  out.family("finding_certainty", "A finding: how sure its place is, as a label; always 1.");
  for (auto [f, labels] : rows) {
    labels.emplace_back("certainty", std::string(word_of(certainty_of(f->score))));
    out.add(labels, 1);
  }
  const auto numbers = [&](double Finding::*number) {
    for (auto [f, labels] : rows) {
      if (f->unit == Unit::kText || f->unit == Unit::kNone) continue;
      labels.emplace_back("unit", std::string(word_of(f->unit)));
      out.add(labels, f->*number);
    }
  };
  out.family("finding_value", "The measured or read value.");
  numbers(&Finding::value);
  out.family("finding_expected", "The expected value.");
  numbers(&Finding::expected);
  int judged = 0, left = 0;
  for (const Coverage& c : report.judgement.coverage)
    if (c.total > 0) ++(c.judged == c.total ? judged : left);
  out.family("checks",
             "Checks that could be evaluated at all places to which they apply, and others.");
  out.add({{"checked", "true"}}, judged);
  out.add({{"checked", "false"}}, left);
}

// Traffic counters do not indicate faults, and node_exporter exports them anyway.
bool is_traffic(std::string_view name) {
  if (name.starts_with("tcp."))
    return name != "tcp.RetransSegs" && name != "tcp.InErrs" && name != "tcp.InCsumErrors" &&
           name != "tcp.ListenDrops" && name != "tcp.TCPTimeouts";
  for (const std::string_view word : {"bytes", "packets", "pkts", "_data", "multicast", "unicast"})
    if (name.find(word) != name.npos)
      return name.find("marked") == name.npos && name.find("oversize") == name.npos &&
             name.find("missed") == name.npos;
  return false;
}

void add_ports(const Report& report, Exposition& out) {
  const std::vector<PortNumbers> ports = port_numbers(report);
  out.family("port_rate_bits_per_second", "Median rate of a port's flows.");
  for (const PortNumbers& p : ports) {
    out.add(labels_of(p, {{"direction", "transmit"}}), scaled(p.transmit_gbps, 1e9));
    out.add(labels_of(p, {{"direction", "receive"}}), scaled(p.receive_gbps, 1e9));
  }
  out.family("port_expected_rate_bits_per_second", "Declared or advertised rate, less headers.");
  for (const PortNumbers& p : ports) out.add(labels_of(p), scaled(p.expected_gbps, 1e9));
  out.family("port_latency_p99_seconds", "99th percentile of the latency of what a port sends.");
  for (const PortNumbers& p : ports) out.add(labels_of(p), scaled(p.p99_us, 1e-6));
  out.family("port_loss_ratio", "Packets sent again, per packet, where there are any.");
  for (const PortNumbers& p : ports) {
    if (p.sent_lost > 0) out.add(labels_of(p, {{"direction", "transmit"}}), p.sent_lost);
    if (p.received_lost > 0) out.add(labels_of(p, {{"direction", "receive"}}), p.received_lost);
  }
  out.family("counter_change", "Change of a counter within the run; traffic counters are omitted.");
  for (const CounterChange& c : counter_changes(report)) {
    if (!c.change.exact() || is_traffic(c.name)) continue;
    Labels labels = {{"host", c.host}};
    if (c.rail >= 0)
      labels.insert(labels.end(), {{"rail", fmt::format("{}", c.rail)}, {"device", c.device}});
    labels.emplace_back("counter", c.name);
    out.add(labels, static_cast<double>(c.change.change));
  }
}

void add_collectives(const Report& report, Exposition& out) {
  if (report.collectives.empty()) return;
  int cases = 0, wrong = 0;
  std::optional<double> reached, allowed;
  for (const CollectiveResult& c : report.collectives) {
    cases += c.cases;
    wrong += c.wrong;
    if (c.busbw_gbps <= 0) continue;
    reached = c.busbw_gbps;
    allowed = positive(c.predicted_busbw_gbps);
  }
  out.family("collective_cases", "Cases of collectives that were compared bit by bit.");
  out.add({}, cases);
  out.family("collective_wrong_cases", "Cases whose result was wrong.");
  out.add({}, wrong);
  out.family("all_reduce_busbw_bits_per_second", "busbw of the all_reduce that was timed.");
  out.add({}, scaled(reached, 1e9));
  out.family("all_reduce_predicted_busbw_bits_per_second", "busbw that the measured pairs allow.");
  out.add({}, scaled(allowed, 1e9));
}

}  // namespace

std::string to_prometheus(const Report& report) {
  Exposition out;
  add_run(report, out);
  add_findings(report, out);
  add_ports(report, out);
  add_collectives(report, out);
  return out.take();
}

}  // namespace weft::fabric
