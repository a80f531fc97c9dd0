// Hosts, ports and rails with the culprits marked. A line that meets a rail in a dot is connected
// to that rail; a line without a dot passes.
#include <fmt/format.h>

#include <algorithm>

#include "perf/validate/html/html_parts.h"
#include "perf/validate/report/text_lines.h"
#include "perf/validate/report/words.h"

namespace weft::fabric {
namespace {

constexpr std::size_t kMostDrawn = 12;  // hosts in the picture
constexpr double kRailGap = 38, kPortGap = 30, kWireHeight = 64, kBoxHeight = 44;
constexpr double kTop = 30;

class Topology {
 public:
  explicit Topology(const Page& page) : page_(page), hosts_(page.shown_hosts(kMostDrawn)) {
    rails_ = page.report.rails;
    for (int rail = 0; rail < rails_; ++rail)
      left_ = std::max(left_, page.faults_of_rail(rail).empty() ? 64.0 : 86.0);
    box_ = std::max(86.0, kPortGap * rails_ + 14);
  }
  std::string markup() const;

 private:
  double host_x(std::size_t i) const { return left_ + (box_ + 22) * static_cast<double>(i); }
  double port_x(std::size_t i, int rail) const {
    return host_x(i) + box_ / 2 + kPortGap * (rail - (rails_ - 1) / 2.0);
  }
  double rail_y(int rail) const { return kTop + kRailGap * rail; }
  double boxes_y() const { return rail_y(rails_ - 1) + kWireHeight; }
  std::string rail(int r) const;
  std::string host(std::size_t i) const;
  std::string port(std::size_t i, int r) const;
  std::string wire(std::size_t i, int r, bool transmit, bool marked) const;
  std::string broken_path(std::size_t fault, int row) const;

