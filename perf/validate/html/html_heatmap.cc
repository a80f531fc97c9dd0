// Host x host, one picture for each rail: the rate of every directed pair against what is expected.
#include <fmt/format.h>

#include <algorithm>

#include "perf/validate/html/html_parts.h"
#include "perf/validate/report/text_lines.h"
#include "perf/validate/report/words.h"

namespace weft::fabric {
namespace {

constexpr std::size_t kMostShown = 64;     // hosts in a heatmap
constexpr std::size_t kMostLabelled = 16;  // hosts with numbers in their cells

class Heatmap {
 public:
  Heatmap(const Page& page, int rail) : page_(page), rail_(rail), hosts_(page.shown_hosts(kMostShown)) {
    labelled_ = hosts_.size() <= kMostLabelled;
    width_ = labelled_ ? 46 : 12;
    height_ = labelled_ ? 28 : 12;
    for (const int h : hosts_) longest_ = std::max(longest_, columns_of(label(h)));
    left_ = 44 + 7.2 * static_cast<double>(longest_);
    top_ = upright() ? 24 : 14 + 7.2 * static_cast<double>(longest_);
  }
  std::string markup() const;

 private:
  std::string label(int host) const { return shortened(printable(page_.host_name(host)), 16); }
  bool upright() const { return labelled_ && longest_ <= 6; }
  double x(std::size_t column) const { return left_ + width_ * static_cast<double>(column); }
  double y(std::size_t row) const { return top_ + height_ * static_cast<double>(row); }
  std::string labels() const;
  std::string cell(const PathNumbers* path, std::size_t row, std::size_t column) const;

  const Page& page_;
  int rail_;
  std::vector<int> hosts_;
  bool labelled_ = true;
  double width_ = 0, height_ = 0, left_ = 0, top_ = 0;
  std::size_t longest_ = 1;
};

// Names of senders at the left and of receivers on top, with the faults of their ports.
std::string Heatmap::labels() const {
  std::string svg;
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    const std::vector<int> faults = page_.faults_of_port(hosts_[i], rail_);
    bool sends = false, receives = false;
    for (const int number : faults) {
      const Direction d = page_.faults[static_cast<std::size_t>(number) - 1].first->where.direction;
      sends |= d != Direction::kReceive;
      receives |= d != Direction::kTransmit;
    }
    const std::string name = escaped(label(hosts_[i]));
    const double row = y(i) + height_ / 2 + 4, column = x(i) + width_ / 2;
    svg += fmt::format("<text class=\"end{}\" x=\"{}\" y=\"{}\">{}</text>", sends ? " accused" : "",
                       left_ - 8, row, name);
    if (upright())
      svg += fmt::format("<text class=\"mid{}\" x=\"{}\" y=\"{}\">{}</text>",
                         receives ? " accused" : "", column, top_ - 8, name);
    else
      svg += fmt::format("<text class=\"{}\" transform=\"translate({} {}) rotate(-90)\">{}</text>",
                         receives ? "accused" : "", column + 4, top_ - 8, name);
    if (sends && labelled_) svg += badge(14, row - 4, faults[0]);
    if (receives && labelled_)
      svg += badge(column, y(hosts_.size()) + 14, faults[0]);
  }
  return svg;
}

std::string Heatmap::cell(const PathNumbers* path, std::size_t row, std::size_t column) const {
  const double left = x(column), top = y(row);
  const std::string rect = fmt::format("x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"", left, top,
                                       width_, height_);
  if (path == nullptr)
    return fmt::format("<rect class=\"cell {}\" {}/>", row == column ? "self" : "rn", rect);
  const std::optional<double> gbps = path->reached ? path->gbps : std::optional<double>(0);
  const double reference = page_.reference_gbps(*path);
  const std::string level = rate_class(gbps, reference, page_.report.policy.thresholds);
  const std::string from = page_.host_name(path->from.host), to = page_.host_name(path->to.host);
  std::string title = fmt::format("{} -> {}, rail {}: ", from, to, rail_);
  title += !path->reached ? "nothing arrived" + (path->error.empty() ? "" : ": " + path->error)
           : gbps ? fmt::format("{} of {} Gb/s", three_digits(*gbps), three_digits(reference))
                  : "rate not measured";
  if (path->p50_us && path->p99_us)
    title += fmt::format("; p50 {} us, p99 {} us", three_digits(*path->p50_us),
                         three_digits(*path->p99_us));
  std::string svg = fmt::format(
      "<rect class=\"cell {}\" {}{}{}{}{}{}{}{}><title>{}</title></rect>", level, rect,
      data("rail", rail_), data("from", from), data("to", to), data("gbps", gbps),
      data("expected-gbps", reference), data("p50-us", path->p50_us),
      data("p99-us", path->p99_us), escaped(title));
  if (labelled_ && gbps)
    svg += fmt::format("<text class=\"mid t{}\" pointer-events=\"none\" x=\"{}\" y=\"{}\">{}</text>",
                       level[1], left + width_ / 2, top + height_ / 2 + 4,
                       path->reached ? three_digits(*gbps) : "none");
  return svg;
}

std::string Heatmap::markup() const {
  const std::size_t n = hosts_.size();
  std::vector<const PathNumbers*> cells(n * n, nullptr);
  const auto place = [&](int host) {
    const auto found = std::lower_bound(hosts_.begin(), hosts_.end(), host);
    return found != hosts_.end() && *found == host ? static_cast<std::size_t>(found - hosts_.begin())
                                                   : n;
  };
  for (const PathNumbers& path : page_.paths) {
    if (path.from.rail != rail_ || path.to.rail != rail_) continue;
    const std::size_t row = place(path.from.host), column = place(path.to.host);
    if (row < n && column < n) cells[row * n + column] = &path;
  }
  std::string svg = fmt::format(
      "<svg class=\"heatmap\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} {1:.0f}\" "
      "role=\"img\" aria-label=\"rates of rail {2}\"{3}>",
      x(n) + 14, y(n) + 28, rail_, data("rail", rail_));
  svg += labels();
  for (std::size_t row = 0; row < n; ++row)
    for (std::size_t column = 0; column < n; ++column)
      svg += cell(cells[row * n + column], row, column);
  return svg + "</svg>";
}

}  // namespace

std::string html_heatmaps(const Page& page) {
  if (page.paths.empty()) return "";
  const std::size_t shown = page.shown_hosts(kMostShown).size();
  std::string html = fmt::format(
      "<h2>Rates between hosts</h2>\n<p class=\"soft\">Gb/s of each directed pair, coloured by their "
      "share of what is expected{}.</p>\n{}",
      page.paths[0].expected_gbps > 0 ? "" : " (no rate is declared or advertised: of the rail's median)",
      rate_legend(page.report.policy.thresholds, false));
  if (shown < page.report.hosts.size())
    html += fmt::format("<p class=\"soft\">{} of {} hosts: those with faults, their peers and the "
                        "first ones.</p>\n",
                        shown, page.report.hosts.size());
  html += "<div class=\"maps\">\n";
  for (int rail = 0; rail < page.report.rails; ++rail)
    html += fmt::format("<div class=\"wide\"><h3>rail {} <span class=\"soft\">rows send, columns receive</span></h3>{}</div>\n", rail,
                        Heatmap(page, rail).markup());
  return html + "</div>\n";
}

}  // namespace weft::fabric
