// Lays out the rows of `weft perf` in columns. Does not measure.
#include "perf/sweep/perf_table.h"

#include <fmt/format.h>

#include <algorithm>

#include "coll/schedule/algorithm.h"
#include "perf/cli/bytes.h"

namespace weft {
namespace {

int width_of(std::uint64_t number, int least) {
  return std::max(least, static_cast<int>(fmt::formatted_size("{}", number)));
}

template <class Range>
int longest_name(const Range& range, int least) {
  for (auto x : range) least = std::max(least, static_cast<int>(std::string_view(name(x)).size()));
  return least;
}

int longest_algorithm(Collective collective) {
  std::size_t most = 9;
  for (const Algorithm& a : algorithms())
    if (a.collective == collective) most = std::max(most, std::string_view(a.name).size());
  return static_cast<int>(most);
}

std::vector<Column> columns_of(const PerfReport& report, const PerfExtent& extent,
                               PerfLines lines) {
  const Column size{"size", "B", width_of(extent.largest, 8)};
  const Column type{"type", "", longest_name(extent.types, 5), true};
  const Column op{"redop", "", reduces(report.collective) ? longest_name(extent.ops, 5) : 5, true};
  const Column algorithm{"algorithm", "", longest_algorithm(report.collective), true};
  const Column algbw{"algbw", "GB/s", 5}, busbw{"busbw", "GB/s", 5}, wrong{"#wrong", "", 6};
  const Column of_bound{"of_bound", "", 8};
  const Column half_of{"half", "", 4, true}, finished{"timestamp", "", 19};
  if (lines != PerfLines::kRows) {
    std::vector<Column> all = {size};
    if (extent.types.size() > 1) all.push_back(type);
    if (extent.ops.size() > 1) all.push_back(op);
    if (lines == PerfLines::kPercentiles) {
      for (const char* time : {"min", "p50", "p99"}) all.push_back({time, "us", 6});
      all.insert(all.end(), {algbw, busbw, of_bound, wrong, half_of, algorithm});
    } else {
      all.insert(all.end(), {{"time", "us", 7}, algbw, busbw, wrong});
      for (const char* time : {"i_min", "i_max", "i_p99"}) all.push_back({time, "us", 7});
      all.insert(all.end(), {{"i_cv", "%", 6}, half_of});
    }
    if (report.timestamps) all.push_back(finished);
    return all;
  }
  std::uint64_t least = 8;
  for (const DType t : extent.types) least = std::min<std::uint64_t>(least, size_of(t));
  const Column count{"count", "elements", width_of(extent.largest / least, 8)};
  std::vector<Column> all = {size, count, type, op, {"root", "", 4}};
  const bool both = report.out_of_place && report.in_place;
  for (int half = 0; half < (both ? 2 : 1); ++half)
    all.insert(all.end(), {{"time", "us", 7}, algbw, busbw, wrong});
  if (!both) all.insert(all.end(), {of_bound, algorithm});
  if (report.timestamps) all.push_back(finished);
  return all;
}

using Cells = std::vector<std::string>;

std::string wrong_cell(const PerfHalf& half) {
  return half.wrong ? fmt::format("{}", *half.wrong) : "-";
}

std::string bound_cell(const PerfHalf& half) {
  const auto share = of_bound(half);
  return share ? fmt::format("{:.3f}", *share) : "-";
}

// Returns a rate in at most five characters.
std::string rate_cell(double GBps) {
  return GBps < 100 ? format_GBps(GBps) : fmt::format("{:.{}f}", GBps, GBps < 1000 ? 1 : 0);
}

void add(Cells& cells, const Cells& more) { cells.insert(cells.end(), more.begin(), more.end()); }

}  // namespace

PerfTable::PerfTable(const PerfReport& report, const PerfExtent& extent, PerfLines lines)
    : report_(report), lines_(lines), table_(columns_of(report, extent, lines), 1) {}

std::string PerfTable::header() const {
  const std::string lines = table_.header();
  if (!both()) return lines;
  const std::string first = lines.substr(0, lines.find('\n'));
  const std::size_t half = first.find(" time ") - 2, other = first.rfind(" time ") - 2;
  const std::size_t width = other - half;
  const auto centred = [&](const char* title) { return fmt::format("{:^{}}", title, width); };
  std::string titles = "#" + std::string(half - 1, ' ') + centred("out-of-place");
  titles.resize(other, ' ');
  titles += centred("in-place");
  return titles.substr(0, titles.find_last_not_of(' ') + 1) + "\n" + lines;
}

// Returns the cells algbw and busbw of a line.
Cells PerfTable::rates(const PerfRow& row, const PerfHalf& half) const {
  return {rate_cell(algbw(row, half)), rate_cell(busbw(report_, row, half))};
}

std::string PerfTable::lines_of_halves(const PerfRow& row) const {
  std::string lines;
  for (const auto* half : {&row.out_of_place, &row.in_place}) {
    if (!*half) continue;
    const PerfHalf& h = **half;
    Cells cells = {fmt::format("{}", row.bytes)};
    if (table_.has("type")) cells.push_back(name(row.type));
    if (table_.has("redop")) cells.push_back(op_name(report_, row));
    const char* which = half == &row.in_place ? "in" : "out";
    if (lines_ == PerfLines::kPercentiles) {
      add(cells, {format_us(h.time_us.min), format_us(h.time_us.p50), format_us(h.time_us.p99)});
      add(cells, rates(row, h));
      add(cells, {bound_cell(h), wrong_cell(h), which, h.algorithm});
    } else {
      const IterationStats i = statistics(report_, h);
      add(cells, {format_us(h.time_us.p50)});
      add(cells, rates(row, h));
      add(cells, {wrong_cell(h), format_us(i.min), format_us(i.max), format_us(i.p99),
                  fmt::format("{:.1f}", i.percent()), which});
    }
    if (report_.timestamps) cells.push_back(row.finished);
    lines += table_.row(cells);
  }
  return lines;
}

std::string PerfTable::row(const PerfRow& row) const {
  if (lines_ != PerfLines::kRows) return lines_of_halves(row);
  Cells cells = {fmt::format("{}", row.bytes), fmt::format("{}", row.count), name(row.type),
                 op_name(report_, row), fmt::format("{}", row.root)};
  const auto columns = [&](const std::optional<PerfHalf>& half) {
    if (!half) return add(cells, Cells(4, "N/A"));
    add(cells, {format_us(half->time_us.p50)});
    add(cells, rates(row, *half));
    add(cells, {wrong_cell(*half)});
  };
  if (report_.out_of_place) columns(row.out_of_place);
  if (report_.in_place) columns(row.in_place);
  if (!both()) {
    const PerfHalf& half = first_half(row);
    add(cells, {bound_cell(half), half.algorithm});
  }
  if (report_.timestamps) cells.push_back(row.finished);
  return table_.row(cells);
}

std::string algorithms_in_words(const PerfReport& report) {
  if (report.rows.empty()) return "";
  std::string names, last;
  double most = 0;
  std::uint64_t most_at = 0, seen = 0;
  const PerfRow& start = report.rows.front();
  for (const PerfRow& row : report.rows) {
    const PerfHalf& half = first_half(row);
    if (const double share = of_bound(half).value_or(0); share > most)
      most = share, most_at = row.bytes;
    if (row.type != start.type || row.op != start.op || row.root != start.root) continue;
    if (&row != &start && row.bytes <= seen) break;  // another cycle
    seen = row.bytes;
    if (half.algorithm == last) continue;
    names += last.empty() ? half.algorithm
                          : fmt::format(", {} from {}", half.algorithm, format_bytes(row.bytes));
    last = half.algorithm;
  }
  std::string text = "# algorithm: " + names;
  if (most > 0)
    text += fmt::format("; of_bound at most {:.3f}, at {}", most, format_bytes(most_at));
  return wrapped(text + " (--percentiles: of every size)", kColumns, "#   ") + "\n";
}

}  // namespace weft
