// Formats the results of a replay. Runs nothing.
#include "perf/replay/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "perf/cli/bytes.h"
#include "perf/cli/table.h"

namespace weft::replay {
namespace {

std::string group_words(const JobTrace& trace, const CallKey& key) {
  if (key.kind != NodeKind::kCollective) return "";
  const TraceGroup& group = trace.groups[static_cast<std::size_t>(key.group)];
  return fmt::format("{} of {}", group.name, group.lists[0].size());
}

std::string call_words(const JobTrace& trace, const CallKey& key) {
  if (key.kind != NodeKind::kCollective || key.collective == Collective::kBarrier)
    return fmt::format("{}{}", word_of(key), key.bytes > 0 ? " of " + format_bytes(key.bytes) : "");
  if (key.group == 0)
    return fmt::format("{} of {} over all ranks", word_of(key), format_bytes(key.bytes));
  return fmt::format("{} of {} in group {}", word_of(key), format_bytes(key.bytes),
                     trace.groups[static_cast<std::size_t>(key.group)].name);
}

double share_exposed(const Row& row) { return row.time_us > 0 ? row.exposed_us / row.time_us : 0; }

// Returns at most `most` entries, the largest first.
template <class Map>
std::vector<std::pair<std::string, std::uint64_t>> largest(const Map& map, std::size_t most) {
  std::vector<std::pair<std::string, std::uint64_t>> all(map.begin(), map.end());
  std::ranges::stable_sort(all, std::greater<>(), [](const auto& p) { return p.second; });
  if (all.size() > most) all.resize(most);
  return all;
}

std::string ms(double us) { return fmt::format("{:.3f} ms", us / 1e3); }

std::string percent_more(double us, double than_us) {
  return than_us > 0 ? fmt::format("{:+.1f} %", 100 * (us / than_us - 1)) : "";
}

void add_table(std::string& out, const Report& report) {
  const bool both = report.measured && report.simulated;
  const Replay& main = report.measured ? *report.measured : *report.simulated;
  std::vector<std::string> head = {"  collective", "bytes",     "group",
                                   "calls",        "total MiB", both ? "measured us" : "us",
                                   "exposed"};
  if (both) head.insert(head.end(), {"simulated us", "exposed", "ratio"});
  if (!main.limiting.empty()) head.emplace_back("busiest");
  std::vector<std::vector<std::string>> table = {head};
  for (std::size_t i = 0; i < main.played.rows.size(); ++i) {
    const Row& row = main.played.rows[i];
    auto& line = table.emplace_back();
    line = {fmt::format("  {}", word_of(row.key)),
            format_bytes(row.key.bytes),
            group_words(*report.trace, row.key),
            fmt::format("{:g}", row.calls),
            fmt::format("{:.1f}", row.calls * static_cast<double>(row.key.bytes) / (1 << 20)),
            format_us(row.time_us),
            fmt::format("{:.0f} %", 100 * share_exposed(row))};
    if (both) {
      const Row& other = report.simulated->played.rows[i];
      line.insert(line.end(),
                  {format_us(other.time_us), fmt::format("{:.0f} %", 100 * share_exposed(other)),
                   other.time_us > 0 ? fmt::format("{:.2f}", row.time_us / other.time_us) : ""});
    }
    if (!main.limiting.empty()) line.push_back(main.limiting[i]);
  }
  out += align(table);
}

// Returns whether the calls of a rank take longer in total than the step, so that some run
// concurrently.
bool calls_overlap(const JobTrace& trace, const Played& played) {
  double us = 0;
  for (const Row& row : played.rows) {
    const auto& lists = trace.groups[static_cast<std::size_t>(row.key.group)].lists;
    const double ranks =
        row.key.kind == NodeKind::kCollective ? static_cast<double>(lists[0].size()) : 1;
    us += row.time_us * row.calls * ranks / trace.ranks;
  }
  return us > 1.01 * played.step_us;
}

void add_step(std::string& out, const Report& report, const Replay& replay, const char* how) {
  out += wrapped(fmt::format("{} step {}: {}", how, ms(replay.played.step_us),
                             limits(*report.trace, replay)),
                 kColumns, "  ") +
         "\n";
}

void add_left_out(std::string& out, const JobTrace& trace) {
  if (trace.left_out.empty() && trace.untimed == 0) return;
  std::uint64_t all = 0;
  for (const auto& [name, count] : trace.left_out) all += count;
  constexpr std::size_t kMost = 8;
  if (all > 0) out += fmt::format("not played: {} entries of the files\n", all);
  for (const auto& [name, count] : largest(trace.left_out, kMost))
    out += fmt::format("  {:>8}  {}\n", count, name);
  if (trace.left_out.size() > kMost)
    out += fmt::format("  {} more names: --json lists them\n", trace.left_out.size() - kMost);
  if (trace.untimed > 0)
    out += fmt::format("{} computations state no time and count as 0\n", trace.untimed);
}

nlohmann::ordered_json json_of(const Report& report, const Replay& replay) {
  nlohmann::ordered_json out = {{"step_us", replay.played.step_us},
                                {"compute_us", replay.played.compute_us},
                                {"limits", limits(*report.trace, replay)}};
  if (replay.half_rail_us > 0) out["step_us_one_rail_at_half_rate"] = replay.half_rail_us;
  auto& rows = out["rows"] = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < replay.played.rows.size(); ++i) {
    const Row& row = replay.played.rows[i];
    const TraceGroup& group = report.trace->groups[static_cast<std::size_t>(row.key.group)];
    nlohmann::ordered_json line = {{"collective", word_of(row.key)}, {"bytes", row.key.bytes}};
    if (row.key.kind == NodeKind::kCollective) {
      line["group"] = group.name;
      line["group_ranks"] = group.lists[0].size();
    }
    line["calls"] = row.calls;
    line["total_bytes"] = row.calls * static_cast<double>(row.key.bytes);
    line["time_us"] = row.time_us;
    line["exposed"] = share_exposed(row);
    line["share_of_step"] = row.share_of_step;
    if (!replay.limiting.empty()) line["limiting"] = replay.limiting[i];
    rows.push_back(std::move(line));
  }
  return out;
}

}  // namespace

