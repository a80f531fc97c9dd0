// The page of --html, and what its pictures share.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "perf/validate/html/html_parts.h"
#include "perf/validate/report/words.h"

namespace weft::fabric {
namespace {

// Index of a host by its name; -1: none.
int host_index(const Report& report, const std::string& name) {
  for (std::size_t h = 0; h < report.hosts.size(); ++h)
    if (report.hosts[h].name == name) return static_cast<int>(h);
  return -1;
}

// Calls visit(number, where) for each finding of every fault.
template <typename Visit>
void for_each_place(const std::vector<Fault>& faults, const Visit& visit) {
  for (std::size_t i = 0; i < faults.size(); ++i) 
    visit(static_cast<int>(i) + 1, faults[i].first->where);
}

}  // namespace

Page::Page(const Report& of)
    : report(of), faults(faults_of(of)), ports(port_numbers(of)), paths(path_numbers(of)) {
  std::map<int, std::vector<double>> rates;
  for (const PathNumbers& path : paths)
    if (path.gbps && path.reached && path.from.rail == path.to.rail)
      rates[path.from.rail].push_back(*path.gbps);
  for (auto& [rail, list] : rates) {
    const auto middle = list.begin() + static_cast<std::ptrdiff_t>(list.size() / 2);
    std::nth_element(list.begin(), middle, list.end());
    usual_gbps[rail] = *middle;
  }
}

double Page::reference_gbps(Port port) const {
  const auto h = static_cast<std::size_t>(port.host), r = static_cast<std::size_t>(port.rail);
  if (const double expected = report.hosts[h].ports[r].expected_gbps; expected > 0) return expected;
  const auto usual = usual_gbps.find(port.rail);
  return usual == usual_gbps.end() ? 0 : usual->second;
}

double Page::reference_gbps(const PathNumbers& path) const {
  return path.expected_gbps > 0 ? path.expected_gbps : reference_gbps(path.from);
}

std::vector<int> Page::faults_of_port(int host, int rail) const {
  std::vector<int> numbers;
  for_each_place(faults, [&](int number, const Where& w) {
    const bool at_host = w.kind == PlaceKind::kHost || w.kind == PlaceKind::kPort;
    if (at_host && w.host == host_name(host) && (w.rail < 0 || w.rail == rail))
      numbers.push_back(number);
  });
  return numbers;
}

std::vector<int> Page::faults_of_host(int host) const {
  std::vector<int> numbers;
  for_each_place(faults, [&](int number, const Where& w) {
    if (!w.host.empty() && w.host == host_name(host)) numbers.push_back(number);
  });
  return numbers;
}

std::vector<int> Page::faults_of_rail(int rail) const {
  std::vector<int> numbers;
  for_each_place(faults, [&](int number, const Where& w) {
    const bool whole = w.kind == PlaceKind::kRail || w.kind == PlaceKind::kSwitch;
    if (whole && (w.rail < 0 || w.rail == rail)) numbers.push_back(number);
  });
  return numbers;
}

std::vector<int> Page::shown_hosts(std::size_t most) const {
  std::set<int> shown;
  for_each_place(faults, [&](int, const Where& w) {
    for (const std::string& name : {w.host, w.peer})
      if (const int h = name.empty() ? -1 : host_index(report, name); h >= 0 && shown.size() < most)
        shown.insert(h);
  });
  for (int h = 0; h < static_cast<int>(report.hosts.size()) && shown.size() < most; ++h)
    shown.insert(h);
  return {shown.begin(), shown.end()};
}

std::string Page::host_name(int host) const {
  return report.hosts[static_cast<std::size_t>(host)].name;
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : printable(text)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string data(std::string_view name, std::optional<double> value) {
  return value ? fmt::format(" data-{}=\"{}\"", name, *value) : "";
}

std::string data(std::string_view name, std::string_view text) {
  return fmt::format(" data-{}=\"{}\"", name, escaped(text));
}

std::string badge(double x, double y, int fault) {
  return fmt::format(
      "<g class=\"badge\" data-fault=\"{2}\"><circle cx=\"{0}\" cy=\"{1}\" r=\"9\"/>"
      "<text x=\"{0}\" y=\"{3}\">{2}</text></g>",
      x, y, fault, y + 4);
}

std::string rate_class(std::optional<double> gbps, double reference_gbps,
                       const Thresholds& thresholds) {
  switch (health_of(gbps, reference_gbps, thresholds)) {
    case Health::kNotKnown:
      return "rn";
    case Health::kUnreached:
      return "r0";
    case Health::kWarned:
      return "r4";
    case Health::kHealthy:
      return "r5";
    case Health::kFailed:
      break;
  }
  const double share = *gbps / reference_gbps;
  return share < 0.3 ? "r1" : share < 0.6 ? "r2" : "r3";
}

std::string rate_legend(const Thresholds& t, bool lines) {
  const auto item = [&](std::string_view level, const std::string& text) {
    return fmt::format("<span class=\"key\"><i class=\"swatch {}{}\"></i>{}</span>",
                       lines ? "line " : "", level, text);
  };
  const auto span = [&](double from, double to) {
    return fmt::format("{} to {}", three_digits(100 * from), percent(to));
  };
  return "<p class=\"legend\">" + item("r5", percent(t.warn_rate) + " and more") +
         item("r4", span(t.fail_rate, t.warn_rate)) + item("r3", span(0.6, t.fail_rate)) +
         item("r2", span(0.3, 0.6)) + item("r1", "below 30 %") + item("r0", "nothing arrived") +
         item("rn", "not measured") + "</p>\n";
}

std::string to_html(const Report& report) {
  const Page page(report);
  std::string html = fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      // Nothing is fetched, and no script runs, whatever a host's name holds.
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
      "'unsafe-inline'\">\n"
      "<title>weft validate: {}</title>\n<style>\n{}</style>\n</head>\n"
      "<body{}{}>\n<main>\n",
      escaped(verdict_in_words(report)), html_style(), data("verdict", word_of(report.verdict)),
      data("exit-code", static_cast<double>(report.verdict)));
  for (const auto& part : {html_summary, html_topology, html_heatmaps, html_latency, html_ports,
                           html_counters, html_coverage})
    html += part(page);
  return html + "</main>\n</body>\n</html>\n";
}

}  // namespace weft::fabric
