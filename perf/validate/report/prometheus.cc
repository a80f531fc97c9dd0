// Metrics of a run for the textfile collector of node_exporter. What was not measured is omitted.
// Source of the format: Prometheus, "Text-based format", version 0.0.4.
#include <fmt/format.h>

#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "coll/jobs/report.h"
#include "perf/validate/report/counters.h"
#include "perf/validate/report/port_numbers.h"
#include "perf/validate/report/report.h"
#include "perf/validate/report/words.h"

namespace weft::fabric {
namespace {

using Labels = std::vector<std::pair<std::string_view, std::string>>;

// Collects metrics by family, as the format wants a family's samples in one group.
class Exposition {
 public:
  // Begins a family: all samples up to the next family are of this one.
  void family(std::string_view name, std::string_view help) {
    end_family();
    name_ = fmt::format("weft_validate_{}", name);
    help_ = help;
  }
  // Adds a sample; one that has no value, is no number or has the labels of an earlier one is
  // omitted.
  void add(const Labels& labels, std::optional<double> value) {
    if (!value || !std::isfinite(*value)) return;
    std::string list;
    for (const auto& [label, text] : labels)
      list += fmt::format("{}{}=\"{}\"", list.empty() ? "" : ",", label, quoted(text));
    if (!seen_.insert(list).second) return;
    samples_ += list.empty() ? fmt::format("{} {}\n", name_, *value)
                             : fmt::format("{}{{{}}} {}\n", name_, list, *value);
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
  Labels labels = {{"host", p.host}, {"rail", fmt::format("{}", p.port.rail)}, {"device", p.device}};
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
  out.family("info", "The run: 1, with what is known of it as labels.");
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
  out.family("smallest_rate_cut_ratio", "Share of a port's rate whose loss the run would have seen.");
  out.add({}, positive(report.plan.smallest_rate_cut));
}

void add_findings(const Report& report, Exposition& out) {
  std::map<std::string_view, int> counts = {{"warn", 0}, {"fail", 0}, {"fatal", 0}, {"unknown", 0}};
  constexpr std::string_view names[] = {"info", "warn", "fail", "fatal"};
  for (const Finding& f : report.judgement.findings)
    ++counts[f.unknown ? "unknown" : names[static_cast<int>(f.severity)]];
  out.family("findings", "Findings by severity.");
  for (const auto& [severity, count] : counts)
    if (severity != "info") out.add({{"severity", std::string(severity)}}, count);
  out.family("finding_confidence_ratio", "A finding: how sure it is that this is the cause there.");
  for (const Finding& f : report.judgement.findings) {
    if (f.unknown || f.severity == Severity::kInfo) continue;
    Labels labels = {{"check", f.id},
                     {"severity", std::string(names[static_cast<int>(f.severity)])},
                     {"place", std::string(word_of(f.where.kind))}};
    if (!f.where.host.empty()) labels.emplace_back("host", f.where.host);
    if (f.where.rail >= 0) labels.emplace_back("rail", fmt::format("{}", f.where.rail));
    if (!f.where.peer.empty()) labels.emplace_back("peer", f.where.peer);
    labels.emplace_back("direction", std::string(word_of(f.where.direction)));
    out.add(labels, f.confidence);
  }
  out.family("check_judged", "Ports, hosts or paths that a check judged.");
  for (const Coverage& c : report.judgement.coverage) out.add({{"check", std::string(c.id)}}, c.judged);
  out.family("check_total", "Ports, hosts or paths that a check is for.");
  for (const Coverage& c : report.judgement.coverage) out.add({{"check", std::string(c.id)}}, c.total);
}

void add_ports(const Report& report, Exposition& out) {
  const std::vector<PortNumbers> ports = port_numbers(report);
  out.family("port_rate_bits_per_second", "Median rate of a port's flows.");
  for (const PortNumbers& p : ports) {
    out.add(labels_of(p, {{"direction", "transmit"}}), scaled(p.transmit_gbps, 1e9));
    out.add(labels_of(p, {{"direction", "receive"}}), scaled(p.receive_gbps, 1e9));
  }
  out.family("port_expected_rate_bits_per_second", "Declared or advertised rate of a port.");
  for (const PortNumbers& p : ports) out.add(labels_of(p), scaled(p.expected_gbps, 1e9));
  out.family("port_lowest_rate_bits_per_second", "Lowest rate that a port sent at in any window.");
  for (const PortNumbers& p : ports) out.add(labels_of(p), scaled(p.lowest_gbps, 1e9));
  out.family("port_latency_seconds", "Latency one way of what a port sends, by percentile.");
  for (const PortNumbers& p : ports) {
    out.add(labels_of(p, {{"percentile", "50"}}), scaled(p.p50_us, 1e-6));
    out.add(labels_of(p, {{"percentile", "99"}}), scaled(p.p99_us, 1e-6));
    out.add(labels_of(p, {{"percentile", "99.9"}}), scaled(p.p999_us, 1e-6));
  }
  out.family("port_loss_ratio", "Retransmitted packets per packet that a port sends.");
  for (const PortNumbers& p : ports) out.add(labels_of(p), p.loss_per_packet);
  out.family("port_counter_change", "Change of a counter within the run, where it is exact.");
  for (const CounterChange& c : counter_changes(report))
    if (c.change.exact())
      out.add({{"host", c.host},
               {"rail", fmt::format("{}", c.rail)},
               {"device", c.device},
               {"counter", c.name}},
              static_cast<double>(c.change.change));
}

void add_collectives(const Report& report, Exposition& out) {
  const auto labels = [](const CollectiveResult& c) {
    return Labels{{"collective", c.collective}, {"algorithm", c.algorithm}};
  };
  out.family("collective_cases", "Cases of a collective that were compared bit by bit.");
  for (const CollectiveResult& c : report.collectives) out.add(labels(c), c.cases);
  out.family("collective_wrong_cases", "Cases whose result was wrong.");
  for (const CollectiveResult& c : report.collectives) out.add(labels(c), c.wrong);
  out.family("collective_busbw_bits_per_second", "busbw of the largest case.");
  for (const CollectiveResult& c : report.collectives)
    out.add(labels(c), scaled(positive(c.busbw_gbps), 1e9));
  out.family("collective_predicted_busbw_bits_per_second", "busbw that the measured pairs allow.");
  for (const CollectiveResult& c : report.collectives)
    out.add(labels(c), scaled(positive(c.predicted_busbw_gbps), 1e9));
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

void write_prometheus(const Report& report, const std::string& path) {
  write_report(path, to_prometheus(report), "--prometheus");
}

}  // namespace weft::fabric
