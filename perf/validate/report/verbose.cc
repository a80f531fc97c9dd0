// Sections of `--verbose`: the whole report as tables.
#include "perf/validate/report/verbose.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "perf/validate/report/counters.h"
#include "perf/validate/report/port_numbers.h"
#include "perf/validate/report/text_lines.h"
#include "perf/validate/report/words.h"

namespace weft::fabric {
namespace {

using Texts = std::vector<std::string>;
using Cells = std::vector<Texts>;

constexpr std::size_t kMostPaired = 32;  // most hosts whose pairs are printed as a matrix

std::string cell(const std::optional<double>& value) { return value ? three_digits(*value) : "-"; }

// Returns lines of a table whose first row is the header: the first column is left-aligned, all
// others right-aligned. Columns that do not fit go into another table below.
Texts table_lines(const Cells& rows, std::size_t columns) {
  std::vector<std::size_t> widths(rows[0].size(), 0);
  for (const Texts& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i)
      widths[i] = std::max(widths[i], columns_of(row[i]));
  Texts lines;
  for (std::size_t begin = 1; begin < widths.size();) {
    std::size_t end = begin, used = 2 + widths[0];
    while (end < widths.size() && (end == begin || used + 2 + widths[end] <= columns))
      used += 2 + widths[end++];
    if (begin > 1) lines.emplace_back();
    for (const Texts& row : rows) {
      std::string line = "  " + row[0] + std::string(widths[0] - columns_of(row[0]), ' ');
      for (std::size_t i = begin; i < end; ++i)
        line += std::string(2 + widths[i] - columns_of(row[i]), ' ') + row[i];
      lines.push_back(shortened(line, columns));
    }
    begin = end;
  }
  return lines;
}

class Details {
 public:
  Details(const Report& report, const TextOptions& options)
      : report_(report), columns_(static_cast<std::size_t>(std::max(options.columns, 40))) {}
  Texts take() {
    findings();
    ports();
    pairs();
    counters();
    coverage();
    collectives();
    drift();
    return std::move(lines_);
  }

 private:
  void title(const std::string& text) {
    lines_.emplace_back();
    say(text, "");
  }
  void say(const std::string& text, std::string_view first) {
    for (std::string& line : wrap(text, columns_, first)) lines_.push_back(std::move(line));
  }
  void table(const Cells& rows) {
    for (std::string& line : table_lines(rows, columns_)) lines_.push_back(std::move(line));
  }
  void findings();
  void ports();
  void pairs();
  void counters();
  void coverage();
  void collectives();
  void drift();

  const Report& report_;
  std::size_t columns_;
  Texts lines_;
};

void Details::findings() {
  if (report_.judgement.findings.empty()) return;
  title("all findings");
  for (const Finding& f : report_.judgement.findings) {
    say(fmt::format("{} [{}], {}", in_words(f), printable(f.id), detail_in_words(f, report_)),
        fmt::format("  {:<8} ", severity_in_words(f)));
    for (const Evidence& e : f.evidence) say(in_words(e), "            - ");
    if (const Check* check = find_check(f.id))
      say(std::string(check->meaning), "          means: ");
  }
}

void Details::ports() {
  const std::vector<PortNumbers> numbers = port_numbers(report_);
  if (numbers.empty()) return;
  title(
      "ports: Gb/s sent, received, the lowest window, expected; us one way; packets sent again, "
      "per "
      "packet, of what the port sends and of what is sent to it (over TCP, congestion counts too)");
  Cells rows = {{"port", "send", "receive", "lowest", "expected", "p50", "p99", "p99.9",
                 "lost sent", "lost received"}};
  for (const PortNumbers& p : numbers)
    rows.push_back({shortened(port_in_words(report_, p.port), 36), cell(p.transmit_gbps),
                    cell(p.receive_gbps), cell(p.lowest_gbps), cell(p.expected_gbps),
                    cell(p.p50_us), cell(p.p99_us), cell(p.p999_us),
                    p.sent_lost ? small_share(*p.sent_lost) : "-",
                    p.received_lost ? small_share(*p.received_lost) : "-"});
  table(rows);
}

void Details::pairs() {
  const std::size_t n = report_.hosts.size();
  std::map<int, Cells> rails;
  for (const PathNumbers& path : path_numbers(report_)) {
    if (path.from.rail != path.to.rail || !(path.gbps || !path.reached) || n > kMostPaired)
      continue;
    Cells& rows = rails[path.from.rail];
    if (rows.empty()) {
      rows.assign(n + 1, Texts(n + 1, "-"));
      rows[0][0] = "";
      for (std::size_t h = 0; h < n; ++h)
        rows[h + 1][0] = rows[0][h + 1] = shortened(printable(report_.hosts[h].name), 20);
    }
    rows[static_cast<std::size_t>(path.from.host) + 1][static_cast<std::size_t>(path.to.host) + 1] =
        path.reached ? cell(path.gbps) : "none";
  }
  for (const auto& [rail, rows] : rails) {
    title(fmt::format("rail {}: Gb/s from (row) to (column); -: not measured", rail));
    table(rows);
  }
  if (n > kMostPaired) title(fmt::format("pairs of {} hosts: see --json or --html", n));
}

void Details::counters() {
  Cells rows = {{"counter", "change", "state"}};
  for (const CounterChange& c : counter_changes(report_)) {
    const std::string rail = c.rail < 0 ? "" : fmt::format(" rail {}", c.rail);
    rows.push_back(
        {shortened(fmt::format("{}{} {}", printable(c.host), rail, printable(c.name)), 60),
         fmt::format("{}", c.change.change),
         c.change.state == ChangeState::kKnown ? "" : std::string(word_of(c.change.state))});
  }
  if (rows.size() == 1) return;
  title(fmt::format("counters that changed within {:.1f} s", report_.facts.seconds));
  table(rows);
}

void Details::coverage() {
  if (report_.judgement.coverage.empty()) return;
  title("checks: the number of places where each could be evaluated");
  Cells rows = {{"check", "checked", "of"}};
  for (const Coverage& c : report_.judgement.coverage)
    rows.push_back({std::string(c.id), fmt::format("{}", c.judged), fmt::format("{}", c.total)});
  table(rows);
  if (const std::string left_out = left_out_in_words(report_); !left_out.empty())
    say(left_out, "  probes: ");
}

void Details::collectives() {
  if (report_.collectives.empty()) return;
  title("collectives, compared bit by bit; busbw in Gb/s");
  Cells rows = {{"collective", "cases", "wrong", "left out", "busbw", "allowed", "limit"}};
  const auto gbps = [](double value) { return value > 0 ? three_digits(value) : "-"; };
  for (const CollectiveResult& c : report_.collectives)
    rows.push_back({fmt::format("{} {}", c.collective, c.algorithm), fmt::format("{}", c.cases),
                    fmt::format("{}", c.wrong), fmt::format("{}", c.left_out), gbps(c.busbw_gbps),
                    gbps(c.predicted_busbw_gbps), shortened(printable(c.limiting_link), 30)});
  table(rows);
}

void Details::drift() {
  if (report_.drift.empty()) return;
  lines_.emplace_back();
  say(fmt::format("drift against {}", printable(report_.baseline)), "");
  Cells rows = {{"number", "before", "now"}};
  for (const Drift& d : report_.drift)
    rows.push_back({shortened(printable(d.name), 60), three_digits(d.before), three_digits(d.now)});
  table(rows);
}

}  // namespace

std::vector<std::string> verbose_lines(const Report& report, const TextOptions& options) {
  return Details(report, options).take();
}

}  // namespace weft::fabric