  const Page& page_;
  std::vector<int> hosts_;
  int rails_ = 0;
  double left_ = 64, box_ = 0;
};

std::string Topology::rail(int r) const {
  const std::vector<int> faults = page_.faults_of_rail(r);
  std::string svg = fmt::format(
      "<line class=\"bus{0}\" x1=\"{1}\" x2=\"{2}\" y1=\"{3}\" y2=\"{3}\"{4}/>"
      "<text class=\"end{5}\" x=\"{6}\" y=\"{7}\">rail {8}</text>",
      faults.empty() ? "" : " marked", left_ - 6, host_x(hosts_.size()) - 16, rail_y(r),
      data("rail", r), faults.empty() ? "" : " accused", left_ - 14, rail_y(r) + 4, r);
  if (!faults.empty()) svg += badge(14, rail_y(r), faults[0]);
  return svg;
}

// One direction of a port, with a tip that shows which.
std::string Topology::wire(std::size_t i, int r, bool transmit, bool marked) const {
  const Port port{hosts_[i], r};
  const auto found = std::find_if(page_.ports.begin(), page_.ports.end(),
                                  [&](const PortNumbers& p) { return p.port == port; });
  if (found == page_.ports.end()) return "";
  const std::optional<double> gbps = transmit ? found->transmit_gbps : found->receive_gbps;
  const double reference = page_.reference_gbps(port);
  const std::string level = rate_class(gbps, reference, page_.report.policy.thresholds);
  const double x = port_x(i, r) + (transmit ? -5 : 5), bottom = boxes_y(), top = rail_y(r);
  const double tip = bottom - kWireHeight / 2, size = transmit ? -7 : 7;
  const std::string title = fmt::format(
      "{} {}: {}", port_in_words(page_.report, port), transmit ? "sends" : "receives",
      gbps ? fmt::format("{} of {} Gb/s", three_digits(*gbps), three_digits(reference))
           : "not measured");
  return fmt::format(
      "<g{}{}{}{}{}><title>{}</title><line class=\"wire {}{}\" x1=\"{}\" x2=\"{}\" y1=\"{}\" "
      "y2=\"{}\"/><circle class=\"dot {}\" cx=\"{}\" cy=\"{}\" r=\"4\"/><path class=\"tip {}\" "
      "d=\"M{} {}l5 0l-5 {}l-5 {}z\"/></g>",
      data("host", page_.host_name(port.host)), data("rail", r),
      data("direction", transmit ? "transmit" : "receive"), data("gbps", gbps),
      data("expected-gbps", reference), escaped(title), level, marked ? " marked" : "", x, x, bottom,
      top, level, x, top, level, x, tip, size, -size);
}

std::string Topology::port(std::size_t i, int r) const {
  const std::vector<int> faults = page_.faults_of_port(hosts_[i], r);
  bool transmit = false, receive = false, own = false;
  for (const int number : faults) {
    const Where& w = page_.faults[static_cast<std::size_t>(number) - 1].first->where;
    transmit |= w.direction != Direction::kReceive;
    receive |= w.direction != Direction::kTransmit;
    own |= w.kind == PlaceKind::kPort;
  }
  std::string svg = wire(i, r, true, transmit) + wire(i, r, false, receive);
  if (own)
    svg += fmt::format("<rect class=\"ring\" x=\"{}\" y=\"{}\" width=\"22\" height=\"{}\" rx=\"11\"/>",
                       port_x(i, r) - 11, rail_y(r) - 9, boxes_y() - rail_y(r) + 12);
  for (std::size_t k = 0; own && k < faults.size() && k < 3; ++k)
    svg += badge(port_x(i, r) + 14, boxes_y() - 18 - 20 * static_cast<double>(k), faults[k]);
  return svg;
}

std::string Topology::host(std::size_t i) const {
  const std::string name = page_.host_name(hosts_[i]);
  const std::vector<int> faults = page_.faults_of_host(hosts_[i]);
  std::vector<int> whole;
  for (const int number : faults) {
    const PlaceKind kind = page_.faults[static_cast<std::size_t>(number) - 1].first->where.kind;
    if (kind == PlaceKind::kHost || kind == PlaceKind::kTester) whole.push_back(number);
  }
  std::string svg = fmt::format(
      "<rect class=\"box{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"5\"{}><title>{}"
      "</title></rect><text class=\"mid{}\" x=\"{}\" y=\"{}\">{}</text>",
      whole.empty() ? "" : " marked", host_x(i), boxes_y(), box_, kBoxHeight, data("host", name),
      escaped(name), faults.empty() ? "" : " accused", host_x(i) + box_ / 2, boxes_y() + 27,
      escaped(shortened(printable(name), static_cast<std::size_t>(box_ / 7.4))));
  for (std::size_t k = 0; k < whole.size() && k < 4; ++k)
    svg += badge(host_x(i) + 12 + 20 * static_cast<double>(k), boxes_y() + kBoxHeight, whole[k]);
  return svg;
}

// An arrow below the hosts, from the sender of a path at fault to its receiver.
std::string Topology::broken_path(std::size_t fault, int row) const {
  const Where& w = page_.faults[fault].first->where;
  std::size_t from = hosts_.size(), to = hosts_.size();
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    if (page_.host_name(hosts_[i]) == w.host) from = i;
    if (page_.host_name(hosts_[i]) == w.peer) to = i;
  }
  if (from == hosts_.size() || to == hosts_.size() || from == to) return "";
  const double x1 = host_x(from) + box_ / 2, x2 = host_x(to) + box_ / 2, y = boxes_y() + kBoxHeight;
  const double low = y + 22 + 22 * row;
  return fmt::format(
             "<path class=\"path\" d=\"M{} {}V{}H{}V{}\"/><path class=\"head\" d=\"M{} {}l5 9h-10z\"/>",
             x1, y + 2, low, x2, y + 9, x2, y + 2) +
         badge((x1 + x2) / 2, low, static_cast<int>(fault) + 1);
}

std::string Topology::markup() const {
  std::string paths;
  int rows = 0;
  for (std::size_t f = 0; f < page_.faults.size() && rows < 8; ++f) {
    if (page_.faults[f].first->where.kind != PlaceKind::kPath) continue;
    const std::string path = broken_path(f, rows);
    if (!path.empty()) ++rows;
    paths += path;
  }
  std::string svg = fmt::format(
      "<svg class=\"topology\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} {1:.0f}\" "
      "role=\"img\" aria-label=\"hosts, ports and rails\">",
      host_x(hosts_.size()), boxes_y() + kBoxHeight + 16 + 24 * rows);
  for (int r = 0; r < rails_; ++r) svg += rail(r);
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    const std::size_t ports = page_.report.hosts[static_cast<std::size_t>(hosts_[i])].ports.size();
    for (int r = 0; r < rails_ && static_cast<std::size_t>(r) < ports; ++r) svg += port(i, r);
  }
  for (std::size_t i = 0; i < hosts_.size(); ++i) svg += host(i);
  return svg + paths + "</svg>";
}

