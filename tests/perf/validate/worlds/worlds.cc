// The parts of worlds. docs/worlds.md has the sources of their numbers.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <set>
#include <utility>

#include "perf/validate/worlds/world.h"
#include "topo/base/random.h"
#include "topo/base/status.h"

namespace weft::fabric {
namespace {

using Kind = Effect::Kind;
using Place = Effect::Place;

// Random numbers of a part, seeded by the world's seed and the part's name, so that adding a part
// does not change the others.
class Draw {
 public:
  Draw(SimWorld& world, std::string part, std::set<int>& used)
      : world_(world), part_(std::move(part)), used_(used) {
    std::uint64_t salt = world.seed;
    for (const char c : part_) salt = splitmix64(salt ^ static_cast<unsigned char>(c));
    random_.seed(salt);
  }
  SimWorld& world() { return world_; }
  int below(int n) { return std::uniform_int_distribution<>(0, n - 1)(random_); }
  double between(double low, double high) {
    return std::uniform_real_distribution<>(low, high)(random_);
  }
  double log_between(double low, double high) {
    return std::exp(between(std::log(low), std::log(high)));
  }
  FaultWay one_way() { return below(2) == 0 ? FaultWay::kTransmit : FaultWay::kReceive; }
  FaultWay way() { return static_cast<FaultWay>(below(3)); }
  // A port of a host that no other part uses.
  Port port() {
    int host = below(world_.hosts);
    while (!used_.insert(host).second) host = (host + 1) % world_.hosts;
    const auto ports = world_.port_gbps[static_cast<std::size_t>(host)].size();
    return {host, below(static_cast<int>(ports))};
  }
  void add(Kind kind, Place place, FaultWay way, Port port, double strength, Spells spells = {}) {
    world_.effects.push_back({part_, kind, place, way, port, {}, 0, strength, spells});
  }
  [[noreturn]] void refuse(const std::string& why) {
    throw Error(fmt::format("--world {}: {} {}", world_.name, part_, why));
  }

