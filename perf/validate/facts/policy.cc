// Reads a fleet's policy from TOML. This file does not depend on which checks exist.
#include "perf/validate/facts/policy.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string_view>
#include <vector>

#include "topo/base/status.h"
#include "topo/base/text.h"

namespace weft::fabric {
namespace {

struct RateUnit {
  std::string_view name;
  double gbps;
};
constexpr RateUnit kRateUnits[] = {{"Tb/s", 1000}, {"Gb/s", 1}, {"Mb/s", 1e-3},
                                   {"kb/s", 1e-6}, {"GB/s", 8}, {"MB/s", 8e-3}};

struct NumberKey {
  std::string_view name;
  double Thresholds::*field;
  double least, most;
};
constexpr double kNoLimit = 1e12;
constexpr NumberKey kThresholds[] = {{"warn_rate", &Thresholds::warn_rate, 0, 1},
                                     {"fail_rate", &Thresholds::fail_rate, 0, 1},
                                     {"warn_latency", &Thresholds::warn_latency, 1, kNoLimit},
                                     {"fail_latency", &Thresholds::fail_latency, 1, kNoLimit},
                                     {"warn_loss", &Thresholds::warn_loss, 0, 1},
                                     {"fail_loss", &Thresholds::fail_loss, 0, 1},
                                     {"idle_pause", &Thresholds::idle_pause, 0, 1},
                                     {"loaded_pause", &Thresholds::loaded_pause, 0, 1},
                                     {"victim_ratio", &Thresholds::victim_ratio, 1, kNoLimit},
                                     {"incast_share", &Thresholds::incast_share, 0, 1},
                                     {"bisection_share", &Thresholds::bisection_share, 0, 1},
                                     {"class_leak", &Thresholds::class_leak, 0, 1},
                                     {"confidence", &Thresholds::confidence, 0.5, 0.999999}};

// A key of the file with its value, and the place to name in errors.
class Entry {
 public:
  Entry(const std::string& file, std::string path, const toml::key& key, const toml::node& node)
      : file_(file), path_(std::move(path)), line_(key.source().begin.line), node_(node) {}

  const std::string& path() const { return path_; }
  const toml::table* table() const { return node_.as_table(); }

  // Throws. `problem` must end with a remedy.
  [[noreturn]] void refuse(const std::string& problem) const {
    std::ostringstream value;
    node_.visit([&](const auto& node) { value << node; });
    throw Error(fmt::format("{}:{}: {} = {}: {}", file_, line_, path_, value.str(), problem));
  }

  std::string text(std::string_view example) const {
    if (const auto value = node_.value_exact<std::string>()) return *value;
    refuse(fmt::format("a text in quotes is expected; write {}", example));
  }
  bool boolean() const {
    if (const auto value = node_.value_exact<bool>()) return *value;
    refuse("write true or false, without quotes");
  }
  int whole(int least, int most, std::string_view what) const {
    const auto value = node_.value_exact<std::int64_t>();
    if (value && *value >= least && *value <= most) return static_cast<int>(*value);
    refuse(fmt::format("write {} as a whole number from {} to {}", what, least, most));
  }
  double number(double least, double most) const {
    const auto value = node_.is_number() ? node_.value<double>() : std::nullopt;
    if (value && *value >= least && *value <= most) return *value;
    refuse(most < kNoLimit ? fmt::format("write a number from {:g} to {:g}", least, most)
                           : fmt::format("write a number of {:g} or more", least));
  }
  double rate() const {
    if (node_.is_number())
      refuse(R"(a rate needs a unit; write it as in "400 Gb/s" (bits) or "50 GB/s" (bytes))");
    try {
      return rate_from(text(R"("400 Gb/s")"));
    } catch (const Error& error) {
      refuse(error.what());
    }
  }
  std::vector<std::string> texts(std::string_view example) const {
    std::vector<std::string> list;
    const toml::array* array = node_.as_array();
    if (array == nullptr) refuse(fmt::format("a list is expected; write {}", example));
    for (const toml::node& item : *array) {
      const auto value = item.value_exact<std::string>();
      if (!value || value->empty()) refuse(fmt::format("texts are expected; write {}", example));
      list.push_back(*value);
    }
    return list;
  }
  // Returns the entries of a table.
  std::vector<Entry> entries(std::string_view example) const {
    if (!table()) refuse(fmt::format("a table is expected; write {}", example));
    std::vector<Entry> list;
    for (const auto& [key, node] : *table())
      list.emplace_back(file_, fmt::format("{}.{}", path_, key.str()), key, node);
    return list;
  }
  std::string leaf() const { return path_.substr(path_.rfind('.') + 1); }

