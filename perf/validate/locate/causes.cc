// Merges places and compares the places of causes.
#include "perf/validate/locate/causes.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "perf/validate/locate/observations.h"
#include "perf/validate/locate/power.h"
#include "perf/validate/probes/goodput.h"

namespace weft::fabric {
namespace {

constexpr std::size_t kGroupPorts = 3;  // similar ports of a rail that make their leaf the cause

// Combines several places into one.
Place united(CausePlace place, const std::vector<Place>& parts) {
  Place whole = parts.front();
  whole.place = place;
  double weight = 0, level = 0;
  whole.flows = 0;
  for (const Place& part : parts) {
    level += part.level * part.flows;
    weight += part.flows;
    whole.flows += part.flows;
    whole.low = std::min(whole.low, part.low);
    whole.high = std::max(whole.high, part.high);
    whole.confidence = std::min(whole.confidence, part.confidence);
  }
  if (weight > 0) whole.level = level / weight;
  return whole;
}

class Merger {
 public:
  Merger(const std::vector<FleetHost>& hosts, std::vector<Place> places, Alike alike)
      : hosts_(hosts), places_(std::move(places)), alike_(alike) {}

  std::vector<Place> run() {
    both_directions();
    hosts();
    groups();
    pairs();
    return std::move(places_);
  }

 private:
  std::vector<Place> take(const std::function<bool(const Place&)>& wanted) {
    std::vector<Place> taken;
    std::erase_if(places_, [&](const Place& place) {
      if (!wanted(place)) return false;
      taken.push_back(place);
      return true;
    });
    return taken;
  }
  const Place* find(CausePlace place, Port port, Port peer = {}) const {
    for (const Place& p : places_)
      if (p.place == place && p.port == port && (place != CausePlace::kPath || p.peer == peer))
        return &p;
    return nullptr;
  }

  void both_directions() {
    for (const Place& sends : std::vector<Place>(places_)) {
      if (sends.place != CausePlace::kTransmit) continue;
      const Place* receives = find(CausePlace::kReceive, sends.port);
      if (!receives || !alike_(sends.level, receives->level)) continue;
      const Place port = united(CausePlace::kPort, {sends, *receives});
      take([&](const Place& p) {
        return p.port == sends.port &&
               (p.place == CausePlace::kTransmit || p.place == CausePlace::kReceive);
      });
      places_.push_back(port);
    }
  }

  void hosts() {
    constexpr std::pair<CausePlace, CausePlace> kWholes[] = {
        {CausePlace::kPort, CausePlace::kHost},
        {CausePlace::kTransmit, CausePlace::kHostTransmit},
        {CausePlace::kReceive, CausePlace::kHostReceive}};
    for (const auto& [part, whole] : kWholes)
      for (int host = 0; host < static_cast<int>(hosts_.size()); ++host) {
        const std::size_t ports = hosts_[static_cast<std::size_t>(host)].ports.size();
        std::vector<Place> parts;
        for (const Place& p : places_)
          if (p.place == part && p.port.host == host) parts.push_back(p);
        if (ports < 2 || parts.size() < ports || !all_alike(parts)) continue;
        take([&, part = part](const Place& p) { return p.place == part && p.port.host == host; });
        places_.push_back(united(whole, parts));
      }
  }

  bool all_alike(const std::vector<Place>& parts) const {
    return std::ranges::all_of(
        parts, [&](const Place& p) { return alike_(p.level, parts.front().level); });
  }

  // Merges groups found in both directions, and similar ports of a rail.
  void groups() {
    for (const CausePlace part : {CausePlace::kPort, CausePlace::kTransmit, CausePlace::kReceive}) {
      std::map<int, std::vector<Place>> rails;
      for (const Place& p : places_)
        if (p.place == part) rails[p.port.rail].push_back(p);
      for (auto& [rail, parts] : rails) {
        if (parts.size() < kGroupPorts || !all_alike(parts)) continue;
        Place group = united(CausePlace::kGroup, parts);
        for (const Place& p : parts) group.ports.push_back(p.port);
        std::ranges::sort(group.ports);
        group.port = group.ports.front();
        take([&, rail = rail](const Place& p) { return p.place == part && p.port.rail == rail; });
        places_.push_back(group);
      }
    }
    std::vector<Place> groups = take([](const Place& p) { return p.place == CausePlace::kGroup; });
    std::map<std::vector<Port>, std::vector<Place>> same;
    for (const Place& group : groups) same[group.ports].push_back(group);
    for (const auto& [ports, parts] : same) places_.push_back(united(CausePlace::kGroup, parts));
  }

  void pairs() {
    for (const Place& there : std::vector<Place>(places_)) {
      if (there.place != CausePlace::kPath || there.peer < there.port) continue;
      const Place* back = find(CausePlace::kPath, there.peer, there.port);
      if (!back || !alike_(there.level, back->level)) continue;
      const Place pair = united(CausePlace::kPair, {there, *back});
      take([&](const Place& p) {
        return p.place == CausePlace::kPath && ((p.port == there.port && p.peer == there.peer) ||
                                                (p.port == there.peer && p.peer == there.port));
      });
      places_.push_back(pair);
    }
  }

