// Arranges the ranks of a job into hosts and rails: equal places give every rank the same result.
// Reads nothing of this host.
#include "topo/topology.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>
#include <tuple>
#include <unordered_map>

namespace weft {

namespace {

std::string names(const std::vector<Nic>& rails) {
  std::vector<std::string> result;
  for (const Nic& nic : rails) result.push_back(nic.name);
  return fmt::format("{}", fmt::join(result, ","));
}

// Moves the rails into the order of `reference`, both given as keys; what it lacks stays behind.
template <typename Key>
void reorder(std::vector<Nic>& rails, const std::vector<std::string>& reference, Key key) {
  std::unordered_map<std::string, std::size_t> position;
  for (std::size_t i = 0; i < reference.size(); ++i) position.emplace(reference[i], i);
  const auto rank_of = [&](const Nic& nic) {
    const auto it = position.find(key(nic));
    return it == position.end() ? reference.size() : it->second;
  };
  std::stable_sort(rails.begin(), rails.end(),
                   [&](const Nic& a, const Nic& b) { return rank_of(a) < rank_of(b); });
}

// The ranks of one host must mean the same device by rail r.
void align_inside_host(std::vector<Place>& places, const std::vector<Rank>& ranks) {
  const auto name = [](const Nic& nic) { return nic.name; };
  const std::vector<Nic>& first = places[ranks[0]].rails;
  std::vector<std::string> reference;
  for (const Nic& nic : first) reference.push_back(nic.name);
  const std::multiset<std::string> wanted(reference.begin(), reference.end());
  for (const Rank rank : ranks) {
    std::vector<Nic>& rails = places[rank].rails;
    std::multiset<std::string> here;
    for (const Nic& nic : rails) here.insert(nic.name);
    if (here != wanted) {
      throw Error(
          fmt::format("ranks {} and {} of host '{}' list different rails ('{}' and '{}'); set "
                      "WEFT_RAILS to all rails of the host for each of its ranks",
                      ranks[0], rank, places[rank].host, names(first), names(rails)));
    }
    if (rank != ranks[0]) reorder(rails, reference, name);
  }
}

// What is called alike on all hosts, in the order of host 0. Nothing where a rail has no key, or
// not one of its own on its host.
template <typename Key>
std::optional<std::vector<std::string>> in_common(const std::vector<Place>& places,
                                                  const std::vector<std::vector<Rank>>& hosts,
                                                  Key key) {
  std::vector<std::string> common;
  for (std::size_t host = 0; host < hosts.size(); ++host) {
    std::set<std::string> here;
    for (const Nic& nic : places[hosts[host][0]].rails) {
      if (key(nic).empty() || !here.insert(key(nic)).second) return {};
      if (host == 0) common.push_back(key(nic));
    }
    std::erase_if(common, [&](const std::string& one) { return !here.contains(one); });
  }
  return common;
}

// The same PCI slot on every host is the same rail: the slots that all hosts have come first, in
// the order of host 0. Without a slot for every rail (virtual ones) the order stays as listed, and
// where hosts then have more and fewer of them, those that all have by name come first: the one
// that is missing must not make another one of each that follows.
void align_hosts(std::vector<Place>& places, const std::vector<std::vector<Rank>>& hosts) {
  const auto slot = [](const Nic& nic) { return nic.pci; };
  if (const auto common = in_common(places, hosts, slot)) {
    for (Place& place : places) reorder(place.rails, *common, slot);
    return;
  }
  const auto name = [](const Nic& nic) { return nic.name; };
  const auto common = in_common(places, hosts, name);
  const bool equal = std::ranges::all_of(
      places, [&](const Place& place) { return place.rails.size() == places[0].rails.size(); });
  if (common && !equal)
    for (Place& place : places) reorder(place.rails, *common, name);
}

// Where some hosts have both families on a rail and others IPv6 only, IPv6 is how they meet.
void share_family(std::vector<Place>& places, std::size_t rail) {
  const auto only_ipv6 = [](const Nic& nic) { return nic.address.find(':') != std::string::npos; };
  bool wanted = false;
  for (const Place& place : places) {
    const Nic& nic = place.rails[rail];
    if (!only_ipv6(nic) && nic.ipv6.empty()) return;
    wanted = wanted || only_ipv6(nic);
  }
  for (Place& place : places)
    if (Nic& nic = place.rails[rail]; wanted && !only_ipv6(nic)) nic.address = nic.ipv6;
}

// The rail of each of a host's ranks: an even share of ranks on each rail. Where that leaves the
// shares even, it is the one nearest to the rank's GPU, the nearest pairs first, or one on the
// rank's NUMA node; else in the order of the ranks.
std::vector<int> choose(const std::vector<Place>& places, const std::vector<Rank>& ranks,
                        int nrails, bool by_distance) {
  const int nlocal = static_cast<int>(ranks.size());
  const int share = nlocal / nrails;
  int extra = nlocal % nrails;  // rails that may take one rank more
  std::vector<int> load(nrails, 0), result(nlocal, -1);
  const auto plain = [&](int local) {
    return static_cast<int>(std::int64_t{local} * nrails / nlocal);
  };
  const auto take = [&](int local, int rail) {
    if (load[rail] > share || (load[rail] == share && extra == 0)) return false;
    if (load[rail] == share) --extra;
    ++load[rail];
    result[local] = rail;
    return true;
  };
  const auto take_any = [&](int local, auto&& suits) {
    if (suits(plain(local)) && take(local, plain(local))) return;
    for (int rail = 0; rail < nrails && result[local] < 0; ++rail) {
      if (suits(rail)) take(local, rail);
    }
  };
  std::vector<std::tuple<int, bool, int, int>> pairs;  // far, not the plain one, rank, rail
  for (int local = 0; by_distance && local < nlocal; ++local) {
    const std::vector<Nic>& rails = places[ranks[local]].rails;
    for (int rail = 0; rail < std::min(nrails, static_cast<int>(rails.size())); ++rail)
      if (const int far = rails[rail].from_gpu; far >= 0)
        pairs.emplace_back(far, rail != plain(local), local, rail);
  }
  std::ranges::sort(pairs);
  for (const auto& [far, not_plain, local, rail] : pairs)
    if (result[local] < 0) take(local, rail);
  for (int local = 0; by_distance && local < nlocal; ++local) {
    const Place& place = places[ranks[local]];
    if (place.numa_node < 0 || result[local] >= 0) continue;
    take_any(local, [&](int rail) {
      return rail < static_cast<int>(place.rails.size()) &&
             place.rails[rail].numa_node == place.numa_node;
    });
  }
  for (int local = 0; local < nlocal; ++local) {
    if (result[local] < 0) take_any(local, [](int) { return true; });
  }
  return result;
}

}  // namespace

Topology::Topology(std::vector<Place> places)
    : places_(std::move(places)),
      host_(places_.size()),
      local_(places_.size()),
      rail_(places_.size()) {
  if (places_.empty()) throw Error("a topology needs at least 1 rank; 0 were described");
  std::unordered_map<std::string, int> index;
  for (Rank rank = 0; rank < nranks(); ++rank) {
    const int host = index.emplace(places_[rank].host, nhosts()).first->second;
    if (host == nhosts()) hosts_.emplace_back();
    host_[rank] = host;
    local_[rank] = static_cast<int>(hosts_[host].size());
    hosts_[host].push_back(rank);
  }
  for (const std::vector<Rank>& ranks : hosts_) align_inside_host(places_, ranks);
  align_hosts(places_, hosts_);
  std::size_t fewest = places_[0].rails.size();
  for (const Place& place : places_) fewest = std::min(fewest, place.rails.size());
  nrails_ = std::max(1, static_cast<int>(fewest));
  for (std::size_t rail = 0; rail < fewest; ++rail) share_family(places_, rail);

  // Ranks of equal local index meet on one rail, so hosts of equal size must choose the same. Where
  // their processes are bound differently, or have other GPUs, distance has no say in it.
  std::unordered_map<std::size_t, std::vector<int>> chosen;
  for (const std::vector<Rank>& ranks : hosts_) {
    const auto [it, first] = chosen.emplace(ranks.size(), std::vector<int>());
    const std::vector<int> closest = choose(places_, ranks, nrails_, true);
    if (first) {
      it->second = closest;
    } else if (it->second != closest) {
      it->second = choose(places_, ranks, nrails_, false);
    }
  }
  for (Rank rank = 0; rank < nranks(); ++rank) {
    rail_[rank] = chosen[hosts_[host_[rank]].size()][local_[rank]];
  }
}

bool Topology::same_kernel(Rank a, Rank b) const {
  const auto kernel = [this](Rank r) {
    const std::string_view machine = places_[r].machine;
    return machine.substr(0, machine.find(':'));
  };
  return kernel(a) == kernel(b);
}

bool Topology::uniform() const {
  return std::all_of(hosts_.begin(), hosts_.end(), [this](const std::vector<Rank>& ranks) {
    return ranks.size() == hosts_[0].size();
  });
}

}  // namespace weft