 private:
  SimWorld& world_;
  const std::string part_;
  std::set<int>& used_;
  std::mt19937_64 random_;
};

void heavy_noise(Draw& draw) {
  WorldNoise& noise = draw.world().noise;
  noise = {0.01, 0.03, 0.02, 0.03};
  noise.correlation_s = draw.log_between(0.1, 2);
  noise.fleet_dips_per_s = 0.3;
  noise.host_dips_per_s = 0.05;
  noise.pareto = draw.between(1.5, 2.5);
}

void clos(Draw& draw) {
  SimWorld& world = draw.world();
  if (world.hosts < 4) draw.refuse("has two leaves of two hosts at least; give --hosts 4 or more");
  world.leaf_hosts = std::max(2, (world.hosts + 3) / 4);
  world.uplinks = world.leaf_hosts;
}

void spray(Draw& draw) {
  clos(draw);
  draw.world().spray = true;
  draw.world().recovery = Recovery::kSelective;
}

void planes(Draw& draw) {
  SimWorld& world = draw.world();
  for (auto& ports : world.port_gbps) {
    if (ports.size() > 1) ports.back() /= 2;
    const int unlike = draw.below(8);
    if (unlike < 2 && ports.size() > 1) ports.pop_back();
    if (unlike == 2 || unlike == 3)
      for (double& gbps : ports) gbps /= 2;
  }
}

void bonded(Draw& draw) { draw.world().members = 2; }

void bursts(Draw& draw) {
  draw.add(Kind::kLoss, Place::kPort, draw.one_way(), draw.port(), draw.log_between(0.02, 0.3),
           {0.2, 1, 0.01, 0.05});
}

void pauses(Draw& draw) {
  spray(draw);
  draw.add(Kind::kPauses, Place::kPort, FaultWay::kReceive, draw.port(), draw.between(0.3, 0.7));
}

void spells(Draw& draw) {
  const double share = draw.between(0.1, 0.8);
  draw.add(Kind::kRate, Place::kPort, draw.way(), draw.port(), share, {1, 10, 0.3, 3});
}

void cuts(Draw& draw) {
  draw.add(Kind::kCut, Place::kPort, FaultWay::kBoth, draw.port(), 0, {0.5, 3, 0.02, 0.05});
}

void numa(Draw& draw) {
  draw.add(Kind::kRate, Place::kNode, FaultWay::kBoth, draw.port(), draw.between(0.3, 0.7),
           {1, 4, 0.5, 2});
}

void capped(Draw& draw) {
  constexpr std::array kRates = {100.0, 200.0, 400.0, 800.0};
  const double rate = kRates[static_cast<std::size_t>(draw.below(4))];
  for (auto& ports : draw.world().port_gbps) ports.assign(ports.size(), rate);
  draw.world().flow_gbps = draw.between(30, 60);
  draw.world().noise.flow = 0.05;  // differs by core and cache
}

void slow_port(Draw& draw) {
  draw.add(Kind::kRate, Place::kPort, draw.way(), draw.port(), draw.between(0.1, 0.85));
}

void lossy_port(Draw& draw) {
  draw.add(Kind::kLoss, Place::kPort, draw.way(), draw.port(), draw.log_between(1e-4, 1e-2));
}

void slow_path(Draw& draw) {
  Port from = draw.port(), to = draw.port();
  if (!draw.world().has({to.host, from.rail})) from.rail = to.rail;
  to.rail = from.rail;
  if (!draw.world().has(from)) from.rail = to.rail = 0;
  draw.add(Kind::kRate, Place::kPath, FaultWay::kTransmit, from, draw.between(0.2, 0.7));
  draw.world().effects.back().peer = to;
}

void slow_rail(Draw& draw) {
  if (draw.world().rails < 2) draw.refuse("needs a rail to compare with; give --rails 2 or more");
  draw.add(Kind::kRate, Place::kRail, FaultWay::kBoth, draw.port(), draw.between(0.3, 0.8));
}

// An effect on one of several links over which flows are spread.
void one_of(Draw& draw, Kind kind, Place place, int count) {
  if (count < 2)
    draw.refuse(place == Place::kUplink ? "needs uplinks; add clos or spray" : "needs bonded");
  const double loss = draw.between(0.03, 0.09);
  draw.add(kind, place, draw.one_way(), draw.port(), kind == Kind::kLoss ? loss : 0.1);
  draw.world().effects.back().member = draw.below(count);
}
void slow_uplink(Draw& draw) { one_of(draw, Kind::kRate, Place::kUplink, draw.world().uplinks); }
void lossy_uplink(Draw& draw) { one_of(draw, Kind::kLoss, Place::kUplink, draw.world().uplinks); }
void slow_member(Draw& draw) { one_of(draw, Kind::kRate, Place::kMember, draw.world().members); }
void lossy_member(Draw& draw) { one_of(draw, Kind::kLoss, Place::kMember, draw.world().members); }

// In the order of application: first the structure, then the faults.
struct Applied {
  WorldPart part;
  void (*apply)(Draw&);
};
constexpr Applied kParts[] = {
    {{"noise", "heavy-tailed noise that all flows of a time or of a host share", false},
     heavy_noise},
    {{"planes", "the last rail has half the rate, some hosts lack it, some have slower ports",
      false},
     planes},
    {{"capped", "ports of 100 to 800 Gb/s, and no connection beyond 30 to 60 Gb/s", false}, capped},
    {{"bonded", "each port is two bonded links of half its rate; a flow takes one", false}, bonded},
    {{"clos", "leaves and spines; a hash of the flow chooses the uplink, and flows meet", false},
     clos},
    {{"spray", "leaves and spines; packets take all uplinks and arrive out of order", false},
     spray},
    {{"bursts", "a port loses 2 to 30 % of packets for 10 to 50 ms, one way", true}, bursts},
    {{"pauses", "PFC: a slow receiver slows its senders and the hosts on their leaf", true},
     pauses},
    {{"spells", "a port has 0.1 to 0.8 of its rate for 0.3 to 3 s, every 1 to 10 s", true}, spells},
    {{"cuts", "a port is cut for 20 to 50 ms, every 0.5 to 3 s", true}, cuts},
    {{"numa", "a host's busy NUMA node takes from its ports for 0.5 to 2 s", true}, numa},
    {{"slow-port", "a port has 0.1 to 0.85 of its rate", true}, slow_port},
    {{"lossy-port", "a port loses 0.01 to 1 % of packets", true}, lossy_port},
    {{"slow-path", "one host reaches another with 0.2 to 0.7 of the rate", true}, slow_path},
    {{"slow-rail", "the switch of a rail has 0.3 to 0.8 of the rate for each port", true},
     slow_rail},
    {{"slow-uplink", "one uplink of a leaf has a tenth of its rate, one way", true}, slow_uplink},
    {{"lossy-uplink", "one uplink of a leaf loses 3 to 9 % of packets, one way", true},
     lossy_uplink},
    {{"slow-member", "one link of a bonded port has a tenth of its rate, one way", true},
     slow_member},
    {{"lossy-member", "one link of a bonded port loses 3 to 9 % of packets, one way", true},
     lossy_member},
};

std::set<std::string> parts_of(const std::string& name) {
  std::set<std::string> parts;
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find('+', begin), name.size());
    const std::string part = name.substr(begin, end - begin);
    if (std::ranges::none_of(kParts, [&](const Applied& one) { return part == one.part.name; })) {
      std::string all;
      for (const Applied& one : kParts) all += fmt::format(" {}", one.part.name);
      throw Error(fmt::format("--world {}: no part is called \"{}\"; join with + some of:{}", name,
                              part, all));
    }
    parts.insert(part);
    begin = end + 1;
  }
  return parts;
}

}  // namespace

