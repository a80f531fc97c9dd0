// Assigns a job's ranks to hosts and rails. Deterministic and independent of the host, so that all
// ranks compute the same result.
#include "topo/topology.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
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

// Sorts the rails into the order of the keys in `reference`; unknown rails are last.
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

// Gives all ranks of one host the same device as rail r.
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

using Key = std::string Nic::*;

// Merges the hosts' rails by key: the rails of the first host, with further rails of other hosts
// inserted after their predecessors on those hosts. Returns an empty list if a rail has no key, or
// a key that is not unique on its host, or if hosts share less than half of their keys (different
// slots or names).
std::vector<std::string> all_called(const std::vector<const Place*>& hosts, Key key) {
  std::vector<std::string> all;
  std::unordered_map<std::string, std::size_t> holders;
  for (const Place* host : hosts) {
    std::set<std::string> here;
    std::size_t known = 0;
    for (const Nic& nic : host->rails) {
      if ((nic.*key).empty() || !here.insert(nic.*key).second) return {};
      known += holders.contains(nic.*key) ? 1 : 0;
    }
    if (!all.empty() && 2 * known < std::min(here.size(), all.size())) return {};
    auto at = all.begin();
    for (const Nic& nic : host->rails) {
      if (holders[nic.*key]++ == 0) at = all.insert(at, nic.*key);
      at = std::ranges::find(all, nic.*key) + 1;
    }
  }
  std::erase_if(all, [&](const std::string& one) { return 2 * holders[one] < hosts.size(); });
  return all;
}

// Returns a host's substitute for a missing rail: a device that is not a rail of the host, or an
// empty entry.
Nic hole(const Place& place, const Nic& wanted, Key key) {
  const auto own = std::ranges::find_if(place.others, [&](const Nic& nic) {
    return !(wanted.*key).empty() && nic.*key == wanted.*key && nic.rdma == wanted.rdma;
  });
  if (own != place.others.end()) {
    Nic nic = *own;
    if (!nic.up || nic.address.empty()) nic.aside.clear();  // the state is a sufficient reason
    return nic;
  }
  Nic nothing;
  nothing.name = wanted.name;
  nothing.rdma = wanted.rdma;
  nothing.pci = wanted.pci;
  nothing.aside = "this host has no such port";
  return nothing;
}

// Aligns rails across hosts by PCI slot, otherwise by name, otherwise by order. A host without a
// rail gets a hole in the rail's place.
void align_hosts(std::vector<Place>& places, const std::vector<std::vector<Rank>>& hosts) {
  std::vector<const Place*> first;
  for (const auto& ranks : hosts) first.push_back(&places[ranks[0]]);
  for (const Key key : {&Nic::pci, &Nic::name}) {
    const std::vector<std::string> all = all_called(first, key);
    if (all.empty()) continue;
    const bool same = std::ranges::all_of(
        first, [&](const Place* host) { return host->rails.size() == all.size(); });
    if (same && key == &Nic::name) return;  // keep the listed order
    std::vector<Nic> wanted(all.size());
    for (const Place* host : first)
      for (const Nic& nic : host->rails)
        if (const auto it = std::ranges::find(all, nic.*key); it != all.end())
          wanted[static_cast<std::size_t>(it - all.begin())] = nic;
    for (Place& place : places) {
      std::vector<Nic> rails;
      for (const Nic& one : wanted) {
        const auto own = std::ranges::find(place.rails, one.*key, key);
        rails.push_back(own == place.rails.end() ? hole(place, one, key) : *own);
      }
      place.rails = std::move(rails);
    }
    return;
  }
  const auto most =
      std::ranges::max_element(first, {}, [](const Place* place) { return place->rails.size(); });
  const std::vector<Nic> longest = (*most)->rails;
  for (Place& place : places)
    while (place.rails.size() < longest.size())
      place.rails.push_back(hole(place, longest[place.rails.size()], &Nic::name));
}

// Returns whether every host can use a rail: its ports are up, and have addresses if most have one.
bool usable(const std::vector<Place>& places, std::size_t rail, bool addresses) {
  std::size_t with = 0;
  for (const Place& place : places) with += place.rails[rail].address.empty() ? 0 : 1;
  return std::ranges::all_of(places, [&](const Place& place) {
    const Nic& nic = place.rails[rail];
    return nic.up && nic.aside.empty() &&
           (!addresses || !nic.address.empty() || 2 * with <= places.size());
  });
}

// Moves the rails that all hosts can use to the front; returns their number, and the slot of each
// rail.
std::pair<int, std::vector<int>> usable_first(std::vector<Place>& places) {
  const std::size_t n = places[0].rails.size();
  std::vector<int> order(n);
  std::iota(order.begin(), order.end(), 0);
  auto end = order.begin();
  for (const bool addresses : {true, false})
    if (end == order.begin())
      end = std::stable_partition(order.begin(), order.end(), [&](int rail) {
        return usable(places, static_cast<std::size_t>(rail), addresses);
      });
  for (Place& place : places) {
    std::vector<Nic> rails;
    for (const int rail : order) rails.push_back(std::move(place.rails[rail]));
    place.rails = std::move(rails);
  }
  return {static_cast<int>(end - order.begin()), order};
}

