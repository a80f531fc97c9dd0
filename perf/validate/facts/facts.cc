// Facts as JSON, and back.
#include "perf/validate/facts/facts.h"

#include "perf/validate/facts/json_fields.h"

namespace weft::fabric {

// The value, or a word for why the value is missing.
template <>
struct JsonValue<Reading> {
  static constexpr std::string_view what = "a counter";
  static constexpr std::pair<ReadingState, const char*> kWords[] = {
      {ReadingState::kNotAvailable, "N/A"},
      {ReadingState::kUnreadable, "unreadable"},
      {ReadingState::kAbsent, "absent"}};

  static nlohmann::ordered_json written(const Reading& reading) {
    for (const auto& [state, word] : kWords)
      if (reading.state == state) return word;
    return reading.value;
  }
  static bool taken(const nlohmann::ordered_json& json, Reading& reading) {
    reading = {ReadingState::kValue, 0};
    if (json.is_number_unsigned()) reading.value = json.get<std::uint64_t>();
    for (const auto& [state, word] : kWords)
      if (json == word) reading.state = state;
    return json.is_number_unsigned() || reading.state != ReadingState::kValue;
  }
};

template <typename A, Of<PortFacts::Gid> T>
void fields(A& a, T& gid) {
  a("index", gid.index);
  a("gid", gid.gid);
  a("type", gid.type);
  a("netdev", gid.netdev);
}

template <typename A, Of<PortFacts::DscpPriority> T>
void fields(A& a, T& entry) {
  a("dscp", entry.dscp);
  a("priority", entry.priority);
}

template <typename A, Of<PortFacts> T>
void fields(A& a, T& p) {
  a("rail", p.rail);
  a("device", p.device);
  a("netdev", p.netdev);
  a("ib_port", p.ib_port);
  a("rdma", p.rdma);
  a("absent", p.absent);
  a("state", p.state);
  a("phys_state", p.phys_state);
  a("link_layer", p.link_layer);
  a("rate_gbps", p.rate_gbps);
  a("most_rate_gbps", p.most_rate_gbps);
  a("width_lanes", p.width_lanes);
  a("operstate", p.operstate);
  a("carrier", p.carrier);
  a("mtu_bytes", p.mtu);
  a("active_mtu_bytes", p.active_mtu);
  a("mac", p.mac);
  a("address", p.address);
  a("subnet", p.subnet);
  a("arp_for_all", p.arp_for_all);
  a("sm_lid", p.sm_lid);
  a("lid", p.lid);
  a("pkeys", p.pkeys);
  a("gids", p.gids);
  a("firmware", p.firmware);
  a("board", p.board);
  a("driver", p.driver);
  a("pcie_speed", p.pcie_speed);
  a("pcie_most_speed", p.pcie_most_speed);
  a("pcie_width_lanes", p.pcie_width);
  a("pcie_most_width_lanes", p.pcie_most_width);
  a("slot_most_speed", p.slot_most_speed);
  a("slot_most_width_lanes", p.slot_most_width);
  a("numa_node", p.numa_node);
  a("local_cpus", p.local_cpus);
  a("pci", p.pci);
  a("switch_name", p.switch_name);
  a("switch_port", p.switch_port);
  a("settings", p.settings);
  a("gauges", p.gauges);
  a("qos_trust", p.qos_trust);
  a("pfc_priorities", p.pfc_priorities);
  a("pause_rx", p.pause_rx);
  a("pause_tx", p.pause_tx);
  a("dscp_map", p.dscp_map);
  a("ecn_np_priorities", p.ecn_np_priorities);
  a("ecn_rp_priorities", p.ecn_rp_priorities);
  a("cc_parameters", p.cc_parameters);
  a("before", p.before);
  a("after", p.after);
}

template <typename A, Of<HostFacts> T>
void fields(A& a, T& h) {
  a("host", h.host);
  a("hostname", h.hostname);
  a("kernel", h.kernel);
  a("first_rank", h.first_rank);
  a("ranks", h.ranks);
  a("cores", h.cores);
  a("allowed_cpus", h.allowed_cpus);
  a("numa_node", h.numa_node);
  a("memlock_bytes", h.memlock_bytes);
  a("governor", h.governor);
  a("huge_pages", h.huge_pages);
  a("peer_memory", h.peer_memory);
  a("dmabuf", h.dmabuf);
  a("gpus", h.gpus);
  a("gpu_state", h.gpu_state);
  a("watched_s", h.stops.watched_s);
  a("stopped_s", h.stops.stopped_s);
  a("longest_stop_s", h.stops.longest_s);
  a("stops", h.stops.count);
  a("throttled_s", h.stops.throttled_s);
  a("names_rails", h.names_rails);
  a("emulated", h.emulated);
  a("ports", h.ports);
}

nlohmann::ordered_json to_json(const HostFacts& facts) {
  return FieldWriter::written(facts, Empty::kTextsStay);
}

HostFacts host_facts_from_json(const nlohmann::ordered_json& json) {
  try {
    return read_fields<HostFacts>(json, Missing::kIsRefused);
  } catch (const Error& error) {
    const bool named = json.is_object() && json.contains("host") && json["host"].is_string();
    throw Error(fmt::format("facts of {}: {}; do all ranks run the same version of weft?",
                            named ? "host " + json["host"].get<std::string>() : "a host",
                            error.what()));
  }
}

}  // namespace weft::fabric
