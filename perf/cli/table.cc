// Formats columns, numbers, colours and the progress line. Does not depend on the measurements.
#include "perf/cli/table.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <sstream>

#include "topo/base/environment.h"

namespace weft {
namespace {

void trim(std::string& line) { line.erase(line.find_last_not_of(' ') + 1); }

}  // namespace

Table::Table(std::vector<Column> columns, int gap) : columns_(std::move(columns)), gap_(gap) {}

std::string Table::line(const std::vector<std::string>& cells) const {
  std::string text;
  for (std::size_t i = 0; i < columns_.size() && i < cells.size(); ++i) {
    const Column& c = columns_[i];
    text.append(static_cast<std::size_t>(i > 0 ? gap_ : gap_ - 1), ' ');
    text += c.left ? fmt::format("{:<{}}", cells[i], c.width)
                   : fmt::format("{:>{}}", cells[i], c.width);
  }
  trim(text);
  return text + "\n";
}

std::string Table::header() const {
  std::vector<std::string> titles, units;
  for (const Column& c : columns_) {
    titles.push_back(c.title);
    units.push_back(c.unit);
  }
  std::string text = line(titles);
  text[0] = '#';
  if (std::any_of(units.begin(), units.end(), [](auto& u) { return !u.empty(); })) {
    std::string second = line(units);
    second[0] = '#';
    text += second;
  }
  return text;
}

std::string Table::row(const std::vector<std::string>& cells) const { return line(cells); }

bool Table::has(std::string_view title) const {
  return std::ranges::any_of(columns_, [&](const Column& c) { return c.title == title; });
}

std::string align(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  constexpr std::size_t kLeast = 20;  // columns of a last cell that is wrapped
  std::string text;
  for (const auto& row : rows) {
    if (row.empty()) {
      text += "\n";
      continue;
    }
    std::string line;
    for (std::size_t i = 0; i + 1 < row.size(); ++i) {
      line += row[i];
      line.append(widths[i] - row[i].size() + 2, ' ');
    }
    const std::size_t left = line.size();
    if (left + row.back().size() <= kColumns || left + kLeast > kColumns) {
      line += row.back();
    } else {
      std::istringstream lines(wrapped(row.back(), kColumns - left));
      for (std::string part; std::getline(lines, part);)
        line += (line.size() > left ? "\n" + std::string(left, ' ') : "") + part;
    }
    trim(line);
    text += line + "\n";
  }
  return text;
}

std::string format_us(double us) {
  return us < 10     ? fmt::format("{:.2f}", us)
         : us < 1000 ? fmt::format("{:.1f}", us)
                     : fmt::format("{:.0f}", us);
}

std::string format_GBps(double GBps) {
  return GBps < 1 ? fmt::format("{:.3f}", GBps) : fmt::format("{:.2f}", GBps);
}

bool obeys_escapes() {
  const std::string term = environment("TERM");
  // mpirun gives its ranks a pseudo-terminal even if its own standard output is a file.
  return isatty(STDOUT_FILENO) != 0 && !term.empty() && term != "dumb" && !is_set("PMIX_RANK");
}

bool colours() { return obeys_escapes() && environment("NO_COLOR").empty(); }

std::string paint(Paint paint, std::string_view text) {
  static const bool coloured = colours();
  if (!coloured) return std::string(text);
  const char* code = "0";
  switch (paint) {
    case Paint::kGood:
      code = "32";
      break;
    case Paint::kWarn:
      code = "33";
      break;
    case Paint::kBad:
      code = "31;1";
      break;
    case Paint::kDim:
      code = "2";
      break;
    case Paint::kBold:
      code = "1";
      break;
  }
  return fmt::format("\033[{}m{}\033[0m", code, text);
}

Progress::Progress(bool wanted) : on_(wanted && obeys_escapes() && isatty(STDERR_FILENO) != 0) {}

void Progress::show(std::string_view text) {
  if (!on_) return;
  fmt::print(stderr, "\r\033[K{}", text);
  std::fflush(stderr);
  shown_ = true;
}

void Progress::clear() {
  if (!shown_) return;
  fmt::print(stderr, "\r\033[K");
  std::fflush(stderr);
  shown_ = false;
}

}  // namespace weft