 private:
  const std::string& file_;
  std::string path_;  // "thresholds.warn_rate"
  std::uint32_t line_;
  const toml::node& node_;
};

void read_rail_rates(const Entry& entry, Policy& policy) {
  for (const Entry& rail : entry.entries("[rail_rate] and below it 0 = \"400 Gb/s\"")) {
    const std::string number = rail.leaf();
    int index = -1;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), index);
    if (error != std::errc() || end != number.data() + number.size() || index < 0 || index > 4095)
      rail.refuse("the key is not a rail number; write 0 = \"400 Gb/s\" for the first rail");
    policy.rail_rate_gbps[index] = rail.rate();
  }
}

void read_firmware(const Entry& entry, Policy& policy) {
  constexpr const char* kExample = R"([firmware] and below it MT_0000000838 = "28.41.1000")";
  for (const Entry& board : entry.entries(kExample))
    policy.firmware[board.leaf()] = board.text(R"(MT_0000000838 = "28.41.1000")");
}

void read_cc_parameters(const Entry& entry, Policy& policy) {
  for (const Entry& one : entry.entries("[cc_parameters] and below it rp_ai_rate = \"5\"")) {
    const toml::node* node = entry.table()->get(one.leaf());
    const auto number = node->value_exact<std::int64_t>();
    policy.cc_parameters[one.leaf()] =
        number ? std::to_string(*number) : one.text("the value as cc_params in debugfs shows it");
  }
}

void read_thresholds(const Entry& entry, Policy& policy);

void read_pfc_priority(const Entry& entry, Policy& policy) {
  policy.pfc_priority = entry.whole(-1, 7, "the priority with PFC (-1: none)");
}

struct PolicyKey {
  std::string_view name;
  void (*read)(const Entry& entry, Policy& policy);
};
constexpr PolicyKey kKeys[] = {
    {"rate", [](const Entry& e, Policy& p) { p.rate_gbps = e.rate(); }},
    {"rail_rate", read_rail_rates},
    {"firmware", read_firmware},
    {"mtu", [](const Entry& e, Policy& p) { p.mtu = e.whole(68, 65535, "bytes"); }},
    {"rdma_mtu", [](const Entry& e, Policy& p) { p.rdma_mtu = e.whole(256, 65535, "bytes"); }},
    {"pfc_priority", read_pfc_priority},
    {"dscp", [](const Entry& e, Policy& p) { p.dscp = e.whole(0, 63, "the DSCP of RDMA"); }},
    {"trust",
     [](const Entry& e, Policy& p) {
       p.trust = e.text(R"("dscp" or "pcp")");
       if (*p.trust != "dscp" && *p.trust != "pcp") e.refuse(R"(write "dscp" or "pcp")");
     }},
    {"dcqcn", [](const Entry& e, Policy& p) { p.dcqcn = e.boolean(); }},
    {"cc_parameters", read_cc_parameters},
    {"lossless", [](const Entry& e, Policy& p) { p.lossless = e.boolean(); }},
    {"adaptive_routing", [](const Entry& e, Policy& p) { p.adaptive_routing = e.boolean(); }},
    {"excluded_devices",
     [](const Entry& e, Policy& p) { p.excluded_devices = e.texts(R"(["mlx5_bond_0"])"); }},
    {"skipped_checks",
     [](const Entry& e, Policy& p) { p.skipped_checks = e.texts(R"(["firmware"])"); }},
    {"thresholds", read_thresholds}};

