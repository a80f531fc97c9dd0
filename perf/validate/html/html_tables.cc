// Ports, counters and coverage as tables.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "perf/validate/html/html_parts.h"
#include "perf/validate/report/counters.h"
#include "perf/validate/report/words.h"

namespace weft::fabric {
namespace {

constexpr std::size_t kMostRows = 256;

std::string cell_of(const std::optional<double>& value) {
  return fmt::format("<td>{}</td>", value ? three_digits(*value) : "-");
}

std::string rate_cell(const Page& page, Port port, const std::optional<double>& gbps) {
  return fmt::format("<td class=\"{}\">{}</td>",
                     rate_class(gbps, page.reference_gbps(port), page.report.policy.thresholds),
                     gbps ? three_digits(*gbps) : "-");
}

double worst_rate(const PortNumbers& p) {
  return std::min(p.transmit_gbps.value_or(1e9), p.receive_gbps.value_or(1e9));
}

// The ports that the page shows: all of a small fleet; of a large one those with faults, then the
// slowest.
std::vector<PortNumbers> listed_ports(const Page& page) {
  std::vector<PortNumbers> ports = page.ports;
  if (ports.size() <= kMostRows) return ports;
  std::map<Port, bool> accused;
  for (const PortNumbers& p : ports)
    accused[p.port] = !page.faults_of_port(p.port.host, p.port.rail).empty();
  std::stable_sort(ports.begin(), ports.end(), [&](const PortNumbers& a, const PortNumbers& b) {
    if (accused[a.port] != accused[b.port]) return accused[a.port];
    return worst_rate(a) < worst_rate(b);
  });
  ports.resize(kMostRows);
  return ports;
}

// What a counter did on all ports of the fleet.
struct CounterOfFleet {
  std::size_t read = 0, moved = 0, inexact = 0;
  std::uint64_t sum = 0, most = 0;
  std::string most_at;
};

std::string collectives_html(const Report& report) {
  if (report.collectives.empty()) return "";
  std::string html =
      "<h2>Collectives, compared bit by bit</h2>\n<div "
      "class=\"wide\"><table><tr><th>collective</th>"
      "<th>cases</th><th>wrong</th><th>left out</th><th>busbw Gb/s</th><th>the pairs allow</th>"
      "<th class=\"left\">limited by</th><th class=\"left\">first wrong</th></tr>\n";
  const auto positive = [](double value) {
    return value > 0 ? std::optional<double>(value) : std::nullopt;
  };
  for (const CollectiveResult& c : report.collectives)
    html += fmt::format(
        "<tr{}{}{}><td>{} {}</td><td>{}</td><td>{}</td><td>{}</td>{}{}<td "
        "class=\"left\">{}</td><td "
        "class=\"left wrap\">{}</td></tr>\n",
        data("collective", c.collective), data("busbw-gbps", positive(c.busbw_gbps)),
        data("predicted-busbw-gbps", positive(c.predicted_busbw_gbps)), escaped(c.collective),
        escaped(c.algorithm), c.cases, c.wrong, c.left_out, cell_of(positive(c.busbw_gbps)),
        cell_of(positive(c.predicted_busbw_gbps)), escaped(c.limiting_link),
        escaped(c.first_wrong));
  return html + "</table></div>\n";
}

std::string drift_html(const Report& report) {
  if (report.baseline.empty()) return "";
  std::string html = fmt::format("<h2>Drift</h2>\n<p class=\"soft\">against {}{}</p>\n",
                                 escaped(report.baseline), report.drift.empty() ? ": none" : "");
  if (report.drift.empty()) return html;
  html += "<div class=\"wide\"><table><tr><th>number</th><th>before</th><th>now</th></tr>\n";
  for (std::size_t i = 0; i < report.drift.size() && i < kMostRows; ++i) {
    const Drift& d = report.drift[i];
    html += fmt::format("<tr{}{}{}><td>{}</td>{}{}</tr>\n", data("name", d.name),
                        data("before", d.before), data("now", d.now), escaped(d.name),
                        cell_of(d.before), cell_of(d.now));
  }
  return html + "</table></div>\n";
}

std::string unknowns_html(const Report& report) {
  const std::vector<const Finding*> unknowns = unknowns_of(report);
  if (unknowns.empty()) return "";
  std::string html = "<h3>Could not be known</h3>\n<ul>\n";
  for (std::size_t i = 0; i < unknowns.size() && i < 40; ++i)
    html += fmt::format("<li>{} <code>{}</code></li>\n", escaped(in_words(*unknowns[i])),
                        escaped(unknowns[i]->id));
  if (unknowns.size() > 40) html += fmt::format("<li>and {} more</li>\n", unknowns.size() - 40);
  return html + "</ul>\n";
}

// What was not done, and why.
std::string limits_html(const Report& report) {
  std::string html;
  if (const std::string limits = limits_in_words(report.plan); !limits.empty())
    html += fmt::format("<p>This run would have seen {}, with {} confidence.</p>\n",
                        escaped(limits), percent(report.policy.thresholds.confidence));
  std::string skipped;
  for (const std::string& id : report.policy.skipped_checks)
    skipped += (skipped.empty() ? "" : ", ") + id;
  if (const std::string left_out = left_out_in_words(report); !left_out.empty())
    html += fmt::format("<p>Left out: {}.</p>\n", escaped(left_out));
  if (!skipped.empty())
    html +=
        fmt::format("<p>Skipped by {}: {}.</p>\n", escaped(report.policy.file), escaped(skipped));
  return html;
}

}  // namespace

std::string html_ports(const Page& page) {
  const std::vector<PortNumbers> ports = listed_ports(page);
  if (ports.empty()) return "";
  std::string html = "<h2>Ports</h2>\n";
  if (ports.size() < page.ports.size())
    html +=
        fmt::format("<p class=\"soft\">{} of {} ports: those with faults, then the slowest.</p>\n",
                    ports.size(), page.ports.size());
  html +=
      "<div class=\"wide\"><table class=\"ports\"><tr><th>port</th><th>sends Gb/s</th><th>receives "
      "Gb/s</th><th>lowest window</th><th>expected</th><th>p50 us</th><th>p99 us</th><th>p99.9 us"
      "</th><th>loss per packet</th></tr>\n";
  for (const PortNumbers& p : ports)
    html += fmt::format(
        "<tr{}{}{}{}{}{}><td>{}</td>{}{}{}{}{}{}{}<td>{}</td></tr>\n",
        page.faults_of_port(p.port.host, p.port.rail).empty() ? "" : " class=\"accused\"",
        data("host", p.host), data("rail", p.port.rail), data("transmit-gbps", p.transmit_gbps),
        data("receive-gbps", p.receive_gbps), data("loss-per-packet", p.loss_per_packet),
        escaped(port_in_words(page.report, p.port)), rate_cell(page, p.port, p.transmit_gbps),
        rate_cell(page, p.port, p.receive_gbps), cell_of(p.lowest_gbps), cell_of(p.expected_gbps),
        cell_of(p.p50_us), cell_of(p.p99_us), cell_of(p.p999_us),
        p.loss_per_packet ? small_share(*p.loss_per_packet) : "-");
  return html + "</table></div>\n";
}

std::string html_counters(const Page& page) {
  std::map<std::string, CounterOfFleet> counters;
  for (const CounterChange& c : counter_changes(page.report)) {
    CounterOfFleet& of = counters[c.name];
    if (c.change.state == ChangeState::kUnknown) continue;
    ++of.read;
    of.inexact += c.change.exact() ? 0 : 1;
    of.moved += c.change.change > 0 ? 1 : 0;
    of.sum += c.change.change;
    if (c.change.change <= of.most) continue;
    of.most = c.change.change;
    of.most_at = fmt::format("{} rail {}", c.host, c.rail);
  }
  if (counters.empty()) return "";
  std::string rows, still;
  for (const auto& [name, of] : counters) {
    if (of.moved == 0 && of.inexact == 0) {
      still += fmt::format("{}{}{}", still.empty() ? "" : ", ", escaped(name),
                           of.read == 0 ? " (not readable)" : "");
      continue;
    }
    rows += fmt::format(
        "<tr{}{}{}><td><code>{}</code></td><td>{}</td><td>{}</td><td>{}</td><td "
        "class=\"left\">{}</td>"
        "<td>{}</td></tr>\n",
        data("counter", name), data("sum", static_cast<double>(of.sum)),
        data("most", static_cast<double>(of.most)), escaped(name), of.sum,
        fmt::format("{} of {}", of.moved, of.read), of.most, escaped(of.most_at), of.inexact);
  }
  std::string html = fmt::format(
      "<h2>Counters</h2>\n<p class=\"soft\">What moved within {:.1f} s. A change is not exact "
      "where a "
      "counter was reset or stands at its ceiling.</p>\n",
      page.report.facts.seconds);
  if (!rows.empty())
    html += fmt::format(
        "<div class=\"wide\"><table class=\"counters\"><tr><th>counter</th><th>all "
        "ports</th><th>ports "
        "where it moved</th><th>most at one port</th><th class=\"left\">which</th><th>not "
        "exact</th>"
        "</tr>\n{}</table></div>\n",
        rows);
  if (!still.empty())
    html += fmt::format(
        "<details><summary>Counters that did not move</summary><p class=\"soft\">{}"
        "</p></details>\n",
        still);
  return html;
}

std::string html_coverage(const Page& page) {
  const Report& report = page.report;
  std::string html = "<h2>Covered, and what was not</h2>\n" + limits_html(report);
  if (!report.judgement.coverage.empty()) {
    html +=
        "<div class=\"wide\"><table class=\"coverage\"><tr><th>check</th><th "
        "class=\"left\">what</th>"
        "<th>judged</th><th>of</th><th></th></tr>\n";
    for (const Coverage& c : report.judgement.coverage) {
      const double part = c.total > 0 ? static_cast<double>(c.judged) / c.total : 0;
      const std::string bar = fmt::format(
          "<svg width=\"80\" height=\"10\"><rect class=\"rest\" width=\"80\" height=\"10\"/><rect "
          "class=\"bar{}\" width=\"{:.0f}\" height=\"10\"/></svg>",
          part < 1 ? " part" : "", 80 * part);
      html += fmt::format(
          "<tr{}{}{}><td><code>{}</code></td><td class=\"left\">{}</td><td>{}</td><td>{}</td><td>{}"
          "</td></tr>\n",
          data("check", c.id), data("judged", c.judged), data("total", c.total), escaped(c.id),
          escaped(title_of(c.id)), c.judged, c.total, c.total > 0 ? bar : "none here");
    }
    html += "</table></div>\n";
  } else {
    html += "<p>No check judged anything.</p>\n";
  }
  return html + unknowns_html(report) + collectives_html(report) + drift_html(report);
}

}  // namespace weft::fabric