std::string limits(const JobTrace& trace, const Replay& replay) {
  const Played& p = replay.played;
  if (p.step_us <= 0) return "nothing takes time";
  std::vector<std::pair<double, std::string>> parts = {{p.compute_us / p.step_us, "computation"}};
  double rest = 1 - parts[0].first;
  for (const Row& row : p.rows) {
    rest -= row.share_of_step;
    parts.emplace_back(row.share_of_step, "exposed " + call_words(trace, row.key));
  }
  parts.emplace_back(std::max(rest, 0.0), "waiting for other ranks' steps");
  std::ranges::stable_sort(parts, std::greater<>(), [](const auto& part) { return part.first; });
  std::string out;
  for (std::size_t i = 0; i < std::min<std::size_t>(parts.size(), 4); ++i)
    if (i == 0 || parts[i].first >= 0.01)
      out += fmt::format("{}{} {:.0f} %", i ? ", " : "", parts[i].second, 100 * parts[i].first);
  return out;
}

std::string text(const Report& report) {
  const JobTrace& trace = *report.trace;
  std::string out = fmt::format("weft replay: a {} trace of {} {}", trace.format, trace.ranks,
                                trace.ranks == 1 ? "rank" : "ranks");
  if (!report.measured && !report.simulated) {
    out +=
        ", which is empty: it has no communication that weft plays, and no computation that "
        "states its time";
    out = wrapped(out, kColumns, "  ") + "\n";
    for (const std::string& note : trace.notes) out += note + "\n";
    add_left_out(out, trace);
    return out;
  }
  const Replay& main = report.measured ? *report.measured : *report.simulated;
  out += fmt::format(", {} on {}\n",
                     report.measured && report.simulated ? "played and simulated"
                     : report.measured                   ? "played"
                                                         : "simulated",
                     report.where);
  if (report.simulated || main.half_rail_us > 0) out += report.machine + "\n";
  for (const std::string& note : trace.notes) out += note + "\n";
  out += "\n";
  if (main.played.rows.empty())
    out += "the trace has no communication\n";
  else
    add_table(out, report);
  const char* what =
      calls_overlap(trace, main.played)
          ? "us: from a call's post to its end, and calls overlap here: it holds the "
            "time in the queue behind other calls of the rank. `weft perf` times a "
            "call alone."
          : "us: from a call's post to its end.";
  if (!main.played.rows.empty()) out += wrapped(what, kColumns, "  ") + "\n";
  out += "\n";
  if (report.measured) add_step(out, report, *report.measured, "measured");
  if (report.simulated) add_step(out, report, *report.simulated, "simulated");
  if (report.measured && report.simulated)
    out += fmt::format(
        "measured against simulated: {}\n",
        percent_more(report.measured->played.step_us, report.simulated->played.step_us));
  if (const Replay& of = report.simulated ? *report.simulated : main; of.half_rail_us > 0)
    out += fmt::format("with one rail at half rate  {} (simulated, {})\n", ms(of.half_rail_us),
                       percent_more(of.half_rail_us, of.played.step_us));
  if (report.by_model > 0)
    out += fmt::format("{} kinds of calls are too large to simulate: the cost model timed them\n",
                       report.by_model);
  add_left_out(out, trace);
  return out;
}

nlohmann::ordered_json to_json(const Report& report) {
  const JobTrace& trace = *report.trace;
  nlohmann::ordered_json out = {{"schema", "weft.replay/1"}, {"format", trace.format},
                                {"ranks", trace.ranks},      {"where", report.where},
                                {"machine", report.machine}, {"notes", trace.notes}};
  out["empty"] = !report.measured && !report.simulated;
  if (report.measured) out["measured"] = json_of(report, *report.measured);
  if (report.simulated) out["simulated"] = json_of(report, *report.simulated);
  out["timed_by_model"] = report.by_model;
  out["not_played"] = nlohmann::ordered_json::object();
  for (const auto& [name, count] : trace.left_out) out["not_played"][name] = count;
  out["computations_without_time"] = trace.untimed;
  return out;
}

}  // namespace weft::replay
