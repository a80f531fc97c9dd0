// Writes the results of pair tests as text and JSON. Does not measure.
#include "perf/pair/pair_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

#include "perf/stats/stats.h"
#include "topo/base/text.h"

namespace weft {
namespace {

constexpr double kMiB = 1 << 20;
constexpr double kPercentiles[] = {1, 5, 10, 25, 50, 75, 90, 95, 99, 99.9, 99.99, 99.999, 100};

double us(std::int64_t ns) { return static_cast<double>(ns) / 1e3; }

double number(const nlohmann::ordered_json& j, const char* key) {
  return j.contains(key) ? j[key].get<double>() : 0;
}

// Returns the sum of both directions.
double both(const PairRow& row, const char* key) {
  return number(row.at_client, key) + number(row.at_server, key);
}

double in_unit(const PairOptions& o, double bytes_per_second) {
  return o.gbits ? bytes_per_second * 8e-9 : bytes_per_second / kMiB;
}

std::string pair_name(const PairRow& row) { return fmt::format("{}->{}", row.client, row.server); }

double typical(const PairOptions& o, const PairRow& row) {
  return o.test == PairTest::kBandwidth ? in_unit(o, both(row, "average"))
                                        : number(row.at_client, "typical_us");
}

const char* unit(const PairOptions& o) {
  if (o.test == PairTest::kLatency) return "usec";
  return o.gbits ? "Gb/sec" : "MB/sec";
}

// At most seven characters below ten seconds.
std::string usec(double us) {
  return fmt::format("{:.{}f}", us, us < 1e3 ? 3 : us < 1e4 ? 2 : us < 1e5 ? 1 : 0);
}

std::string bandwidth_line(const std::string& bytes, const std::string& iterations,
                           const std::array<std::string, 4>& rates) {
  return fmt::format(" {:<8} {:<11} {:<15} {:<18} {:<13} {}", bytes, iterations, rates[0], rates[1],
                     rates[2], rates[3]);
}

std::string latency_line(const std::string& bytes, const std::string& iterations,
                         const std::array<std::string, 8>& times) {
  return fmt::format(" {:<7} {:<11} {:<7} {:<7} {:<9} {:<7} {:<7} {:<7} {:<7} {}", bytes,
                     iterations, times[0], times[1], times[2], times[3], times[4], times[5],
                     times[6], times[7]);
}

}  // namespace

EndResult EndResult::of_stream(const StreamResult& result, std::uint64_t bytes) {
  const double seconds = result.meter.seconds();
  EndResult end;
  end.json = {
      {"messages", result.sent},
      {"bytes", result.sent * bytes},
      {"seconds", seconds},
      {"average", result.meter.average()},
      {"best_100ms", result.meter.best()},
      {"worst_100ms", result.meter.worst()},
      {"messages_per_second", seconds > 0 ? static_cast<double>(result.sent) / seconds : 0.0}};
  if (result.cut) end.json["ended_by_limit"] = true;
  return end;
}

EndResult EndResult::of_times(const Histogram& times, bool cut) {
  EndResult end;
  end.json = {{"messages", times.count()},        {"min_us", us(times.min())},
              {"max_us", us(times.max())},        {"typical_us", us(times.percentile(50))},
              {"average_us", times.mean() / 1e3}, {"deviation_us", times.deviation() / 1e3}};
  for (const double p : kPercentiles)
    end.json["percentiles_us"][fmt::format("{}", p)] = us(times.percentile(p));
  if (cut) end.json["ended_by_limit"] = true;
  return end;
}

void EndResult::add_counters(int rail, const std::string& host,
                             const std::vector<CounterDelta>& deltas) {
  auto& counters = json["counters"] = nlohmann::ordered_json::object();
  for (const CounterDelta& delta : deltas) counters[delta.name] = delta.change;
  const std::string text = evidence(rail, host, signs_of_trouble(deltas));
  if (!text.empty()) json["trouble"] = text;
}

std::string pair_header(const PairOptions& o, bool named) {
  const std::string pair = named ? fmt::format(" {:<9}", "#pair") : "";
  const char* bytes = named ? "bytes" : "#bytes";
  if (o.test == PairTest::kBandwidth)
    return pair + bandwidth_line(
                      bytes, "#iterations",
                      {fmt::format("BW peak[{}]", unit(o)), fmt::format("BW average[{}]", unit(o)),
                       "MsgRate[Mpps]", fmt::format("BW min[{}]", unit(o))});
  std::array<std::string, 8> units;
  units.fill("[usec]");
  return pair +
         latency_line(
             bytes, "#iterations",
             {"t_min", "t_max", "t_typical", "t_avg", "t_stdev", "99%", "99.9%", "99.99%"}) +
         "\n" + (named ? fmt::format(" {:<9}", "#") : "") +
         latency_line(named ? "" : "#", "", units);
}

std::string pair_line(const PairOptions& o, const PairRow& row, bool named) {
  const std::string pair = named ? fmt::format(" {:<9}", pair_name(row)) : "";
  const std::string bytes = fmt::format("{}", row.bytes);
  if (o.test == PairTest::kBandwidth)
    return pair + bandwidth_line(
                      bytes, fmt::format("{}", static_cast<std::uint64_t>(both(row, "messages"))),
                      {fmt::format("{:.2f}", in_unit(o, both(row, "best_100ms"))),
                       fmt::format("{:.2f}", in_unit(o, both(row, "average"))),
                       fmt::format("{:.6f}", both(row, "messages_per_second") / 1e6),
                       fmt::format("{:.2f}", in_unit(o, both(row, "worst_100ms")))});
  const auto& j = row.at_client;
  const auto& p = j["percentiles_us"];
  return pair + latency_line(bytes, fmt::format("{}", j["messages"].get<std::uint64_t>()),
                             {usec(number(j, "min_us")), usec(number(j, "max_us")),
                              usec(number(j, "typical_us")), usec(number(j, "average_us")),
                              usec(number(j, "deviation_us")), usec(number(p, "99")),
                              usec(number(p, "99.9")), usec(number(p, "99.99"))});
}

std::string pair_remarks(const PairRow& row) {
  std::string text;
  for (const auto* end : {&row.at_client, &row.at_server}) {
    const char* who = end == &row.at_client ? "client" : "server";
    if (end->contains("wrong"))
      text += fmt::format(" # {} bytes, rank {} ({}): WRONG DATA: {}\n", row.bytes,
                          end == &row.at_client ? row.client : row.server, who,
                          (*end)["wrong"].get<std::string>());
    if (end->contains("trouble"))
      text += fmt::format(" # {} bytes, {}: {}\n", row.bytes, who,
                          (*end)["trouble"].get<std::string>());
    if (end->contains("ended_by_limit"))
      text += fmt::format(" # {} bytes, {}: ended by --limit-s\n", row.bytes, who);
  }
  return text;
}

std::string pair_ports(const PairRow& row) {
  std::string text;
  for (const auto* end : {&row.at_client, &row.at_server}) {
    if (!end->contains("counters") || (*end)["counters"].empty()) continue;
    std::vector<CounterDelta> moved;
    for (const auto& [counter, change] : (*end)["counters"].items())
      moved.push_back({counter, change.get<std::int64_t>()});
    const char* who = end == &row.at_client ? "client" : "server";
    text +=
        " " + wrapped(fmt::format("# {}: {}", who, to_string(moved)), kColumns - 1, " #   ") + "\n";
  }
  return text.empty() ? " # no counter of a port moved\n" : text;
}

namespace {

using OfSize = std::map<std::uint64_t, std::vector<const PairRow*>>;

OfSize by_size(const std::vector<PairRow>& rows) {
  OfSize sizes;
  for (const PairRow& row : rows) sizes[row.bytes].push_back(&row);
  return sizes;
}

std::vector<bool> slow_pairs(const PairOptions& o, const std::vector<const PairRow*>& group) {
  std::vector<double> values;
  for (const PairRow* row : group) values.push_back(typical(o, *row));
  return out_of_line(values, o.test == PairTest::kLatency);
}

// Returns a matrix with clients as rows and servers as columns.
std::string pair_table(const PairOptions& o, const std::vector<const PairRow*>& group,
                       const std::vector<bool>& slow) {
  std::map<int, std::map<int, std::string>> cells;
  std::set<int> servers;
  for (std::size_t i = 0; i < group.size(); ++i) {
    cells[group[i]->client][group[i]->server] =
        fmt::format("{:.2f}{}", typical(o, *group[i]), slow[i] ? "*" : " ");
    servers.insert(group[i]->server);
  }
  std::string text = fmt::format(" # {:<8}", unit(o));
  for (const int server : servers) text += fmt::format("{:>10} ", fmt::format("->{}", server));
  text.erase(text.find_last_not_of(' ') + 1);
  for (const auto& [client, to] : cells) {
    text += fmt::format("\n # {:<8}", client);
    for (const int server : servers) {
      const auto found = to.find(server);
      text += fmt::format("{:>11}", found == to.end() ? "" : found->second);
    }
    text.erase(text.find_last_not_of(' ') + 1);
  }
  return text + "\n";
}

}  // namespace

std::string pair_summary(const PairOptions& o, const std::vector<PairRow>& rows) {
  constexpr std::size_t kMostServers = 8, kMostNamed = 10;
  std::string text;
  for (auto& [bytes, group] : by_size(rows)) {
    if (group.size() < 2) continue;
    std::vector<const PairRow*> order = group;
    std::ranges::sort(order, {}, [&](const PairRow* row) { return typical(o, *row); });
    const PairRow &low = *order.front(), &middle = *order[(order.size() - 1) / 2],
                  &high = *order.back();
    text += fmt::format(" # {} bytes, {} pairs: {:.2f} ({}) to {:.2f} ({}), median {:.2f} {}\n",
                        bytes, group.size(), typical(o, low), pair_name(low), typical(o, high),
                        pair_name(high), typical(o, middle), unit(o));
    const std::vector<bool> slow = slow_pairs(o, group);
    std::set<int> servers;
    for (const PairRow* row : group) servers.insert(row->server);
    if (o.pairs == "all" && group.size() > 2 && servers.size() <= kMostServers)
      text += pair_table(o, group, slow);
    std::size_t named = 0;
    for (std::size_t i = 0; i < group.size(); ++i) {
      if (!slow[i] || ++named > kMostNamed) continue;
      text +=
          fmt::format(" # SLOW: {}, {} to {}: {:.2f} {}, {:.2f} of the median\n",
                      pair_name(*group[i]), group[i]->client_host, group[i]->server_host,
                      typical(o, *group[i]), unit(o), typical(o, *group[i]) / typical(o, middle));
    }
    if (named > kMostNamed)
      text += fmt::format(" # SLOW: {} more pairs: --json has all\n", named - kMostNamed);
  }
  return text;
}

std::vector<std::string> missed_limits(const PairOptions& o, const std::vector<PairRow>& rows) {
  std::map<std::pair<int, int>, std::pair<double, double>> best;  // rate and messages
  for (const PairRow& row : rows) {
    auto& [rate, messages] = best[{row.client, row.server}];
    rate = std::max(rate, in_unit(o, both(row, "average")));
    messages = std::max(messages, both(row, "messages_per_second") / 1e6);
  }
  std::vector<std::string> lines;
  for (const auto& [pair, reached] : best) {
    const std::string who = fmt::format("{}->{}", pair.first, pair.second);
    if (o.min_rate > 0 && !(reached.first >= o.min_rate))
      lines.push_back(fmt::format("{}: {:.2f} {} is below --min-rate {:g}", who, reached.first,
                                  unit(o), o.min_rate));
    if (o.min_msgrate > 0 && !(reached.second >= o.min_msgrate))
      lines.push_back(fmt::format("{}: {:.6f} Mpps is below --min-msgrate {:g}", who,
                                  reached.second, o.min_msgrate));
  }
  return lines;
}

nlohmann::ordered_json to_json(const PairOptions& o, const std::vector<PairRow>& rows,
                               const std::vector<nlohmann::ordered_json>& pairs) {
  nlohmann::ordered_json json = {
      {"schema", "weft.pair/1"},      {"test", name(o.test)},   {"op", o.op},
      {"bidirectional", o.both_ways}, {"qps", o.qps},           {"post_list", o.list},
      {"events", o.events},           {"validated", o.validate}};
  json["pairs"] = nlohmann::ordered_json::array();
  for (const auto& pair : pairs) json["pairs"].push_back(pair);
  std::set<const PairRow*> slow;
  for (const auto& [bytes, group] : by_size(rows)) {
    const std::vector<bool> marked = slow_pairs(o, group);
    for (std::size_t i = 0; i < group.size(); ++i)
      if (marked[i]) slow.insert(group[i]);
  }
  if (const auto missed = missed_limits(o, rows); !missed.empty()) json["missed"] = missed;
  for (const PairRow& row : rows) {
    for (auto& pair : json["pairs"]) {
      if (pair["client"] != row.client || pair["server"] != row.server) continue;
      nlohmann::ordered_json size = {{"bytes", row.bytes}};
      if (o.test == PairTest::kBandwidth) {
        size["average_MBps"] = both(row, "average") / kMiB;
        size["peak_MBps"] = both(row, "best_100ms") / kMiB;
        size["min_MBps"] = both(row, "worst_100ms") / kMiB;
      } else {
        size["typical_us"] = number(row.at_client, "typical_us");
      }
      size["slow"] = slow.contains(&row);
      size["at_client"] = row.at_client;
      size["at_server"] = row.at_server;
      pair["sizes"].push_back(size);
    }
  }
  return json;
}

}  // namespace weft