// If some hosts have both families on a rail and others only IPv6, all hosts use IPv6.
void share_family(std::vector<Place>& places, std::size_t rail) {
  const auto only_ipv6 = [](const Nic& nic) { return nic.address.find(':') != std::string::npos; };
  bool wanted = false;
  for (const Place& place : places) {
    const Nic& nic = place.rails[rail];
    if (!nic.up) continue;
    if (!only_ipv6(nic) && nic.ipv6.empty()) return;
    wanted = wanted || only_ipv6(nic);
  }
  for (Place& place : places)
    if (Nic& nic = place.rails[rail]; wanted && !only_ipv6(nic)) nic.address = nic.ipv6;
}

// Assigns a rail to each of a host's ranks, with evenly distributed ranks. Within this limit a rank
// gets the rail nearest to its GPU (nearest pairs first), or a rail on its NUMA node; otherwise
// rails are assigned in rank order.
std::vector<int> choose(const std::vector<Place>& places, const std::vector<Rank>& ranks,
                        int nrails, const std::vector<int>& slots, bool by_distance) {
  const int nlocal = static_cast<int>(ranks.size());
  const int share = nlocal / nrails;
  int extra = nlocal % nrails;  // rails that may get one more rank
  std::vector<int> load(nrails, 0), result(nlocal, -1);
  // A rank's rail if all rails were usable, so that a hole changes no other rank's rail.
  const auto plain = [&](int local) {
    const int slot =
        static_cast<int>(static_cast<std::size_t>(local) * slots.size() / ranks.size());
    return static_cast<int>(std::ranges::find(slots, slot) - slots.begin());
  };
  const auto take = [&](int local, int rail) {
    if (load[rail] > share || (load[rail] == share && extra == 0)) return false;
    if (load[rail] == share) --extra;
    ++load[rail];
    result[local] = rail;
    return true;
  };
  const auto take_any = [&](int local, auto&& suits) {
    if (plain(local) < nrails && suits(plain(local)) && take(local, plain(local))) return;
    for (int rail = 0; rail < nrails && result[local] < 0; ++rail) {
      if (suits(rail)) take(local, rail);
    }
  };
  std::vector<std::tuple<int, bool, int, int>> pairs;  // distance, not plain(), rank, rail
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
  int fewest = 0;
  std::tie(fewest, slots_) = usable_first(places_);
  nrails_ = std::max(1, fewest);
  for (std::size_t rail = 0; rail < places_[0].rails.size(); ++rail) share_family(places_, rail);

  // Ranks with the same local index share a rail, so hosts with the same number of ranks must
  // assign rails alike. If binding or GPUs differ between them, distance is ignored.
  std::unordered_map<std::size_t, std::vector<int>> chosen;
  for (const std::vector<Rank>& ranks : hosts_) {
    const auto [it, first] = chosen.emplace(ranks.size(), std::vector<int>());
    const std::vector<int> closest = choose(places_, ranks, nrails_, slots_, true);
    if (first) {
      it->second = closest;
    } else if (it->second != closest) {
      it->second = choose(places_, ranks, nrails_, slots_, false);
    }
  }
  for (Rank rank = 0; rank < nranks(); ++rank) {
    rail_[rank] = chosen[hosts_[host_[rank]].size()][local_[rank]];
  }
}

std::vector<Nic> Topology::rails_by_slot(Rank r) const {
  std::vector<Nic> rails(slots_.size());
  for (std::size_t i = 0; i < rails.size(); ++i)
    rails[static_cast<std::size_t>(slots_[i])] = places_[r].rails[i];
  return rails;
}

bool Topology::same_kernel(Rank a, Rank b) const {
  const auto kernel = [this](Rank r) {
    const std::string_view machine = places_[r].machine;
    return machine.substr(0, machine.find(':'));
  };
  return kernel(a) == kernel(b);
}

std::vector<int> Topology::leaves() const {
  std::unordered_map<std::string, int> index;
  std::vector<int> all;
  for (const std::vector<Rank>& ranks : hosts_) {
    const std::string& leaf = places_[ranks[0]].leaf;
    if (leaf.empty()) return {};
    all.push_back(index.emplace(leaf, static_cast<int>(index.size())).first->second);
  }
  return all;
}

bool Topology::uniform() const {
  return std::all_of(hosts_.begin(), hosts_.end(), [this](const std::vector<Rank>& ranks) {
    return ranks.size() == hosts_[0].size();
  });
}

}  // namespace weft
