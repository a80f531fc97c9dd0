// The devices of this host that the tests of the verbs transport use.
//
// WEFT_VERBS_TEST_DEVICES=rxe_h0r0,rxe_h1r0 gives rank r the device r modulo their number, so that
// messages cross the wire; otherwise all ranks use the first device, and its loopback.
#pragma once

#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "topo/topology.h"
#include "transport/verbs/device.h"

namespace weft::testing {

inline std::vector<std::string> test_devices() {
  std::vector<std::string> names;
  if (const char* list = std::getenv("WEFT_VERBS_TEST_DEVICES")) {
    std::istringstream stream(list);
    for (std::string name; std::getline(stream, name, ',');) names.push_back(name);
    return names;
  }
  for (const std::string& name : verbs_devices()) {
    try {
      VerbsDevice device(name);
      return {name};
    } catch (const Error&) {  // its port is down
    }
  }
  return {};
}

inline Nic test_rail(Rank rank) {
  const std::vector<std::string> names = test_devices();
  Nic nic;
  nic.name = names.at(static_cast<std::size_t>(rank) % names.size());
  nic.rdma = nic.up = true;
  return nic;
}

// Each rank on its own host.
inline Topology verbs_hosts(int n) {
  std::vector<Place> places(static_cast<std::size_t>(n));
  for (Rank r = 0; r < n; ++r) {
    places[static_cast<std::size_t>(r)].host = "host" + std::to_string(r);
    places[static_cast<std::size_t>(r)].rails = {test_rail(r)};
  }
  return Topology(places);
}

}  // namespace weft::testing
