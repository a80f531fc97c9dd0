// Latency percentiles of ports on a logarithmic axis.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "perf/validate/html/html_parts.h"
#include "perf/validate/report/text_lines.h"
#include "perf/validate/report/words.h"

namespace weft::fabric {
namespace {

constexpr std::size_t kMostListed = 32;  // ports, those of the longest p99
constexpr double kAxis = 620, kRow = 22, kHead = 30;

class Latencies {
 public:
  Latencies(const Page& page, std::vector<PortNumbers> ports)
      : page_(page), ports_(std::move(ports)) {
    low_ = high_ = *ports_[0].p50_us;
    for (const PortNumbers& p : ports_) {
      low_ = std::min(low_, *p.p50_us);
      high_ = std::max({high_, *p.p50_us, p.p99_us.value_or(0), p.p999_us.value_or(0)});
      longest_ = std::max(longest_, columns_of(label(p)));
    }
    low_ = std::max(low_, 0.01) / 1.3;
    high_ = std::max(high_, 2 * low_) * 1.3;
    left_ = 40 + 7.2 * static_cast<double>(longest_);
  }
  std::string markup() const;

 private:
  std::string label(const PortNumbers& p) const {
    return shortened(fmt::format("{} rail {}", printable(p.host), p.port.rail), 24);
  }
  double x(double us) const {
    return left_ + kAxis * std::log(std::max(us, low_) / low_) / std::log(high_ / low_);
  }
  std::string axis() const;
  std::string row(std::size_t i) const;

  const Page& page_;
  std::vector<PortNumbers> ports_;
  double low_ = 1, high_ = 10, left_ = 100;
  std::size_t longest_ = 1;
};

// Ticks at round numbers, as far as they lie apart.
std::string Latencies::axis() const {
  const double bottom = kHead + kRow * static_cast<double>(ports_.size());
  std::string svg;
  double last = -100;
  for (int power = -2; power < 9; ++power)
    for (const double step : {1.0, 1.5, 2.0, 3.0, 5.0, 7.0}) {
      const double us = step * std::pow(10, power);
      if (us < low_ || us > high_ || x(us) - last < 62) continue;
      last = x(us);
      svg += fmt::format(
          "<line class=\"axis\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\"/><text "
          "class=\"mid soft\" x=\"{0:.1f}\" y=\"{3}\">{4} us</text>",
          last, kHead - 8, bottom, kHead - 14, three_digits(us));
    }
  return svg;
}

std::string Latencies::row(std::size_t i) const {
  const PortNumbers& p = ports_[i];
  const double y = kHead + kRow * static_cast<double>(i) + kRow / 2;
  const std::vector<int> faults = page_.faults_of_port(p.port.host, p.port.rail);
  const double end = x(p.p999_us.value_or(p.p99_us.value_or(*p.p50_us)));
  std::string svg = fmt::format(
      "<g class=\"latency\"{}{}{}{}{}><title>{}: p50 {}, p99 {}, p99.9 {} us</title><text "
      "class=\"end{}\" x=\"{}\" y=\"{}\">{}</text>",
      data("host", p.host), data("rail", p.port.rail), data("p50-us", p.p50_us),
      data("p99-us", p.p99_us), data("p999-us", p.p999_us),
      escaped(port_in_words(page_.report, p.port)), three_digits(*p.p50_us),
      p.p99_us ? three_digits(*p.p99_us) : "-", p.p999_us ? three_digits(*p.p999_us) : "-",
      faults.empty() ? "" : " accused", left_ - 10, y + 4, escaped(label(p)));
  svg += fmt::format("<line class=\"range\" x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{}\" y2=\"{}\"/>",
                     x(*p.p50_us), end, y, y);
  svg += fmt::format("<circle class=\"p50\" cx=\"{:.1f}\" cy=\"{}\" r=\"5\"/>", x(*p.p50_us), y);
  if (p.p99_us)
    svg += fmt::format("<circle class=\"p99\" cx=\"{:.1f}\" cy=\"{}\" r=\"4\"/>", x(*p.p99_us), y);
  if (p.p999_us)
    svg += fmt::format("<line class=\"p999\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\"/>",
                       end, y - 6, y + 6);
  if (!faults.empty()) svg += badge(14, y, faults[0]);
  return svg + "</g>";
}

std::string Latencies::markup() const {
  std::string svg = fmt::format(
      "<svg class=\"latencies\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} {1:.0f}\" "
      "role=\"img\" aria-label=\"latency percentiles\">",
      left_ + kAxis + 30, kHead + kRow * static_cast<double>(ports_.size()) + 8);
  svg += axis();
  for (std::size_t i = 0; i < ports_.size(); ++i) svg += row(i);
  return svg + "</svg>";
}

}  // namespace

std::string html_latency(const Page& page) {
  std::vector<PortNumbers> ports;
  for (const PortNumbers& p : page.ports)
    if (p.p50_us) ports.push_back(p);
  if (ports.empty()) return "";
  const std::size_t all = ports.size();
  if (all > kMostListed) {
    std::stable_sort(ports.begin(), ports.end(), [](const PortNumbers& a, const PortNumbers& b) {
      return a.p99_us.value_or(0) > b.p99_us.value_or(0);
    });
    ports.resize(kMostListed);
  }
  return fmt::format(
      "<h2>Latency</h2>\n<p class=\"soft\">One way, of 64 bytes that the port sends, on an idle "
      "network: dot p50, ring p99, end p99.9{}.</p>\n<div class=\"wide\">{}</div>\n",
      all > kMostListed ? fmt::format("; {} of {} ports, those of the longest p99", kMostListed, all)
                        : "",
      Latencies(page, std::move(ports)).markup());
}

}  // namespace weft::fabric
