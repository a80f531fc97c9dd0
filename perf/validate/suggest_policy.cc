// Writes the settings on which all ports of a healthy run agree, as a policy.
#include "perf/validate/suggest_policy.h"

#include <fmt/format.h>

#include <cstdio>
#include <map>
#include <optional>
#include <set>

#include "coll/jobs/report.h"
#include "perf/validate/report/words.h"

namespace weft::fabric {
namespace {

// Returns the common value of all ports; nullopt if values differ or a port has no value.
template <typename Get>
auto common(const Report& report, const Get& get) -> decltype(get(PortFacts{})) {
  decltype(get(PortFacts{})) value;
  bool first = true;
  for (const HostFacts& host : report.facts.hosts)
    for (const PortFacts& port : host.ports) {
      const auto one = get(port);
      if (!one || (!first && one != value)) return std::nullopt;
      value = one;
      first = false;
    }
  return value;
}

// Board names may not be valid bare TOML keys; a quoted key may contain anything but quotes.
std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : printable(text)) out += c == '"' || c == '\\' ? '_' : c;
  return out + "\"";
}

// Returns the Gb/s of a rail: declared, or as all its NICs report.
std::optional<double> rate_of(const Report& report, int rail) {
  if (const auto declared = report.policy.declared_gbps(rail)) return declared;
  if (report.declared_gbps > 0) return report.declared_gbps;
  std::optional<double> rate;
  for (const HostFacts& host : report.facts.hosts)
    for (const PortFacts& port : host.ports) {
      if (port.rail != rail) continue;
      if (!port.rate_gbps || (rate && *rate != *port.rate_gbps)) return std::nullopt;
      rate = port.rate_gbps;
    }
  return rate;
}

void add_rates(const Report& report, std::string& top, std::string& tables) {
  std::map<int, double> rates;
  std::set<double> values;
  for (int rail = 0; rail < report.rails; ++rail)
    if (const auto rate = rate_of(report, rail)) {
      rates[rail] = *rate;
      values.insert(*rate);
    }
  if (rates.empty() || static_cast<int>(rates.size()) < report.rails)
    top += "# rate = \"400 Gb/s\"   # no NIC reports its rate: declare the rate of a rail\n";
  else if (values.size() == 1)
    top += fmt::format("rate = \"{:g} Gb/s\"\n", *values.begin());
  if (values.size() < 2) return;
  tables += "\n[rail_rate]\n";
  for (const auto& [rail, rate] : rates) tables += fmt::format("{} = \"{:g} Gb/s\"\n", rail, rate);
}

void add_firmware(const Report& report, std::string& tables) {
  std::map<std::string, std::set<std::string>> by_board;
  for (const HostFacts& host : report.facts.hosts)
    for (const PortFacts& port : host.ports) {
      if (!port.firmware || !port.board) return;
      by_board[*port.board].insert(*port.firmware);
    }
  std::string lines;
  for (const auto& [board, versions] : by_board)
    if (versions.size() == 1)
      lines += fmt::format("{} = {}\n", quoted(board), quoted(*versions.begin()));
  if (!lines.empty()) tables += "\n[firmware]\n" + lines;
}

}  // namespace

std::string suggested_policy(const Report& report) {
  std::string top = fmt::format("# Written by weft validate --suggest-policy, {}: {}.\n",
                                printable(report.started), fleet_in_words(report));
  std::string tables;
  add_rates(report, top, tables);
  const auto whole = [&](const char* key, const std::optional<int>& value) {
    if (value) top += fmt::format("{} = {}\n", key, *value);
  };
  whole("mtu", common(report, [](const PortFacts& p) {
          return p.link_layer.value_or("") == "InfiniBand" ? std::nullopt : p.mtu;
        }));
  whole("rdma_mtu", common(report, [](const PortFacts& p) { return p.active_mtu; }));
  const auto bits = common(report, [](const PortFacts& p) { return p.pfc_priorities; });
  if (bits && *bits == 0) whole("pfc_priority", -1);
  for (int p = 0; p < 8; ++p)
    if (bits && *bits == 1 << p) whole("pfc_priority", p);
  if (const auto trust = common(report, [](const PortFacts& p) { return p.qos_trust; });
      trust && (*trust == "dscp" || *trust == "pcp"))
    top += fmt::format("trust = \"{}\"\n", *trust);
  if (const auto ecn = common(report, [](const PortFacts& p) { return p.ecn_np_priorities; }))
    top += fmt::format("dcqcn = {}\n", *ecn != 0);
  add_firmware(report, tables);
  return top + tables;
}

void suggest_policy(const std::string& path, const Report& report) {
  if (report.verdict != Verdict::kOk) {
    fmt::print(stderr,
               "weft: --suggest-policy {}: not written, since the verdict is {}, and not OK\n",
               path, word_of(report.verdict));
    return;
  }
  write_report(path, suggested_policy(report), "--suggest-policy");
}

}  // namespace weft::fabric