// All ports of a large fleet, a small square each: left half sends, right half receives.
std::string fleet_map(const Page& page) {
  constexpr int kSide = 12, kPerRow = 72;
  const int hosts = static_cast<int>(page.report.hosts.size()), rails = page.report.rails;
  const int bands = (hosts + kPerRow - 1) / kPerRow, band = rails * kSide + 14;
  std::string svg = fmt::format(
      "<svg class=\"fleet\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" role=\"img\" "
      "aria-label=\"all ports\">",
      60 + std::min(hosts, kPerRow) * kSide + 10, bands * band + 6);
  for (int b = 0; b < bands; ++b)
    svg += fmt::format("<text class=\"soft\" x=\"0\" y=\"{}\">{}</text>", b * band + 16,
                       escaped(shortened(printable(page.host_name(b * kPerRow)), 8)));
  for (const PortNumbers& p : page.ports) {
    const int x = 60 + p.port.host % kPerRow * kSide;
    const int y = p.port.host / kPerRow * band + p.port.rail * kSide + 6;
    const double reference = page.reference_gbps(p.port);
    const Thresholds& t = page.report.policy.thresholds;
    svg += fmt::format(
        "<g{}{}{}{}><title>{}: sends {}, receives {} Gb/s</title><rect class=\"half {}\" x=\"{}\" "
        "y=\"{}\" width=\"5\" height=\"10\"/><rect class=\"half {}\" x=\"{}\" y=\"{}\" width=\"5\" "
        "height=\"10\"/></g>",
        data("host", p.host), data("rail", p.port.rail), data("transmit-gbps", p.transmit_gbps),
        data("receive-gbps", p.receive_gbps), escaped(port_in_words(page.report, p.port)),
        p.transmit_gbps ? three_digits(*p.transmit_gbps) : "-",
        p.receive_gbps ? three_digits(*p.receive_gbps) : "-",
        rate_class(p.transmit_gbps, reference, t), x, y, rate_class(p.receive_gbps, reference, t),
        x + 5, y);
    if (!page.faults_of_port(p.port.host, p.port.rail).empty())
      svg += fmt::format("<rect class=\"ring\" x=\"{}\" y=\"{}\" width=\"14\" height=\"14\"/>", x - 2,
                         y - 2);
  }
  return svg + "</svg>";
}

}  // namespace

std::string html_topology(const Page& page) {
  if (page.report.hosts.empty() || page.report.rails <= 0) return "";
  const std::size_t hosts = page.report.hosts.size(), drawn = page.shown_hosts(kMostDrawn).size();
  std::string html = fmt::format(
      "<h2>Hosts, ports and rails</h2>\n<p class=\"soft\">Each port has two lines: the left one "
      "sends, the right one receives, coloured by the share of the expected rate. A line is "
      "connected where it has a dot. Numbers in circles are the faults above.</p>\n{}",
      rate_legend(page.report.policy.thresholds, true));
  html += fmt::format("<div class=\"wide\">{}</div>\n", Topology(page).markup());
  if (drawn < hosts)
    html += fmt::format(
        "<p class=\"soft\">{} of {} hosts: those with faults, their peers and the first ones. Below "
        "are all ports: a column for each host, a row for each rail, the left half sends, the right "
        "half receives.</p>\n<div class=\"wide\">{}</div>\n",
        drawn, hosts, fleet_map(page));
  return html;
}

}  // namespace weft::fabric
