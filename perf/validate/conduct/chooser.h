// Builds a round that tests suspects with known-good partners. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "perf/validate/locate/cause.h"
#include "perf/validate/probes/fabric.h"
#include "perf/validate/probes/samples.h"

namespace weft::fabric {

class Chooser {
 public:
  // `repeats`: maximum number of samples of a path; 0: a few.
  Chooser(const std::vector<FleetHost>& hosts, const Samples& samples,
          const std::vector<Cause>& causes, Probe probe, int most_flows, int repeats = 0);

  void test(const Cause& cause);
  void look(const Cause& cause) {
    cause.place == CausePlace::kPath ? void(add(cause.port, cause.peer)) : test(cause);
  }
  void probe_silent_paths();
  void repeat(const Flow& flow) {
    if (add(flow.from, flow.to)) round_.flows.back().label = flow.label;
  }
  std::optional<Round> round() {
    if (round_.flows.empty()) return std::nullopt;
    return std::move(round_);
  }

 private:
  // Keys of the maps below: of a port (host and rail), and of a path (both ends).
  static std::uint64_t key_of(Port port) {
    return static_cast<std::uint64_t>(port.host) << 8 | static_cast<std::uint64_t>(port.rail);
  }
  static std::uint64_t key_of(std::pair<Port, Port> path) {
    return key_of(path.first) << 32 | key_of(path.second);
  }
  static int count(const std::unordered_map<std::uint64_t, int>& map, const auto& of) {
    const auto found = map.find(key_of(of));
    return found == map.end() ? 0 : found->second;
  }
  bool has(Port port) const {
    const std::vector<PortInfo>& ports = hosts_[static_cast<std::size_t>(port.host)].ports;
    return port.rail < static_cast<int>(ports.size()) &&
           ports[static_cast<std::size_t>(port.rail)].usable;
  }
  bool free(Port port) const { return !busy_.contains(port); }
  bool add(Port from, Port to);
  bool suspect(Port port) const;
  std::optional<Port> partner(Port port, bool sends) const;
  bool test_end(Port port, bool sends);
  bool either_way(Port port);
  void test_path(const Cause& cause, bool both_ways);

  const std::vector<FleetHost>& hosts_;
  const std::vector<Cause>& causes_;
  int most_, repeats_;  // maximum number of concurrent flows, and of samples of a path
  Round round_;
  std::unordered_map<std::uint64_t, int> tried_, spoken_, sent_, received_;
  std::map<Port, int> all_sent_, all_received_;
  std::set<Port> busy_;
};

}  // namespace weft::fabric
