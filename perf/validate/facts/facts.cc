// Converts facts to and from JSON with one list of fields. Absent fields are left out.
#include "perf/validate/facts/facts.h"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "topo/base/status.h"

namespace weft::fabric {
namespace {

using Json = nlohmann::ordered_json;

// The fields of a port with their JSON names. `Facts` is PortFacts or const PortFacts.
template <typename Facts, typename Visit>
void visit_port(Facts& p, Visit& visit) {
  visit("rail", p.rail);
  visit("device", p.device);
  visit("netdev", p.netdev);
  visit("ib_port", p.ib_port);
  visit("rdma", p.rdma);
  visit("absent", p.absent);
  visit("state", p.state);
  visit("phys_state", p.phys_state);
  visit("link_layer", p.link_layer);
  visit("rate_gbps", p.rate_gbps);
  visit("most_rate_gbps", p.most_rate_gbps);
  visit("width_lanes", p.width_lanes);
  visit("operstate", p.operstate);
  visit("carrier", p.carrier);
  visit("mtu_bytes", p.mtu);
  visit("active_mtu_bytes", p.active_mtu);
  visit("mac", p.mac);
  visit("address", p.address);
  visit("subnet", p.subnet);
  visit("arp_for_all", p.arp_for_all);
  visit("sm_lid", p.sm_lid);
  visit("lid", p.lid);
  visit("pkeys", p.pkeys);
  visit("gids", p.gids);
  visit("firmware", p.firmware);
  visit("board", p.board);
  visit("driver", p.driver);
  visit("pcie_speed", p.pcie_speed);
  visit("pcie_most_speed", p.pcie_most_speed);
  visit("pcie_width_lanes", p.pcie_width);
  visit("pcie_most_width_lanes", p.pcie_most_width);
  visit("slot_most_speed", p.slot_most_speed);
  visit("slot_most_width_lanes", p.slot_most_width);
  visit("numa_node", p.numa_node);
  visit("local_cpus", p.local_cpus);
  visit("pci", p.pci);
  visit("switch_name", p.switch_name);
  visit("switch_port", p.switch_port);
  visit("settings", p.settings);
  visit("gauges", p.gauges);
  visit("qos_trust", p.qos_trust);
  visit("pfc_priorities", p.pfc_priorities);
  visit("pause_rx", p.pause_rx);
  visit("pause_tx", p.pause_tx);
  visit("dscp_map", p.dscp_map);
  visit("ecn_np_priorities", p.ecn_np_priorities);
  visit("ecn_rp_priorities", p.ecn_rp_priorities);
  visit("cc_parameters", p.cc_parameters);
  visit("before", p.before);
  visit("after", p.after);
}

template <typename Facts, typename Visit>
void visit_host(Facts& h, Visit& visit) {
  visit("host", h.host);
  visit("hostname", h.hostname);
  visit("kernel", h.kernel);
  visit("first_rank", h.first_rank);
  visit("ranks", h.ranks);
  visit("cores", h.cores);
  visit("allowed_cpus", h.allowed_cpus);
  visit("numa_node", h.numa_node);
  visit("memlock_bytes", h.memlock_bytes);
  visit("governor", h.governor);
  visit("huge_pages", h.huge_pages);
  visit("peer_memory", h.peer_memory);
  visit("dmabuf", h.dmabuf);
  visit("gpus", h.gpus);
  visit("gpu_state", h.gpu_state);
  visit("watched_s", h.stops.watched_s);
  visit("stopped_s", h.stops.stopped_s);
  visit("longest_stop_s", h.stops.longest_s);
  visit("stops", h.stops.count);
  visit("throttled_s", h.stops.throttled_s);
  visit("names_rails", h.names_rails);
  visit("emulated", h.emulated);
  visit("ports", h.ports);
}

class FactsWriter {
 public:
  template <typename T>
  void operator()(const char* key, const T& value) {
    json_[key] = value;
  }
  template <typename T>
  void operator()(const char* key, const std::optional<T>& value) {
    if (value) json_[key] = *value;
  }
  template <typename T>
  void operator()(const char* key, const std::vector<T>& list) {
    for (const T& item : list) json_[key].push_back(written(item));
  }
  void operator()(const char* key,
                  const std::vector<std::pair<std::string, std::string>>& parameters) {
    for (const auto& [name, value] : parameters) json_[key][name] = value;
  }
  void operator()(const char* key, const Readings& readings) {
    for (const auto& [name, reading] : readings) json_[key][name] = written(reading);
  }
  Json take() { return std::move(json_); }

 private:
  static Json written(const std::string& text) { return text; }
  static Json written(const PortFacts::Gid& g) {
    return {{"index", g.index}, {"gid", g.gid}, {"type", g.type}, {"netdev", g.netdev}};
  }
  static Json written(const PortFacts::DscpPriority& d) {
    return {{"dscp", d.dscp}, {"priority", d.priority}};
  }
  static Json written(const PortFacts& port) {
    FactsWriter writer;
    visit_port(port, writer);
    return writer.take();
  }
  static Json written(const Reading& reading) {
    switch (reading.state) {
      case ReadingState::kValue:
        return reading.value;
      case ReadingState::kNotAvailable:
        return "N/A";
      case ReadingState::kUnreadable:
        return "unreadable";
      case ReadingState::kAbsent:
        break;
    }
    return "absent";
  }

