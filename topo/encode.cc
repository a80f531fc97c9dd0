// Converts a Place to JSON and back, for the bootstrap. Does not send the text.
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "topo/topology.h"

namespace weft {

namespace {

using nlohmann::json;

[[noreturn]] void malformed(const std::string& what) {
  throw Error(fmt::format(
      "the description of a rank's place is malformed: {}; do all ranks run the same version of "
      "weft?",
      what));
}

const json& object(const json& value, const char* what) {
  if (!value.is_object()) malformed(fmt::format("{} is not an object", what));
  return value;
}

std::string text(const json& object, const char* key) {
  const auto it = object.find(key);
  if (it == object.end()) return "";
  if (!it->is_string()) malformed(fmt::format("'{}' is not a string", key));
  return it->get<std::string>();
}

bool boolean(const json& object, const char* key) {
  const auto it = object.find(key);
  if (it == object.end()) return false;
  if (!it->is_boolean()) malformed(fmt::format("'{}' is not true or false", key));
  return it->get<bool>();
}

// Returns a number >= 0, or -1 if unknown.
int number(const json& object, const char* key, const char* what) {
  const auto it = object.find(key);
  if (it == object.end()) return -1;
  constexpr int kMax = 1 << 16;
  if (it->is_number_integer()) {
    const std::int64_t value = it->get<std::int64_t>();
    if (value >= -1 && value < kMax) return static_cast<int>(value);
  }
  malformed(fmt::format("'{}' is not {} or -1", key, what));
}

int numa_node(const json& object) { return number(object, "numa_node", "a node number"); }

double rate(const json& object) {
  const auto it = object.find("rate_gbps");
  if (it == object.end()) return 0;
  const double gbps = it->is_number() ? it->get<double>() : -1;
  if (!std::isfinite(gbps) || gbps < 0) malformed("'rate_gbps' is not a rate");
  return gbps;
}

json as_json(const Nic& nic) {
  return {{"name", nic.name},
          {"rdma", nic.rdma},
          {"no_rc", nic.no_rc},
          {"netdev", nic.netdev},
          {"pci", nic.pci},
          {"numa_node", nic.numa_node},
          {"rate_gbps", nic.rate_gbps},
          {"from_gpu", nic.from_gpu},
          {"address", nic.address},
          {"ipv6", nic.ipv6},
          {"up", nic.up},
          {"state", nic.state},
          {"aside", nic.aside}};
}

// Omits values that the decoder sets by default, since rank 0 sends every place to every rank.
json without_defaults(json value, const json& defaults) {
  for (const auto& [key, otherwise] : defaults.items())
    if (value[key] == otherwise) value.erase(key);
  return value;
}

std::vector<Nic> nics(const json& place, const char* key) {
  std::vector<Nic> all;
  const auto list = place.find(key);
  if (list == place.end()) return all;
  if (!list->is_array()) malformed(fmt::format("'{}' is not an array", key));
  for (const json& entry : *list) {
    object(entry, "a rail");
    Nic nic;
    nic.name = text(entry, "name");
    if (nic.name.empty()) malformed("a rail has no 'name'");
    nic.rdma = boolean(entry, "rdma");
    nic.no_rc = boolean(entry, "no_rc");
    nic.netdev = text(entry, "netdev");
    nic.pci = text(entry, "pci");
    nic.numa_node = numa_node(entry);
    nic.rate_gbps = rate(entry);
    nic.from_gpu = number(entry, "from_gpu", "a distance");
    nic.address = text(entry, "address");
    nic.ipv6 = text(entry, "ipv6");
    nic.up = boolean(entry, "up");
    nic.state = text(entry, "state");
    nic.aside = text(entry, "aside");
    all.push_back(std::move(nic));
  }
  return all;
}

}  // namespace

std::string encode(const Place& place) {
  json rails = json::array(), others = json::array();
  const json unknown = as_json(Nic{});
  for (const Nic& nic : place.rails) rails.push_back(without_defaults(as_json(nic), unknown));
  for (const Nic& nic : place.others) others.push_back(without_defaults(as_json(nic), unknown));
  const json result = {{"host", place.host},           {"leaf", place.leaf},
                       {"machine", place.machine},     {"no_rdma", place.no_rdma},
                       {"no_verbs", place.no_verbs},   {"no_ucx", place.no_ucx},
                       {"numa_node", place.numa_node}, {"gpu", place.gpu},
                       {"rails", std::move(rails)},    {"others", std::move(others)}};
  // A host identity may contain any bytes: replace invalid UTF-8, do not reject it.
  return result.dump(-1, ' ', false, json::error_handler_t::replace);
}

Place decode_place(const std::string& encoded) {
  const json value = json::parse(encoded, nullptr, /*allow_exceptions=*/false);
  if (value.is_discarded()) malformed("it is not JSON");
  object(value, "it");
  if (!value.contains("host")) malformed("'host' is missing");
  Place place;
  place.host = text(value, "host");
  place.machine = text(value, "machine");
  place.leaf = text(value, "leaf");
  place.no_rdma = text(value, "no_rdma");
  place.no_verbs = text(value, "no_verbs");
  place.no_ucx = text(value, "no_ucx");
  place.numa_node = numa_node(value);
  place.gpu = text(value, "gpu");
  place.rails = nics(value, "rails");
  place.others = nics(value, "others");
  return place;
}

}  // namespace weft