const std::vector<WorldPart>& world_parts() {
  static const std::vector<WorldPart> parts = [] {
    std::vector<WorldPart> all;
    for (const Applied& one : kParts) all.push_back(one.part);
    return all;
  }();
  return parts;
}

SimWorld make_world(const std::string& name, int hosts, int rails, double rate_gbps,
                    std::uint64_t seed) {
  const std::set<std::string> parts = parts_of(name);
  SimWorld world;
  world.name = name;
  world.seed = seed;
  world.hosts = hosts;
  world.rails = rails;
  // A part breaks a host of its own, and a path breaks two.
  const int least = 2 * static_cast<int>(parts.size()) + 1;
  if (hosts < least || rails < 1)
    throw Error(fmt::format("--world {}: {} hosts with {} rails; give --hosts {} or more", name,
                            hosts, rails, least));
  world.port_gbps.assign(static_cast<std::size_t>(hosts),
                         std::vector<double>(static_cast<std::size_t>(rails), rate_gbps));
  world.recovery = static_cast<Recovery>(splitmix64(seed) % 3);
  world.noise.correlation_s = 0.1 + 1.9 * static_cast<double>(splitmix64(seed ^ 7) % 1000) / 1000;
  std::set<int> used;
  for (const Applied& one : kParts) {
    if (!parts.contains(one.part.name)) continue;
    Draw draw(world, one.part.name, used);
    one.apply(draw);
  }
  return world;
}

std::string line_of(const Effect& effect) {
  constexpr std::array kKinds = {"rate", "loss", "cut", "pauses, rate"};
  constexpr std::array kPlaces = {"port", "member", "NUMA node", "path", "rail", "uplink"};
  constexpr std::array kWays = {"", " transmit", " receive"};
  std::string line =
      fmt::format("{}: {}", effect.part, kKinds[static_cast<std::size_t>(effect.kind)]);
  if (effect.kind != Kind::kCut) line += fmt::format(" {:.3g}", effect.strength);
  line += fmt::format(" at {}", kPlaces[static_cast<std::size_t>(effect.place)]);
  if (effect.place == Place::kMember || effect.place == Place::kUplink)
    line += fmt::format(" {} of", effect.member);
  if (effect.place != Place::kRail) line += fmt::format(" h{} rail", effect.port.host);
  line += fmt::format(" {}", effect.port.rail);
  if (effect.place == Place::kPath) return line + fmt::format(" to h{}", effect.peer.host);
  return line + kWays[static_cast<std::size_t>(effect.way)];
}

}  // namespace weft::fabric