  Json json_ = Json::object();
};

// Another rank wrote the JSON, so every field is validated.
class FactsReader {
 public:
  FactsReader(const Json& json, std::string path) : json_(json), path_(std::move(path)) {
    if (!json.is_object()) refuse("", json, "an object");
  }

  // Required fields.
  template <typename T>
  void operator()(const char* key, T& value) {
    const auto it = json_.find(key);
    if (it == json_.end()) throw Error(fmt::format("{}{} is missing{}", path_, key, kRemedy));
    take(key, *it, value);
  }
  template <typename T>
  void operator()(const char* key, std::optional<T>& value) {
    if (const auto it = json_.find(key); it != json_.end()) take(key, *it, value.emplace());
  }
  template <typename T>
  void operator()(const char* key, std::vector<T>& list) {
    const auto it = json_.find(key);
    if (it == json_.end()) return;
    if (!it->is_array()) refuse(key, *it, "a list");
    for (std::size_t i = 0; i < it->size(); ++i)
      take(fmt::format("{}[{}]", key, i), (*it)[i], list.emplace_back());
  }
  void operator()(const char* key, std::vector<std::pair<std::string, std::string>>& parameters) {
    for_each_in_object(key, [&](const std::string& at, const std::string& name, const Json& value) {
      take(at, value, parameters.emplace_back(name, "").second);
    });
  }
  void operator()(const char* key, Readings& readings) {
    for_each_in_object(key, [&](const std::string& at, const std::string& name, const Json& value) {
      take(at, value, readings[name]);
    });
  }

 private:
  static constexpr const char* kRemedy = "; do all ranks run the same version of weft?";

  [[noreturn]] void refuse(const std::string& key, const Json& value, const char* expected) const {
    throw Error(
        fmt::format("{}{} is {}, where {} is expected{}", path_, key,
                    value.dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 60),
                    expected, kRemedy));
  }

  template <typename Take>
  void for_each_in_object(const char* key, const Take& take_one) {
    const auto it = json_.find(key);
    if (it == json_.end()) return;
    if (!it->is_object()) refuse(key, *it, "an object");
    for (const auto& [name, value] : it->items())
      take_one(fmt::format("{}.{}", key, name), name, value);
  }

  void take(const std::string& key, const Json& json, std::string& value) const {
    if (!json.is_string()) refuse(key, json, "a text");
    value = json.get<std::string>();
  }
  void take(const std::string& key, const Json& json, bool& value) const {
    if (!json.is_boolean()) refuse(key, json, "true or false");
    value = json.get<bool>();
  }
  void take(const std::string& key, const Json& json, double& value) const {
    if (!json.is_number()) refuse(key, json, "a number");
    value = json.get<double>();
  }
  void take(const std::string& key, const Json& json, int& value) const {
    using Limits = std::numeric_limits<int>;
    const bool fits =
        json.is_number_unsigned()
            ? json.get<std::uint64_t>() <= std::uint64_t{Limits::max()}
            : json.is_number_integer() && std::in_range<int>(json.get<std::int64_t>());
    if (!fits) refuse(key, json, "a whole number of 32 bits");
    value = json.get<int>();
  }
  void take(const std::string& key, const Json& json, std::uint64_t& value) const {
    if (!json.is_number_unsigned()) refuse(key, json, "a whole number, not negative");
    value = json.get<std::uint64_t>();
  }
  void take(const std::string& key, const Json& json, Reading& reading) const {
    reading = {};
    if (json.is_number_unsigned()) {
      reading = {ReadingState::kValue, json.get<std::uint64_t>()};
    } else if (json == "N/A") {
      reading.state = ReadingState::kNotAvailable;
    } else if (json == "unreadable") {
      reading.state = ReadingState::kUnreadable;
    } else if (json != "absent") {
      refuse(key, json, "a counter");
    }
  }
  void take(const std::string& key, const Json& json, PortFacts::Gid& gid) const {
    FactsReader inner(json, path_ + key + ".");
    inner("index", gid.index);
    inner("gid", gid.gid);
    inner("type", gid.type);
    inner("netdev", gid.netdev);
  }
  void take(const std::string& key, const Json& json, PortFacts::DscpPriority& entry) const {
    FactsReader inner(json, path_ + key + ".");
    inner("dscp", entry.dscp);
    inner("priority", entry.priority);
  }
  void take(const std::string& key, const Json& json, PortFacts& port) const {
    FactsReader inner(json, path_ + key + ".");
    visit_port(port, inner);
  }

  const Json& json_;
  const std::string path_;  // "facts of h3: ports[1]."
};

}  // namespace

nlohmann::ordered_json to_json(const HostFacts& facts) {
  FactsWriter writer;
  visit_host(facts, writer);
  return writer.take();
}

HostFacts host_facts_from_json(const nlohmann::ordered_json& json) {
  std::string path = "facts of a host: ";
  if (json.is_object() && json.contains("host") && json["host"].is_string())
    path = fmt::format("facts of host {}: ", json["host"].get<std::string>());
  HostFacts facts;
  FactsReader reader(json, path);
  visit_host(facts, reader);
  return facts;
}

}  // namespace weft::fabric
