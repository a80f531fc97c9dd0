// Groups of ports behind one switch, found by the flows that cross their border.
#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "perf/validate/locate/peel.h"

namespace weft::fabric {
namespace {

constexpr double kAltogether = 0.9;  // share of bad flows from which an end is bad by itself

struct Tally {
  int bad = 0, all = 0;
  double share() const { return all > 0 ? static_cast<double>(bad) / all : 0; }
};

class GroupFinder {
 public:
  GroupFinder(const Shape& shape, std::span<const Sight> sights, const std::vector<char>& bad,
              bool directed)
      : shape_(shape), sights_(sights), bad_(bad), directed_(directed) {}
  std::vector<Group> find(int rail);
  void index();

 private:
  const Sight& sight(int s) const { return sights_[static_cast<std::size_t>(s)]; }
  bool bad(int s) const { return bad_[static_cast<std::size_t>(s)] != 0; }
  int end(int s, int side) const { return side == 0 ? sight(s).from : sight(s).to; }
  std::size_t atom(int s, int side) const {
    return static_cast<std::size_t>(directed_ ? side * shape_.ports() + end(s, side)
                                              : end(s, side));
  }
  bool one_way(int rail, int side, Group& group) const;
  bool islands(int rail, Group& group) const;

  const Shape& shape_;
  std::span<const Sight> sights_;
  const std::vector<char>& bad_;
  bool directed_;
  std::vector<std::vector<int>> of_rail_;  // sights whose ends are not bad altogether
  std::vector<int> bad_of_rail_;
};

void GroupFinder::index() {
  std::vector<Tally> ends(static_cast<std::size_t>(2 * shape_.ports()));
  for (int s = 0; s < static_cast<int>(sights_.size()); ++s)
    for (int side = 0; side < 2; ++side) {
      ++ends[atom(s, side)].all;
      ends[atom(s, side)].bad += bad(s);
    }
  of_rail_.resize(static_cast<std::size_t>(shape_.rails));
  bad_of_rail_.resize(static_cast<std::size_t>(shape_.rails));
  const auto altogether = [&](const Tally& end) {
    return end.all >= 2 && end.share() >= kAltogether;
  };
  for (int s = 0; s < static_cast<int>(sights_.size()); ++s) {
    if (altogether(ends[atom(s, 0)]) || altogether(ends[atom(s, 1)])) continue;
    const auto rail = static_cast<std::size_t>(shape_.port(sight(s).from).rail);
    of_rail_[rail].push_back(s);
    bad_of_rail_[rail] += bad(s);
  }
}

// Members send badly (side 0) or receive badly (side 1), but not among themselves.
bool GroupFinder::one_way(int rail, int side, Group& group) const {
  const std::vector<int>& here = of_rail_[static_cast<std::size_t>(rail)];
  std::map<int, Tally> ends;
  for (const int s : here)
    for (int each = directed_ ? side : 0; each <= (directed_ ? side : 1); ++each) {
      ++ends[end(s, each)].all;
      ends[end(s, each)].bad += bad(s);
    }
  std::set<int> members;
  for (const auto& [port, tally] : ends)
    if (tally.bad >= 2 && tally.share() >= 0.25) members.insert(port);
  std::set<int> connected;  // to another member, by a good flow
  for (const int s : here)
    if (!bad(s) && members.contains(sight(s).from) && members.contains(sight(s).to))
      connected.insert({sight(s).from, sight(s).to});
  if (connected.size() < 2 || 2 * static_cast<int>(connected.size()) > shape_.hosts) return false;
  Tally inside, crossing, outside;
  group = {};
  for (const int s : here) {
    const bool from = connected.contains(sight(s).from), to = connected.contains(sight(s).to);
    const bool crosses = directed_ ? (side == 0 ? from && !to : to && !from) : from != to;
    Tally& tally = crosses ? crossing : from && to ? inside : outside;
    ++tally.all;
    tally.bad += bad(s);
    if (crosses) group.sights.push_back(s);
  }
  group.ports.assign(connected.begin(), connected.end());
  // Bad flows outside may belong to other faults; more than there are inside, and this is no group.
  return crossing.share() >= 0.5 && inside.share() <= 0.1 && outside.bad <= crossing.bad / 2;
}

// Good flows join ports to islands; flows between the islands are bad, both ways.
bool GroupFinder::islands(int rail, Group& group) const {
  const std::vector<int>& here = of_rail_[static_cast<std::size_t>(rail)];
  std::map<int, int> island;
  std::set<std::pair<int, int>> bad_pairs;
  for (const int s : here) {
    island.emplace(sight(s).from, sight(s).from);
    island.emplace(sight(s).to, sight(s).to);
    if (bad(s)) bad_pairs.insert(std::minmax(sight(s).from, sight(s).to));
  }
  const auto root = [&](int port) {
    while (island.at(port) != port) port = island.at(port);
    return port;
  };
  for (const int s : here)
    if (!bad(s) && !bad_pairs.contains(std::minmax(sight(s).from, sight(s).to)))
      island[root(sight(s).from)] = root(sight(s).to);
  std::map<int, std::vector<int>> members;
  for (const auto& [port, parent] : island) members[root(port)].push_back(port);
  std::vector<int> smallest;
  int large = 0;
  for (const auto& [first, ports] : members) {
    if (ports.size() < 2) continue;
    ++large;
    if (smallest.empty() || ports.size() < smallest.size()) smallest = ports;
  }
  if (large < 2 || large > 3) return false;
  Tally crossing;
  group = {smallest, {}};
  for (const int s : here) {
    const auto in = [&](int port) { return std::ranges::binary_search(smallest, port); };
    if (in(sight(s).from) == in(sight(s).to)) continue;
    ++crossing.all;
    crossing.bad += bad(s);
    group.sights.push_back(s);
  }
  return crossing.bad >= 4 && crossing.share() >= 0.5;
}

std::vector<Group> GroupFinder::find(int rail) {
  std::vector<Group> groups;
  if (bad_of_rail_[static_cast<std::size_t>(rail)] < 4) return groups;
  Group group;
  for (int side = 0; side < (directed_ ? 2 : 1); ++side)
    if (one_way(rail, side, group)) groups.push_back(group);
  if (groups.empty() && islands(rail, group)) groups.push_back(group);
  return groups;
}

}  // namespace

std::vector<Group> find_groups(const Shape& shape, std::span<const Sight> sights,
                               const std::vector<char>& bad, bool directed) {
  std::vector<Group> groups;
  if (shape.hosts < 4) return groups;
  GroupFinder finder(shape, sights, bad, directed);
  finder.index();
  for (int rail = 0; rail < shape.rails; ++rail)
    for (Group& group : finder.find(rail)) groups.push_back(std::move(group));
  return groups;
}

}  // namespace weft::fabric
