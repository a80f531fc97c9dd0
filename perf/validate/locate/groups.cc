// Finds groups of ports behind one switch from the flows across the group's border.
#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "perf/validate/locate/attribution.h"

namespace weft::fabric {
namespace {

constexpr double kCrossing =
    0.3;  // least fraction of bad flows across the border: a few flows may not fill a switch
constexpr double kAltogether = 0.9;  // fraction of bad flows from which an end itself is bad

struct Tally {
  int bad = 0, all = 0;
  double share() const { return all > 0 ? static_cast<double>(bad) / all : 0; }
};

class GroupFinder {
 public:
  GroupFinder(const Shape& shape, std::span<const Observation> observations,
              const std::vector<Look>& looks, bool directed)
      : shape_(shape), observations_(observations), looks_(looks), directed_(directed) {}
  // Replaces `best` if a group of the rail explains more.
  void find(int rail, Group& best);
  void index();

 private:
  const Observation& observation(int s) const { return observations_[static_cast<std::size_t>(s)]; }
  bool bad(int s) const { return looks_[static_cast<std::size_t>(s)] == Look::kBad; }
  int end(int s, int side) const { return side == 0 ? observation(s).from : observation(s).to; }
  std::size_t atom(int s, int side) const {
    return static_cast<std::size_t>(directed_ ? side * shape_.ports() + end(s, side)
                                              : end(s, side));
  }
  bool one_way(int rail, int side, Group& group) const;
  bool two_sides(int rail, Group& group) const;

  const Shape& shape_;
  std::span<const Observation> observations_;
  const std::vector<Look>& looks_;
  bool directed_;
  std::vector<std::vector<int>> of_rail_;  // observations whose ends are not bad by themselves
  std::vector<int> bad_of_rail_;
};

void GroupFinder::index() {
  std::vector<Tally> ends(static_cast<std::size_t>(2 * shape_.ports()));
  const auto aside = [&](int s) { return looks_[static_cast<std::size_t>(s)] == Look::kSetAside; };
  for (int s = 0; s < static_cast<int>(observations_.size()); ++s)
    for (int side = 0; side < 2 && !aside(s); ++side) {
      ++ends[atom(s, side)].all;
      ends[atom(s, side)].bad += bad(s);
    }
  of_rail_.resize(static_cast<std::size_t>(shape_.rails));
  bad_of_rail_.resize(static_cast<std::size_t>(shape_.rails));
  const auto altogether = [&](const Tally& end) {
    return end.all >= 2 && end.share() >= kAltogether;
  };
  for (int s = 0; s < static_cast<int>(observations_.size()); ++s) {
    if (aside(s) || altogether(ends[atom(s, 0)]) || altogether(ends[atom(s, 1)])) continue;
    const auto rail = static_cast<std::size_t>(shape_.port(observation(s).from).rail);
    of_rail_[rail].push_back(s);
    bad_of_rail_[rail] += bad(s);
  }
}

// Finds ports that send badly (side 0) or receive badly (side 1), except among each other. Tries
// several fractions of bad flows, since the fraction depends on how many flows share the switch.
bool GroupFinder::one_way(int rail, int side, Group& group) const {
  const std::vector<int>& here = of_rail_[static_cast<std::size_t>(rail)];
  std::map<int, Tally> ends;
  for (const int s : here)
    for (int each = directed_ ? side : 0; each <= (directed_ ? side : 1); ++each) {
      ++ends[end(s, each)].all;
      ends[end(s, each)].bad += bad(s);
    }
  int most = 0;
  for (const double share : {0.7, 0.6, 0.5, 0.4, 0.3, 0.2}) {
    std::set<int> members, connected;  // connected: to another member, by a good flow
    for (const auto& [port, tally] : ends)
      if (tally.bad >= 2 && tally.share() >= share) members.insert(port);
    for (const int s : here)
      if (!bad(s) && members.contains(observation(s).from) && members.contains(observation(s).to))
        connected.insert({observation(s).from, observation(s).to});
    if (connected.size() < 2 || 2 * static_cast<int>(connected.size()) > shape_.hosts) continue;
    Tally inside, crossing, outside;
    Group found{{connected.begin(), connected.end()}, {}, 0};
    for (const int s : here) {
      const bool from = connected.contains(observation(s).from),
                 to = connected.contains(observation(s).to);
      const bool crosses = directed_ ? (side == 0 ? from && !to : to && !from) : from != to;
      if (from != to && !crosses) continue;  // the other direction is a group of its own
      Tally& tally = crosses ? crossing : from && to ? inside : outside;
      ++tally.all;
      tally.bad += bad(s);
      if (crosses) found.observations.push_back(s);
    }
    // Bad flows outside may have other causes, but if there are many, this is not a group.
    if (crossing.share() < kCrossing || inside.share() > 0.1 || outside.bad > crossing.bad / 2)
      continue;
    if (crossing.bad - inside.bad - outside.bad <= most) continue;
    most = found.score = crossing.bad - inside.bad - outside.bad;
    group = std::move(found);
  }
  return most > 0;
}

// If many bad pairs form a bipartite graph, its sides are two switches.
bool GroupFinder::two_sides(int rail, Group& group) const {
  const std::vector<int>& here = of_rail_[static_cast<std::size_t>(rail)];
  std::map<int, std::set<int>> opposite;
  for (const int s : here)
    if (bad(s)) {
      opposite[observation(s).from].insert(observation(s).to);
      opposite[observation(s).to].insert(observation(s).from);
    }
  std::map<int, int> colour;
  for (const auto& [first, others] : opposite) {
    if (colour.contains(first)) continue;
    std::vector<int> open{first}, sides[2];
    std::size_t pairs = 0;
    bool two = true;
    colour[first] = 0;
    while (!open.empty()) {
      const int port = open.back();
      open.pop_back();
      sides[colour[port]].push_back(port);
      for (const int other : opposite[port]) {
        ++pairs;  // each counted twice
        const auto [found, is_new] = colour.emplace(other, 1 - colour[port]);
        if (is_new) open.push_back(other);
        two &= found->second != colour[port];
      }
    }
    std::vector<int>& smaller = sides[sides[1].size() < sides[0].size()];
    const std::size_t ports = sides[0].size() + sides[1].size();
    if (!two || smaller.size() < 2 || pairs / 2 < ports) continue;
    std::ranges::sort(smaller);
    group = {smaller, {}, 0};
    Tally crossing;
    for (const int s : here) {
      const auto in = [&](int port) { return std::ranges::binary_search(smaller, port); };
      if (in(observation(s).from) == in(observation(s).to)) continue;
      ++crossing.all;
      crossing.bad += bad(s);
      group.observations.push_back(s);
    }
    group.score = crossing.bad;
    if (crossing.share() >= kCrossing) return true;
  }
  return false;
}

void GroupFinder::find(int rail, Group& best) {
  if (bad_of_rail_[static_cast<std::size_t>(rail)] < 4) return;
  Group group;
  for (int side = 0; side < (directed_ ? 2 : 1); ++side)
    if (one_way(rail, side, group) && group.score > best.score) best = group;
  if (best.score == 0 && two_sides(rail, group)) best = group;
}

}  // namespace

Group find_group(const Shape& shape, std::span<const Observation> observations,
                 const std::vector<Look>& looks, bool directed) {
  Group best;
  if (shape.hosts < 4) return best;
  GroupFinder finder(shape, observations, looks, directed);
  finder.index();
  for (int rail = 0; rail < shape.rails; ++rail) finder.find(rail, best);
  return best;
}

}  // namespace weft::fabric