  const std::vector<FleetHost>& hosts_;
  std::vector<Place> places_;
  Alike alike_;
};

constexpr std::size_t kEndPaths = 3;  // lossy paths that make their end the cause

bool contains(const std::vector<Port>& ports, Port port) {
  return std::ranges::find(ports, port) != ports.end();
}

}  // namespace

std::vector<Place> merge(const std::vector<FleetHost>& hosts, std::vector<Place> places,
                         Alike alike) {
  return Merger(hosts, std::move(places), alike).run();
}

void unite_paths(std::vector<Place>& places) {
  for (const CausePlace end : {CausePlace::kTransmit, CausePlace::kReceive}) {
    std::map<Port, std::vector<Place>> ends;
    const auto port_of = [&](const Place& p) {
      return end == CausePlace::kTransmit ? p.port : p.peer;
    };
    for (const Place& p : places)
      if (p.place == CausePlace::kPath) ends[port_of(p)].push_back(p);
    for (const auto& entry : ends) {
      if (entry.second.size() < kEndPaths) continue;
      const Port port = entry.first;
      std::vector<Place> parts = entry.second;
      for (const Place& p : places)  // the end itself, from flows that no path covers
        if (p.place == end && p.port == port) parts.push_back(p);
      Place whole = united(end, parts);
      whole.port = port;
      std::erase_if(places, [&](const Place& p) {
        return (p.place == CausePlace::kPath && port_of(p) == port) ||
               (p.place == end && p.port == port);
      });
      places.push_back(whole);
    }
  }
}

bool passes(const Cause& cause, Port from, Port to) {
  switch (cause.place) {
    case CausePlace::kTransmit:
      return from == cause.port;
    case CausePlace::kReceive:
      return to == cause.port;
    case CausePlace::kPort:
      return from == cause.port || to == cause.port;
    case CausePlace::kHostTransmit:
      return from.host == cause.port.host;
    case CausePlace::kHostReceive:
      return to.host == cause.port.host;
    case CausePlace::kHost:
      return from.host == cause.port.host || to.host == cause.port.host;
    case CausePlace::kPath:
      return from == cause.port && to == cause.peer;
    case CausePlace::kPair:
      return (from == cause.port && to == cause.peer) || (from == cause.peer && to == cause.port);
    case CausePlace::kRail:
      return from.rail == cause.port.rail || to.rail == cause.port.rail;
    case CausePlace::kGroup:
      return contains(cause.ports, from) || contains(cause.ports, to);
    case CausePlace::kFleet:
      return true;
  }
  return false;
}

namespace {

// Returns whether every flow of `inner` crosses `outer`, and both are of similar size: for example,
// a port and a direction of that port, but not a rail and a port.
bool same_place(const Cause& outer, const Cause& inner) {
  const auto size = [](CausePlace place) {
    switch (place) {
      case CausePlace::kHostTransmit:
      case CausePlace::kHostReceive:
      case CausePlace::kHost:
        return 2;
      case CausePlace::kGroup:
        return 3;
      case CausePlace::kRail:
        return 4;
      case CausePlace::kFleet:
        return 5;
      default:
        return 1;
    }
  };
  // The effect of a cause can look smaller than the cause, by one step.
  if (size(inner.place) > size(outer.place) || size(inner.place) + 1 < size(outer.place))
    return false;
  switch (inner.place) {
    case CausePlace::kTransmit:
    case CausePlace::kHostTransmit:
    case CausePlace::kPort:
    case CausePlace::kHost: {
      if (outer.place == CausePlace::kGroup) return contains(outer.ports, inner.port);
      const Port other{-1, inner.port.rail};
      const bool receives = inner.place == CausePlace::kPort || inner.place == CausePlace::kHost;
      return passes(outer, inner.port, other) && (!receives || passes(outer, other, inner.port));
    }
    case CausePlace::kReceive:
    case CausePlace::kHostReceive:
      return passes(outer, {-1, inner.port.rail}, inner.port);
    case CausePlace::kPath:
    case CausePlace::kPair:
      return passes(outer, inner.port, inner.peer);
    case CausePlace::kGroup:
      return outer.place == CausePlace::kGroup ? contains(outer.ports, inner.ports.front())
                                               : passes(outer, inner.port, inner.port);
    case CausePlace::kRail:
      return passes(outer, inner.port, inner.port);
    case CausePlace::kFleet:
      return true;
  }
  return false;
}

// Returns whether the rate is about the transport's rate with this loss: go-back-N, or within a
// factor of two of Mathis' formula for TCP.
bool explains_rate(const std::vector<FleetHost>& hosts, const Samples& samples, const Cause& loss,
                   const Cause& rate) {
  double rtt_us = 20;
  for (const FlowSample& sample : samples.flows)
    if (sample.min_rtt_us && passes(rate, sample.flow.from, sample.flow.to)) {
      rtt_us = *sample.min_rtt_us;
      break;
    }
  const int mtu = hosts[static_cast<std::size_t>(rate.port.host)]
                      .ports[static_cast<std::size_t>(rate.port.rail)]
                      .mtu;
  const double bytes = mtu > 0 ? mtu : 1500;
  const double window = rate.expected * rtt_us * 1e3 / 8 / bytes;
  const double predicted = std::min({1.0, go_back_n_goodput(loss.value, window),
                                     mathis_gbps(loss.value, bytes, rtt_us) / rate.expected});
  return rate.value / rate.expected >= predicted * (predicted > 0.9 ? 0.9 : 0.5);
}

// Calls visit(sample, slow) for the kRate flows whose rate counts.
template <typename Visit>
void each_rate(const std::vector<FleetHost>& hosts, const Samples& samples,
               const Thresholds& thresholds, const Ignored& ignored, const Visit& visit) {
  const double slow = -std::log(thresholds.warn_rate);
  for (const Observation& s : rate_observations(hosts, samples, thresholds, ignored).observations)
    visit(samples.flows[static_cast<std::size_t>(s.flow)], s.value >= slow);
}

}  // namespace

void drop_consequences(const std::vector<FleetHost>& hosts, const Samples& samples,
                       std::vector<Cause>& causes) {
  const std::vector<Cause> all = causes;
  std::erase_if(causes, [&](const Cause& cause) {
    return std::ranges::any_of(all, [&](const Cause& other) {
      if (other.kind == cause.kind || !same_place(other, cause)) return false;
      if (cause.kind == CauseKind::kRate) {
        if (other.kind == CauseKind::kLoss && !other.loaded_only)
          return explains_rate(hosts, samples, other, cause);
        return other.kind == CauseKind::kLatency || other.kind == CauseKind::kMtu ||
               other.kind == CauseKind::kUnstable;
      }
      // A port that is too slow, or intermittently down, drops the excess packets.
      if (cause.kind == CauseKind::kLoss)
        return (cause.loaded_only && other.kind == CauseKind::kRate) ||
               other.kind == CauseKind::kUnstable;
      return false;
    });
  });
}

std::vector<Spread> find_spreads(const std::vector<FleetHost>& hosts, const Samples& samples,
                                 const std::vector<Cause>& causes, const Thresholds& thresholds) {
  std::vector<Spread> spreads;
  for (const Cause& cause : causes)
    if (cause.kind == CauseKind::kRate &&
        (cause.place == CausePlace::kReceive || cause.place == CausePlace::kPort))
      spreads.push_back({cause.port, std::vector<bool>(samples.rounds.size(), false)});
  if (spreads.empty()) return spreads;
  for (Spread& spread : spreads)
    for (const FlowSample& sample : samples.flows)
      if (sample.flow.to == spread.receiver && !sample.flow.victim)
        spread.rounds[static_cast<std::size_t>(sample.round)] = true;
  struct Count {
    double slow = 0, all = 0;
  };
  std::vector<std::pair<Count, Count>> counts(spreads.size());  // with and without the receiver
  const auto at_a_receiver = [&](Port from, Port to) {
    return std::ranges::any_of(
        spreads, [&](const Spread& s) { return s.receiver == from || s.receiver == to; });
  };
  each_rate(hosts, samples, thresholds, at_a_receiver, [&](const FlowSample& sample, bool slow) {
    for (std::size_t s = 0; s < spreads.size(); ++s) {
      if (sample.flow.from.rail != spreads[s].receiver.rail) continue;
      Count& count = spreads[s].may_slow(sample) ? counts[s].first : counts[s].second;
      count.slow += slow;
      ++count.all;
    }
  });
  std::size_t next = 0;
  std::erase_if(spreads, [&](const Spread&) {
    const auto& [with, without] = counts[next++];
    const double mean = with.all * (without.slow + 1) / std::max(1.0, without.all);
    return with.slow <= mean || std::exp(-poisson_gain(with.slow, mean)) > kFalseAlarm;
  });
  return spreads;
}

Samples without_victims(const std::vector<FleetHost>& hosts, const Samples& samples,
                        const std::vector<Spread>& spreads, const Thresholds& thresholds) {
  std::vector<bool> victims(samples.flows.size(), false);
  each_rate(hosts, samples, thresholds, none_ignored, [&](const FlowSample& sample, bool slow) {
    victims[static_cast<std::size_t>(&sample - samples.flows.data())] =
        slow && std::ranges::any_of(spreads, [&](const Spread& spread) {
          return spread.receiver.rail == sample.flow.from.rail && spread.may_slow(sample);
        });
  });
  Samples rest = samples;
  rest.flows.clear();
  for (std::size_t f = 0; f < victims.size(); ++f)
    if (!victims[f]) rest.flows.push_back(samples.flows[f]);
  return rest;
}

}  // namespace weft::fabric
