// One screen for a terminal: the verdict, the ordered causes, and the coverage.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "perf/validate/report/faults.h"
#include "perf/validate/report/text_lines.h"
#include "perf/validate/report/verbose.h"
#include "perf/validate/report/words.h"

namespace weft::fabric {
namespace {

using Lines = std::vector<std::string>;

constexpr std::size_t kScreenLines = 40;
// Lines of the first cause, and of the line with the number of other causes.
constexpr std::size_t kFaultLines = 8;
constexpr double kMostReach = 1.2;  // times the pairs' bound, in the collectives' line

void append(Lines& to, Lines lines) {
  to.insert(to.end(), std::make_move_iterator(lines.begin()), std::make_move_iterator(lines.end()));
}

// The parts of the screen, at most `columns_` wide.
class Screen {
 public:
  Screen(const Report& report, const TextOptions& options)
      : report_(report),
        options_(options),
        columns_(static_cast<std::size_t>(std::max(options.columns, 40))) {}

  Lines head() const;
  Lines faults(std::size_t most) const;
  Lines covered() const;
  Lines closing() const;

 private:
  Lines fault(std::size_t number, const Fault& fault) const;
  Lines also(const Fault& fault, std::string_view indent) const;
  Lines coverage() const;
  Lines collectives() const;
  Lines drift() const;
  Lines limited(const std::string& text, std::size_t most, std::string_view first) const {
    return at_most(wrap(text, columns_, first), most, columns_);
  }

  const Report& report_;
  const TextOptions& options_;
  std::size_t columns_;
};

Lines Screen::head() const {
  Lines lines =
      limited(fmt::format("verdict: {} - {}", verdict_in_words(report_), headline(report_)), 3, "");
  std::string about = fmt::format("{}; {:.1f} s", fleet_in_words(report_), report_.seconds);
  if (report_.budget_s > 0) about += fmt::format(" of {:.0f} s", report_.budget_s);
  if (!report_.started.empty()) about += "; " + printable(report_.started);
  append(lines, limited(about, 2, ""));
  if (report_.simulated)
    append(lines, limited("simulated: no packet crossed a network", 1, ""));
  else if (report_.emulated)
    append(lines, limited("emulated: hosts share a kernel and its cores; rates are not those of a "
                          "fabric",
                          2, ""));
  const std::string said = headline(report_);
  if (!report_.failure.empty() && said.find("the job failed") != 0)
    append(lines, limited("the job failed: " + printable(report_.failure), 2, ""));
  return lines;
}

// Returns one sentence per check that a cause explains: "also: to the host's own ports pass 195 of
// 400 Gb/s, and 3 like it [loopback]".
Lines Screen::also(const Fault& fault, std::string_view indent) const {
  constexpr std::size_t kMostKinds = 3;
  std::vector<std::pair<const Finding*, std::size_t>> kinds;  // first of a check, and count
  for (const Finding* f : fault.also) {
    const auto known =
        std::ranges::find_if(kinds, [&](const auto& k) { return k.first->id == f->id; });
    if (known == kinds.end())
      kinds.emplace_back(f, 1);
    else
      ++known->second;
  }
  const std::string place = in_words(fault.first->where);
  Lines lines;
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    if (i == kMostKinds) {
      lines.push_back(
          fmt::format("{}      and of {}", indent, counted(kinds.size() - i, "other check")));
      break;
    }
    const auto& [f, count] = kinds[i];
    std::string text = in_words(*f);
    if (text.starts_with(place) && !text.substr(place.size()).starts_with(" ->"))
      text.erase(0, text.find_first_not_of(",: ", place.size()));
    if (count > 1) text += fmt::format(", and {} like it", count - 1);
    append(lines, limited(fmt::format("{} [{}]", text, printable(f->id)), 2,
                          fmt::format("{}{}", indent, i == 0 ? "also: " : "      ")));
  }
  return lines;
}

// "1. CRITICAL h3 rail 1 (mlx5_1) sends at 187 of 392 Gb/s", certainty, remedy, explained findings.
Lines Screen::fault(std::size_t number, const Fault& fault) const {
  const Finding& first = *fault.first;
  const std::string indent(14, ' ');
  std::string text = in_words(first);
  if (fault.places > 1) text += fmt::format(", and {} like it", fault.places - 1);
  Lines lines = limited(text, 3, fmt::format("{:>3}. {:<8} ", number, severity_in_words(first)));
  append(lines,
         limited(fmt::format("{} [{}]", detail_in_words(first, report_), printable(first.id)), 2,
                 indent));
  if (const std::string remedy = remedy_of(first); !remedy.empty())
    append(lines, wrap(remedy, columns_, indent + "do: "));
  append(lines, also(fault, indent));
  return lines;
}

// Returns causes and unknowns in `most` lines: as many as fit completely, then some in one line
// each, then the number of remaining ones.
Lines Screen::faults(std::size_t most) const {
  std::vector<Fault> all = faults_of(report_);
  const std::size_t known = all.size();
  std::ranges::move(unknowns_of(report_), std::back_inserter(all));
  if (all.empty()) return {};
  Lines lines = {"", known == 0           ? "unknowns"
                     : known < all.size() ? "causes, most costly to a job first, and unknowns"
                                          : "causes, most costly to a job first"};
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::size_t left = most - lines.size(), rest = all.size() - i - 1;
    Lines full = fault(i + 1, all[i]);
    if (full.size() + (rest > 0 ? 1 : 0) <= left) {
      append(lines, std::move(full));
      continue;
    }
    if (left > (rest > 0 ? 1U : 0U)) {
      full.resize(1);
      append(lines, std::move(full));
      continue;
    }
    lines.push_back(fmt::format("     and {} more: --verbose", all.size() - i));
    break;
  }
  return lines;
}

