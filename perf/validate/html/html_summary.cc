// The top of the page: the verdict and the faults.
#include <fmt/format.h>

#include "perf/validate/html/html_parts.h"
#include "perf/validate/report/words.h"

namespace weft::fabric {
namespace {

std::string row_of(std::string_view title, const std::string& markup) {
  return markup.empty() ? "" : fmt::format("<dt>{}</dt><dd>{}</dd>", title, markup);
}

std::string fault_html(const Page& page, std::size_t i) {
  const Fault& fault = page.faults[i];
  const Finding& f = *fault.first;
  std::string sure = certainty(f.confidence);
  if (std::string interval = interval_in_words(f, page.report.policy.thresholds.confidence);
      !interval.empty())
    sure += ", " + interval;
  std::string also, evidence;
  for (const Finding* other : fault.also)
    also += fmt::format("{}{} <code>{}</code>", also.empty() ? "" : "<br>", escaped(in_words(*other)),
                        escaped(other->id));
  for (const Evidence& e : f.evidence)
    evidence += fmt::format("{}{}", evidence.empty() ? "" : "<br>", escaped(in_words(e)));
  const Check* check = find_check(f.id);
  return fmt::format(
      "<div class=\"fault{}\"{}{}{}{}{}{}{}>"
      "<div class=\"number\">{}</div><div class=\"body\"><div class=\"what\">{}</div><dl>{}{}{}{}{}{}{}</dl></div>"
      "</div>\n",
      f.severity < Severity::kFail ? " light" : "", data("fault", static_cast<double>(i + 1)),
      data("id", f.id), data("severity", word_of(f.severity)), data("host", f.where.host),
      f.where.rail < 0 ? "" : data("rail", f.where.rail), data("value", f.value),
      data("expected", f.expected), i + 1, escaped(in_words(f)),
      row_of("severity", fmt::format("{} <code>{}</code>", word_of(f.severity), escaped(f.id))),
      row_of("confidence", escaped(sure)),
      row_of("means", check ? escaped(check->meaning) : ""), row_of("do", escaped(remedy_of(f.id))),
      row_of("also", also), row_of("evidence", evidence),
      row_of("cost", escaped(cost_in_words(f, page.report))));
}

}  // namespace

std::string html_summary(const Page& page) {
  const Report& r = page.report;
  std::string about = fmt::format("{}; {:.1f} s", fleet_in_words(r), r.seconds);
  if (r.budget_s > 0) about += fmt::format(" of {:.0f} s", r.budget_s);
  if (!r.started.empty()) about += "; " + r.started;
  if (!r.version.empty()) about += "; weft " + r.version;
  std::string html = fmt::format(
      "<div class=\"banner v{}\"><h1><b>{}</b> {}</h1><p class=\"soft\">{}</p>",
      static_cast<int>(r.verdict), escaped(verdict_in_words(r)), escaped(headline(r)),
      escaped(about));
  if (r.simulated)
    html += "<p>Simulated: no packet crossed a network.</p>";
  else if (r.emulated)
    html += "<p>Emulated: hosts share a kernel and its cores; rates are not those of a fabric.</p>";
  if (!r.failure.empty())
    html += fmt::format("<p>The job failed: <code>{}</code></p>", escaped(r.failure));
  html += "</div>\n";
  constexpr std::size_t kMost = 40;
  if (!page.faults.empty())
    html += fmt::format("<h2>Faults, the heaviest first</h2>\n");
  for (std::size_t i = 0; i < page.faults.size() && i < kMost; ++i) html += fault_html(page, i);
  if (page.faults.size() > kMost)
    html += fmt::format("<p class=\"soft\">and {} more: see the file of --json</p>\n",
                        page.faults.size() - kMost);
  return html;
}

}  // namespace weft::fabric
