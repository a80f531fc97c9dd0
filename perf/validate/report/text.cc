// One screen for a terminal: the verdict, the faults in order, what was covered and what was not.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "perf/validate/report/faults.h"
#include "perf/validate/report/text_lines.h"
#include "perf/validate/report/verbose.h"
#include "perf/validate/report/words.h"

namespace weft::fabric {
namespace {

using Lines = std::vector<std::string>;

constexpr std::size_t kScreenLines = 40;
constexpr std::size_t kFaultLines = 5;  // of the heaviest faults; of all others, one
constexpr double kMostReach = 1.2;      // of what the pairs allow, in the line about collectives

void append(Lines& to, Lines lines) {
  to.insert(to.end(), std::make_move_iterator(lines.begin()), std::make_move_iterator(lines.end()));
}

// The screen's parts, all of them of at most `columns_` columns.
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
  Lines coverage() const;
  Lines unknowns() const;
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

// "1. FAIL  h3 rail 1 (mlx5_1) sends at 187 of 392 Gb/s", confidence, remedy, what else is there.
Lines Screen::fault(std::size_t number, const Fault& fault) const {
  const Finding& first = *fault.first;
  const std::string_view indent = "           ";
  Lines lines =
      limited(in_words(first), 2, fmt::format("{:>3}. {:<5} ", number, word_of(first.severity)));
  std::string sure = certainty(first.confidence);
  const std::string interval = interval_in_words(first, report_.policy.thresholds.confidence);
  if (!interval.empty()) sure += ", " + interval;
  append(lines, limited(fmt::format("{} [{}]", sure, printable(first.id)), 1, indent));
  if (const std::string remedy = remedy_of(first.id); !remedy.empty())
    append(lines, limited(remedy, 2, fmt::format("{}do: ", indent)));
  if (!fault.also.empty()) {
    const std::string place = in_words(first.where);
    std::string also;
    for (const Finding* f : fault.also) {
      std::string text = in_words(*f);
      if (text.starts_with(place)) text.erase(0, text.find_first_not_of(",: ", place.size()));
      also += (also.empty() ? "" : "; ") + text;
    }
    append(lines, limited(also, 1, fmt::format("{}also: ", indent)));
  }
  if (options_.cost)
    if (const std::string cost = cost_in_words(first, report_); !cost.empty())
      append(lines, limited(cost, 1, fmt::format("{}cost: ", indent)));
  return lines;
}

// The faults in `most` lines: as many as fit with all they say, then some in a line each, then a
// count of the rest.
Lines Screen::faults(std::size_t most) const {
  const std::vector<Fault> all = faults_of(report_);
  if (all.empty()) return {};
  Lines lines = {"", "faults, the heaviest first"};
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
    lines.push_back(fmt::format("     and {}: --verbose", counted(all.size() - i, "more fault")));
    break;
  }
  return lines;
}

// Checks by how far they came: on all they are for, on a part, on nothing.
Lines Screen::coverage() const {
  std::map<std::pair<int, int>, std::string> whole;
  std::string partly, nothing, elsewhere;
  const auto add = [](std::string& list, std::string_view item) {
    if (!list.empty()) list += ", ";
    list += item;
  };
  for (const Coverage& row : report_.judgement.coverage) {
    if (row.total == 0)
      add(elsewhere, row.id);
    else if (row.judged == 0)
      add(nothing, row.id);
    else if (row.judged < row.total)
      add(partly, fmt::format("{} {}/{}", row.id, row.judged, row.total));
    else
      add(whole[{row.judged, row.total}], row.id);
  }
  std::string all;
  for (auto row = whole.rbegin(); row != whole.rend(); ++row)
    all += fmt::format("{}{} ({}/{})", all.empty() ? "" : "; ", row->second, row->first.first,
                       row->first.second);
  Lines lines;
  if (all.empty() && partly.empty()) all = "nothing";
  if (!all.empty()) append(lines, limited(all, 3, "  judged      "));
  if (!partly.empty()) append(lines, limited(partly, 1, "  in part     "));
  if (!nothing.empty()) append(lines, limited(nothing, 2, "  not judged  "));
  if (!elsewhere.empty()) append(lines, limited(elsewhere, 1, "  not here    "));
  return lines;
}

// What could not be known, a line for each check.
Lines Screen::unknowns() const {
  const std::vector<const Finding*> all = unknowns_of(report_);
  Lines lines;
  std::vector<std::string_view> ids;
  for (const Finding* f : all)
    if (std::find(ids.begin(), ids.end(), f->id) == ids.end()) ids.push_back(f->id);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (i == 3 && ids.size() > 4) {
      lines.push_back(fmt::format("              and of {}", counted(ids.size() - i, "check")));
      break;
    }
    std::size_t places = 0;
    const Finding* first = nullptr;
    for (const Finding* f : all)
      if (f->id == ids[i]) {
        ++places;
        if (first == nullptr) first = f;
      }
    std::string text = fmt::format("{} [{}]", in_words(*first), printable(first->id));
    if (places > 1) text += fmt::format(" and at {}", counted(places - 1, "other place"));
    append(lines,
           limited(text, ids.size() > 2 ? 1 : 2, i == 0 ? "  not known   " : "              "));
  }
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
    // Far above what pairs allow: ranks had a faster way than the ports that pairs measured.
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
  return limited(text, 2, "  collectives ");
}

Lines Screen::drift() const {
  if (report_.baseline.empty()) return {};
  std::string text = fmt::format("against {}: ", printable(report_.baseline));
  if (report_.drift.empty()) text += "none";
  for (std::size_t i = 0; i < report_.drift.size() && i < 3; ++i) {
    const Drift& d = report_.drift[i];
    text += fmt::format("{}{} {} -> {}", i ? ", " : "", printable(d.name), three_digits(d.before),
                        three_digits(d.now));
  }
  if (report_.drift.size() > 3) text += fmt::format(", and {} more", report_.drift.size() - 3);
  return limited(text, 1, "  drift       ");
}

Lines Screen::covered() const {
  Lines lines;
  if (const std::string limits = limits_in_words(report_.plan); !limits.empty())
    append(lines, limited(fmt::format("{}, {} confidence", limits,
                                      percent(report_.policy.thresholds.confidence)),
                          1, "  would see   "));
  append(lines, coverage());
  if (report_.streams > 1)
    lines.push_back(fmt::format("  rates       with {} flows a port", report_.streams));
  if (!report_.policy.skipped_checks.empty()) {
    std::string skipped;
    for (const std::string& id : report_.policy.skipped_checks)
      skipped += (skipped.empty() ? "" : ", ") + printable(id);
    append(lines, limited(fmt::format("{} (by {})", skipped, printable(report_.policy.file)), 1,
                          "  skipped     "));
  }
  if (const std::string left_out = left_out_in_words(report_); !left_out.empty())
    append(lines, limited(left_out, 2, "  left out    "));
  append(lines, unknowns());
  append(lines, collectives());
  append(lines, drift());
  if (!lines.empty()) lines.insert(lines.begin(), {"", "covered, and what was not"});
  return lines;
}

Lines Screen::closing() const {
  return {"", fmt::format("exit code {}{}", static_cast<int>(report_.verdict),
                          options_.verbose ? "" : "; --verbose has the rest")};
}

// Paints a verdict or severity where it stands at the beginning of a line.
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
    paint("FATAL", "31;1") || paint("FAIL", "31;1") || paint("WARN", "33;1");
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
