// Lists runs and compares the rates of ports between them. Judges nothing.
#include "perf/validate/report/history.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>

#include "perf/validate/report/faults.h"
#include "perf/validate/report/port_numbers.h"
#include "perf/validate/report/text_lines.h"
#include "perf/validate/report/words.h"
#include "topo/base/status.h"

namespace weft::fabric {
namespace {

constexpr std::size_t kMostPorts = 20;

// Converts "2026-11-25T04:00:12Z" to "2026-11-25 04:00".
std::string when(const Report& report) {
  std::string text = printable(report.started).substr(0, 16);
  std::replace(text.begin(), text.end(), 'T', ' ');
  return text.empty() ? "-" : text;
}

// A rate of a port in each of the displayed runs.
struct RateOfRuns {
  std::string name;  // "h3 rail 1 sends"
  std::vector<std::optional<double>> gbps;

  // Lowest / highest rate: 1 if it did not change.
  double spread() const {
    double low = 0, high = 0;
    bool any = false;
    for (const auto& rate : gbps) {
      if (!rate) continue;
      low = any ? std::min(low, *rate) : *rate;
      high = any ? std::max(high, *rate) : *rate;
      any = true;
    }
    return high > 0 ? low / high : 1;
  }
};

std::vector<RateOfRuns> rates_of(const History& history, std::size_t first) {
  std::vector<RateOfRuns> rows;
  std::map<std::string, std::size_t> row_of;
  const std::size_t runs = history.runs.size() - first;
  for (std::size_t i = 0; i < runs; ++i)
    for (const PortNumbers& p : port_numbers(history.runs[first + i].second))
      for (const bool sends : {true, false}) {
        const std::optional<double>& rate = sends ? p.transmit_gbps : p.receive_gbps;
        if (!rate) continue;
        const std::string name = fmt::format("{} rail {} {}", printable(p.host), p.port.rail,
                                             sends ? "sends" : "receives");
        const auto [at, is_new] = row_of.try_emplace(name, rows.size());
        if (is_new) rows.push_back({name, std::vector<std::optional<double>>(runs)});
        rows[at->second].gbps[i] = rate;
      }
  std::stable_sort(rows.begin(), rows.end(), [](const RateOfRuns& a, const RateOfRuns& b) {
    return a.spread() < b.spread();
  });
  return rows;
}

void add_rates(const History& history, const TextOptions& options, std::size_t columns,
               std::string& text) {
  const std::size_t shown = std::min<std::size_t>(history.runs.size(), (columns - 34) / 9);
  const std::size_t first = history.runs.size() - shown;
  std::vector<RateOfRuns> rows = rates_of(history, first);
  if (rows.empty()) return;
  const std::size_t all = rows.size();
  if (!options.verbose && all > kMostPorts) rows.resize(kMostPorts);
  text += fmt::format("\nGb/s of ports, those that moved most first{}\n",
                      rows.size() < all ? fmt::format(" ({} of {}: --verbose)", rows.size(), all)
                                        : "");
  text += fmt::format("  {:<30}", "run");
  for (std::size_t i = 0; i < shown; ++i) text += fmt::format(" {:>8}", first + i + 1);
  text += "\n";
  for (const RateOfRuns& row : rows) {
    const std::string name = shortened(row.name, 30);
    std::string line = "  " + name + std::string(30 - columns_of(name), ' ');
    for (const auto& rate : row.gbps) line += fmt::format(" {:>8}", rate ? three_digits(*rate) : "-");
    text += line + "\n";
  }
}

}  // namespace

History read_history(const std::string& folder, std::size_t most) {
  namespace fs = std::filesystem;
  std::error_code error;
  std::vector<std::string> names;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    if (at->path().extension() == ".json") names.push_back(at->path().filename().string());
  if (error) throw Error(fmt::format("cannot read the folder {}: {}", folder, error.message()));
  std::sort(names.begin(), names.end());
  if (names.size() > most) names.erase(names.begin(), names.end() - static_cast<std::ptrdiff_t>(most));
  History history;
  for (const std::string& name : names) {
    try {
      history.runs.emplace_back(name, read_report((fs::path(folder) / name).string()));
    } catch (const Error& e) {
      history.left_out.emplace_back(e.what());
    }
  }
  if (history.runs.empty())
    throw Error(fmt::format("{} has no report of `weft validate --json`{}{}", folder,
                            history.left_out.empty() ? "" : ": ",
                            history.left_out.empty() ? "" : history.left_out[0]));
  std::stable_sort(history.runs.begin(), history.runs.end(), [](const auto& a, const auto& b) {
    return a.second.started < b.second.started;
  });
  return history;
}

std::string to_text(const History& history, const TextOptions& options) {
  const auto columns = static_cast<std::size_t>(std::max(options.columns, 60));
  std::string text;
  for (std::size_t i = 0; i < history.runs.size(); ++i) {
    const auto& [name, report] = history.runs[i];
    const std::string begin = fmt::format("{:>3}  {:<16}  {:<20} ", i + 1, when(report),
                                          verdict_in_words(report));
    for (const std::string& line : at_most(wrap(headline(report), columns, begin), 2, columns))
      text += line + "\n";
  }
  add_rates(history, options, columns, text);
  if (!history.left_out.empty()) {
    text += "\nleft out\n";
    for (const std::string& why : history.left_out)
      for (const std::string& line : at_most(wrap(printable(why), columns, "  "), 2, columns))
        text += line + "\n";
  }
  return text;
}

}  // namespace weft::fabric
