// Random reports by seed: any verdict, findings of all kinds and of unknown checks, and names and
// messages that a hostile host might send.
#pragma once

#include <limits>
#include <random>
#include <string>

#include "tests/perf/validate/report/example_report.h"

namespace weft::fabric {

class RandomReport {
 public:
  explicit RandomReport(std::uint64_t seed) : random_(seed) {}

  Report draw() {
    Report report = example_report(1 + below(5), 1 + below(3),
                                   [&](Port, Port) { return below(20) == 0 ? 0.0 : number(); });
    for (FleetHost& host : report.hosts)
      if (below(4) == 0) host.name = text();
    report.verdict = static_cast<Verdict>(below(5));
    report.emulated = below(2) == 0;
    report.simulated = below(4) == 0;
    if (below(3) == 0) report.failure = text();
    if (below(3) == 0) report.started = text();
    if (below(3) == 0) report.transport = text();
    const int findings = below(4) == 0 ? below(60) : below(4);
    for (int i = 0; i < findings; ++i) report.judgement.findings.push_back(finding(report));
    if (below(4) == 0) report.judgement.coverage.clear();
    for (const Check& check : checks())
      if (below(3) == 0) report.judgement.coverage.push_back({check.id, below(9), 8});
    for (int i = below(6); i > 0; --i) report.drift.push_back({text(), number(), number()});
    if (!report.drift.empty()) report.baseline = text();
    for (int i = below(3); i > 0; --i) report.policy.skipped_checks.push_back(text());
    for (int i = below(12); i > 0; --i) report.plan.left_out.push_back(static_cast<Probe>(i));
    for (CollectiveResult& result : report.collectives)
      if (below(3) == 0) {
        result.wrong = 1;
        result.first_wrong = text();
        result.limiting_link = text();
      }
    report.streams = 1 << below(5);
    for (FlowSample& flow : report.samples.flows)
      for (int i = below(3); i > 0; --i)
        flow.streams.push_back({below(65536), flow.bytes / 2, flow.packets, flow.retransmits});
    return report;
  }

 private:
  int below(int n) { return static_cast<int>(random_() % static_cast<std::uint64_t>(n)); }

  double number() {
    constexpr double kOdd[] = {0,
                               1e-9,
                               3e-5,
                               0.5,
                               1,
                               99.96,
                               187,
                               1e12,
                               std::numeric_limits<double>::infinity(),
                               std::numeric_limits<double>::quiet_NaN()};
    if (below(6) == 0) return kOdd[below(10)];
    return static_cast<double>(below(400000)) / 1000;
  }

  std::string text() {
    constexpr std::string_view kParts[] = {
        "h3",       " ",        "rack-12-node-0001.cluster.example.org",
        "\n",       "\033[31m", "\xff\xfe",
        "\xc3\xa4", "\xc2\x9b", "<script>",
        "\"'&\\",   "{}",       "\xe2\x82\xac",
        "\t"};
    std::string text;
    for (int i = below(12); i > 0; --i) text += kParts[below(13)];
    if (below(8) == 0) text += std::string(300, 'x');
    return text;
  }

  Finding finding(const Report& report) {
    Finding f;
    const auto known = checks();
    f.id = below(5) == 0
               ? text()
               : std::string(
                     known[static_cast<std::size_t>(below(static_cast<int>(known.size())))].id);
    f.severity = static_cast<Severity>(below(4));
    f.unknown = below(4) == 0;
    f.where.kind = static_cast<PlaceKind>(below(7));
    f.where.host = below(4) == 0 ? text() : report.hosts[0].name;
    f.where.rail = below(4) - 1;
    f.where.direction = static_cast<Direction>(below(3));
    f.where.peer = below(2) == 0 ? text() : report.hosts.back().name;
    f.where.device = below(2) == 0 ? text() : "mlx5_0";
    f.value = number();
    f.expected = number();
    f.unit = static_cast<Unit>(below(9));
    if (f.unit == Unit::kText) {
      f.value = f.expected = 0;
      f.text = text();
      f.expected_text = text();
    } else if (below(2) == 0) {
      f.low = 1;
      f.high = 2;
    }
    f.score = below(3) == 0 ? 1 : below(1001) / 1000.0;
    if (below(4) == 0 && !report.judgement.findings.empty())
      f.explained_by = report.judgement.findings[0].id;
    for (int i = below(4); i > 0; --i)
      f.evidence.push_back(
          {"hw." + text(), text(), below(3) - 1, number(), number(), Unit::kCount, ""});
    return f;
  }

  std::mt19937_64 random_;
};

}  // namespace weft::fabric
