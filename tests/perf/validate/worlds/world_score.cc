// Compares the places of findings with those of effects.
#include "perf/validate/worlds/world_score.h"

#include <fmt/format.h>

#include <algorithm>

namespace weft::fabric {
namespace {

bool blames(const Finding& finding) {
  return finding.severity >= Severity::kWarn && !finding.unknown && finding.explained_by.empty() &&
         (finding.where.kind != PlaceKind::kTester || !finding.where.host.empty());
}

bool below_the_leaf(const SimWorld& world, const Effect& effect, const std::string& host,
                    int rail) {
  for (int h = 0; h < world.hosts; ++h)
    if (host == fmt::format("h{}", h) &&
        world.leaf({h, effect.port.rail}) == world.leaf(effect.port))
      return rail < 0 || rail == effect.port.rail;
  return false;
}

// Whether the place of a finding shares a host, leaf or rail with the effect.
bool shares(const SimWorld& world, const Effect& effect, const Where& where) {
  if (where.kind == PlaceKind::kFleet) return false;
  const bool rail = where.rail < 0 || where.rail == effect.port.rail;
  if (where.kind == PlaceKind::kRail || where.kind == PlaceKind::kSwitch) return rail;
  if (effect.place == Effect::Place::kRail) return rail;
  const auto is = [&](const std::string& host) {
    if (effect.place == Effect::Place::kUplink)
      return below_the_leaf(world, effect, host, where.rail);
    return host == fmt::format("h{}", effect.port.host) ||
           (effect.place == Effect::Place::kPath && host == fmt::format("h{}", effect.peer.host));
  };
  return is(where.host) || (where.kind == PlaceKind::kPath && is(where.peer));
}

// Whether the place includes a port that the effect applies to.
bool touches(const SimWorld& world, const Effect& effect, const Where& where) {
  const bool node = effect.place == Effect::Place::kNode;
  return shares(world, effect, where) &&
         (where.rail < 0 ||
          (node ? where.rail % 2 == effect.port.rail % 2 : where.rail == effect.port.rail));
}

bool is_at(const SimWorld& world, const Effect& effect, const Finding& finding) {
  const Where& where = finding.where;
  const std::string host = fmt::format("h{}", effect.port.host);
  const Direction direction = effect.way == FaultWay::kBoth       ? Direction::kBoth
                              : effect.way == FaultWay::kTransmit ? Direction::kTransmit
                                                                  : Direction::kReceive;
  switch (effect.place) {
    case Effect::Place::kRail:
      return where.kind == PlaceKind::kRail && where.rail == effect.port.rail;
    case Effect::Place::kUplink:
      // The evidence has the switch's ports, and symptoms elsewhere that it explains.
      return where.kind == PlaceKind::kSwitch && where.rail == effect.port.rail &&
             std::ranges::all_of(finding.evidence, [&](const Evidence& evidence) {
               return evidence.name != "port" ||
                      below_the_leaf(world, effect, evidence.host, evidence.rail);
             });
    case Effect::Place::kPath:
      return where.kind == PlaceKind::kPath && where.rail == effect.port.rail &&
             where.host == host && where.peer == fmt::format("h{}", effect.peer.host);
    case Effect::Place::kNode:
      return where.host == host &&
             (where.kind == PlaceKind::kHost || where.kind == PlaceKind::kTester ||
              (where.kind == PlaceKind::kPort && where.rail % 2 == effect.port.rail % 2));
    case Effect::Place::kPort:
    case Effect::Place::kMember:
      return where.kind == PlaceKind::kPort && where.host == host &&
             where.rail == effect.port.rail && where.direction == direction;
  }
  return false;
}

}  // namespace

WorldScore score(const SimWorld& world, const Report& report) {
  WorldScore result;
  result.faults.resize(world.effects.size());
  for (const Finding& finding : report.judgement.findings) {
    if (!blames(finding)) continue;
    bool innocent = true, right = false;
    for (std::size_t e = 0; e < world.effects.size(); ++e) {
      innocent &= !shares(world, world.effects[e], finding.where);
      if (!touches(world, world.effects[e], finding.where)) continue;
      result.faults[e].found = true;
      const bool placed = is_at(world, world.effects[e], finding);
      result.faults[e].placed |= placed;
      right |= placed;
    }
    if (finding.explained_by.empty()) result.claims.push_back({certainty_of(finding.score), right});
    result.innocents += innocent;
  }
  result.unknown = report.verdict == Verdict::kUnknown || report.verdict == Verdict::kTester;
  result.false_alarm = world.effects.empty() && report.verdict != Verdict::kOk;
  return result;
}

}  // namespace weft::fabric