[[noreturn]] void refuse_unknown(const Entry& entry) {
  std::vector<std::string> leaves, keys;
  const auto add = [&](std::string_view table, std::string_view leaf) {
    leaves.emplace_back(leaf);
    keys.push_back(fmt::format("{}{}", table, leaf));
  };
  for (const PolicyKey& key : kKeys) add("", key.name);
  for (const NumberKey& key : kThresholds) add("thresholds.", key.name);
  const std::string like = word_like(entry.leaf(), leaves);
  if (like.empty()) entry.refuse("unknown key; docs/validate.md lists the keys of a policy");
  const auto at = std::ranges::find(leaves, like) - leaves.begin();
  entry.refuse(fmt::format("unknown key; did you mean {}?", keys[static_cast<std::size_t>(at)]));
}

void read_thresholds(const Entry& entry, Policy& policy) {
  const auto given = entry.entries("[thresholds] and below it warn_rate = 0.93");
  for (const Entry& one : given) {
    const auto* key = std::ranges::find(kThresholds, one.leaf(), &NumberKey::name);
    if (key == std::end(kThresholds)) refuse_unknown(one);
    policy.thresholds.*key->field = one.number(key->least, key->most);
  }
  const Thresholds& t = policy.thresholds;
  const auto ordered = [&](bool right, std::string_view warn, std::string_view fail,
                           const char* remedy) {
    for (const Entry& one : given)
      if (!right && (one.leaf() == warn || one.leaf() == fail)) one.refuse(remedy);
  };
  ordered(t.fail_rate <= t.warn_rate, "warn_rate", "fail_rate",
          "fail_rate must not be above warn_rate; set both");
  ordered(t.fail_latency >= t.warn_latency, "warn_latency", "fail_latency",
          "fail_latency must not be below warn_latency; set both");
  ordered(t.fail_loss >= t.warn_loss, "warn_loss", "fail_loss",
          "fail_loss must not be below warn_loss; set both");
}

toml::table parse_policy(const std::string& path) {
  std::ifstream file(path);
  file.peek();  // a folder can be opened but not read
  if (!file.is_open() || file.bad())
    throw Error(
        fmt::format("{}: cannot read the policy: {}; name a TOML file that this user may "
                    "read, or leave the policy out",
                    path, std::strerror(errno)));
  file.clear();  // clear the end-of-file state of an empty file
  try {
    return toml::parse(file, path);
  } catch (const toml::parse_error& error) {
    throw Error(fmt::format("{}:{}: {}; not valid TOML (https://toml.io)", path,
                            error.source().begin.line, error.description()));
  }
}

}  // namespace

Policy read_policy(const std::string& path) {
  const toml::table table = parse_policy(path);
  Policy policy;
  policy.file = path;
  for (const auto& [name, node] : table) {
    const Entry entry(path, std::string(name.str()), name, node);
    const auto* key = std::ranges::find(kKeys, name.str(), &PolicyKey::name);
    if (key == std::end(kKeys)) refuse_unknown(entry);
    key->read(entry, policy);
  }
  return policy;
}

double rate_from(const std::string& text) {
  const auto unit_at = text.find_first_not_of("0123456789.+-eE ");
  const std::string number = text.substr(0, text.find_last_of("0123456789.", unit_at) + 1);
  const std::string unit = unit_at == std::string::npos ? "" : text.substr(unit_at);
  const auto* known = std::ranges::find(kRateUnits, unit, &RateUnit::name);
  if (known == std::end(kRateUnits))
    throw Error(
        fmt::format("\"{}\" is not a rate: the known units are Tb/s, Gb/s, Mb/s, kb/s (bits), GB/s "
                    "and MB/s (bytes), as in \"400 Gb/s\"",
                    text));
  double value = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
  if (number.empty() || error != std::errc() || end != number.data() + number.size())
    throw Error(
        fmt::format("\"{}\" is not a rate: write a number and a unit, as in \"400 Gb/s\"", text));
  const double gbps = value * known->gbps;
  if (!(gbps > 0) || !std::isfinite(gbps))
    throw Error(fmt::format("\"{}\" is not a valid rate: it must be above 0", text));
  return gbps;
}

}  // namespace weft::fabric