// How many checks were fully evaluated, and why others were not; --verbose lists the names.
Lines Screen::coverage() const {
  std::size_t checked = 0, partly = 0, elsewhere = 0;
  for (const Coverage& row : report_.judgement.coverage)
    ++(row.total == 0 ? elsewhere : row.judged == row.total ? checked : partly);
  std::string text;
  const auto add = [&](std::size_t n, std::string_view noun, std::string_view why) {
    if (n > 0) text += fmt::format("{}{} {}", text.empty() ? "" : "; ", counted(n, noun), why);
  };
  add(partly, "check", "without data at some places");
  add(report_.plan.left_out.size(), "probe", "without time in the budget");
  add(report_.policy.skipped_checks.size(), "check", "skipped by the policy");
  add(elsewhere, "check", "for other devices or settings");
  Lines lines = {"  checked      " +
                 (checked > 0 ? counted(checked, "check") + ", each at all places that it is for"
                              : std::string("nothing"))};
  if (!text.empty()) append(lines, wrap(text, columns_, "  not checked  "));
  return lines;
}

Lines Screen::collectives() const {
  int cases = 0, wrong = 0, left_out = 0;
  const CollectiveResult *first_wrong = nullptr, *slowest = nullptr;
  const auto reach = [](const CollectiveResult& c) {
    return c.busbw_gbps / c.predicted_busbw_gbps;
  };
  for (const CollectiveResult& c : report_.collectives) {
    cases += c.cases;
    wrong += c.wrong;
    left_out += c.left_out;
    if (c.wrong > 0 && first_wrong == nullptr) first_wrong = &c;
    // A collective far above the bound from the measured pairs does not count: its ranks used a
    // faster path than the measured ports.
    if (c.busbw_gbps > 0 && c.predicted_busbw_gbps > 0 && reach(c) <= kMostReach &&
        (slowest == nullptr || reach(c) < reach(*slowest)))
      slowest = &c;
  }
  if (report_.collectives.empty()) return {};
  std::string text =
      fmt::format("{} run, {} wrong", counted(static_cast<std::size_t>(cases), "case"), wrong);
  if (left_out > 0) text += fmt::format(", {} left out", left_out);
  if (first_wrong)
    text += fmt::format("; {} {}: {}", first_wrong->collective, first_wrong->algorithm,
                        printable(first_wrong->first_wrong));
  if (slowest) {
    text += fmt::format("; {} {} reaches {} of the {} Gb/s busbw that the pairs allow",
                        slowest->collective, slowest->algorithm, three_digits(slowest->busbw_gbps),
                        three_digits(slowest->predicted_busbw_gbps));
    if (!slowest->limiting_link.empty())
      text += ", limited by " + printable(slowest->limiting_link);
  }
  return limited(text, 2, "  collectives  ");
}

Lines Screen::drift() const {
  if (!report_.baseline_note.empty())
    return wrap(report_.baseline_note, columns_, "  baseline     ");
  if (report_.baseline.empty()) return {};
  std::string text = fmt::format("against {}: ", printable(report_.baseline));
  if (report_.drift.empty()) text += "none";
  for (std::size_t i = 0; i < report_.drift.size() && i < 3; ++i) {
    const Drift& d = report_.drift[i];
    text += fmt::format("{}{} {} -> {}", i ? ", " : "", printable(d.name), three_digits(d.before),
                        three_digits(d.now));
  }
  if (report_.drift.size() > 3) text += fmt::format(", and {} more", report_.drift.size() - 3);
  return limited(text, 1, "  drift        ");
}

Lines Screen::covered() const {
  Lines lines;
  const std::string limits = limits_in_words(report_.plan);
  if (!limits.empty() && report_.verdict != Verdict::kOk)  // the OK headline has these limits
    append(lines, limited(fmt::format("{}, {} confidence", limits,
                                      percent(report_.policy.thresholds.confidence)),
                          2, "  would see    "));
  append(lines, coverage());
  if (report_.streams > 1)
    lines.push_back(fmt::format("  rates        with {} flows a port", report_.streams));
  append(lines, collectives());
  append(lines, drift());
  lines.insert(lines.begin(), {"", "covered"});
  return lines;
}

Lines Screen::closing() const {
  return {"", fmt::format("exit code {}{}", static_cast<int>(report_.verdict),
                          options_.verbose ? "" : "; --verbose has the rest")};
}

// Colors a verdict or severity at the beginning of a line.
std::string painted(std::string line, const Report& report) {
  const auto paint = [&](std::string_view word, std::string_view code) {
    const std::size_t at = line.find(word);
    if (at == line.npos || at > 9) return false;
    line.insert(at + word.size(), "\033[0m");
    line.insert(at, fmt::format("\033[{}m", code));
    return true;
  };
  if (line.starts_with("verdict: ")) {
    constexpr std::string_view codes[] = {"32;1", "33;1", "31;1", "33;1", "35;1"};
    paint(word_of(report.verdict), codes[static_cast<int>(report.verdict)]);
  } else if (line.starts_with("  ")) {
    paint("CRITICAL", "31;1") || paint("TESTER", "35;1") || paint("WARN", "33;1") ||
        paint("UNKNOWN", "33;1");
  }
  return line;
}

}  // namespace

std::string to_text(const Report& report, const TextOptions& options) {
  const Screen screen(report, options);
  Lines lines = screen.head();
  const Lines covered = screen.covered(), closing = screen.closing();
  const std::size_t others = lines.size() + covered.size() + closing.size();
  append(lines, screen.faults(std::max(kScreenLines, others + kFaultLines) - others));
  append(lines, covered);
  if (options.verbose) append(lines, verbose_lines(report, options));
  append(lines, closing);
  std::string text;
  for (std::string& line : lines) {
    line.erase(line.find_last_not_of(' ') + 1);
    text += (options.colour ? painted(line, report) : line) + "\n";
  }
  return text;
}

}  // namespace weft::fabric
