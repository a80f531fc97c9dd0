// Sets up rails that replace each other (transport/rails/rails.h): which rails a message uses, and
// which rank logs that a rail is lost.
#include "coll/runtime/links.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "topo/base/log.h"
#include "transport/rails/datagram_channel_letters.h"
#include "transport/rails/datagram_channel_udp.h"

namespace weft {

namespace {

// The host's rank that logs events of the rail: the first rank whose own rail it is, else the first
// rank.
Rank speaker_of_rail(const Topology& topology, int host, int rail) {
  const std::vector<Rank>& ranks = topology.ranks_of(host);
  const auto own = std::ranges::find(ranks, rail, [&](Rank r) { return topology.rail(r); });
  return own != ranks.end() ? *own : ranks.front();
}

constexpr int kPolls = 64;  // enough for the rails to check their lanes several times

}  // namespace

void Links::set_up_rails(Job& job, std::vector<std::unique_ptr<Transport>>& inner,
                         std::function<void(const RailEvent&)> on_event,
                         std::function<std::string(int)> trouble) {
  if (inner.size() < 2 || !options_.failover) return;
  for (const auto& rail : inner)
    if (!rail->recovery()) return;  // the same on all ranks, which have the same transports
  std::string why;
  auto paths = make_udp_paths(job, *topology_, why);
  if (!paths && (paths = make_letter_paths(job, *topology_)))
    log().info("weft: rails agree by way of rank 0: {}", why);
  if (!paths) {
    log().warn("weft: rails cannot stand in for each other: {}", why);
    return;
  }
  RailsOptions o;
  o.stripes = [this](Rank peer, int home) { return stripes(me_, peer, home); };
  const int n = static_cast<int>(inner.size());
  rails = std::make_unique<Rails>(std::move(inner), std::move(paths), me_, job.size(), o);
  rails->on_event(
      [this, on_event = std::move(on_event), trouble = std::move(trouble),
       lanes_out = std::vector<int>(static_cast<std::size_t>(n))](const RailEvent& e) mutable {
        on_event(e);
        if (speaker_of_rail(*topology_, topology_->host(me_), e.rail) != me_) return;
        // All ranks of the host lose their lanes for the same reason: only one of them logs, when
        // its first lane fails and when its last one is back.
        int& out = lanes_out[static_cast<std::size_t>(e.rail)];
        const bool tell = e.kind == RailEvent::Kind::kOut    ? out++ == 0
                          : e.kind == RailEvent::Kind::kBack ? --out == 0
                                                             : false;
        if (!tell) return;
        const std::string counted = trouble(e.rail);
        const auto device = [&](Rank r) {
          return topology_->place(r).rails[static_cast<std::size_t>(e.rail)].name;
        };
        const auto host = [&](Rank r) { return topology_->host_name(topology_->host(r)); };
        if (e.kind == RailEvent::Kind::kBack)
          log().warn("weft: rank {}: rail {} ({} on host {}) is back", me_, e.rail, device(me_),
                     host(me_));
        else
          log().warn(
              "weft: rank {}: rail {} ({} on host {}, to {} on host {}, rank {}) is taken out: {}; "
              "what was under way goes over the others{}",
              me_, e.rail, device(me_), host(me_), device(e.peer), host(e.peer), e.peer, e.cause,
              counted.empty() ? "" : fmt::format(" ({})", counted));
      });
  inner.clear();
  for (int r = 0; r < n; ++r) inner.push_back(rails->face(r));
}

// Large messages use every rail on the NUMA node of the rank's own rail (unless `spread` is off),
// and, with fewer ranks than rails, the rank's share of the rails. As for the rail of a pair, both
// ends apply these rules to the lower rank.
std::vector<int> Links::stripes(Rank me, Rank peer, int home) const {
  const Rank low = std::min(me, peer);
  const int nlocal = static_cast<int>(topology_->ranks_of(topology_->host(low)).size());
  const int n = topology_->nrails();
  const auto& nics = topology_->place(low).rails;
  std::vector<int> mine;
  for (int i = 0; i < n; ++i) {
    const int r = (home + i) % n;
    const bool near = options_.spread && nics[static_cast<std::size_t>(r)].numa_node ==
                                             nics[static_cast<std::size_t>(home)].numa_node;
    if (near || r == home || (nlocal < n && r * nlocal / n == topology_->local(low)))
      mine.push_back(r);
  }
  return mine;
}

void Links::poll_rails() noexcept {
  for (int i = 0; i < kPolls; ++i) rails->poll();
}

void Links::use_first(std::uint8_t link) {
  used_[link] = true;
  polled.insert(std::ranges::upper_bound(polled, link), link);
}

bool Links::arm(std::vector<int>& fds) {
  bool armed = true;
  for (const std::size_t l : polled) armed = all[l]->arm(fds) && armed;
  return armed;
}

void Links::before_pause() {
  for (std::size_t l = 0; l < all.size(); ++l)
    if (static_cast<int>(l) != shm_link) all[l]->before_pause();
}

void Links::cancel(std::uint32_t id) {
  for (Transport* link : all) link->cancel(id);
}

void Links::forget(std::uint64_t tag, std::uint64_t mask) {
  for (Transport* link : all) link->forget(tag, mask);
}

int Links::add(std::unique_ptr<Transport> transport) {
  kinds.push_back({transport->views() != nullptr});
  all.push_back(transport.get());
  transports_.push_back(std::move(transport));
  return static_cast<int>(all.size()) - 1;
}

void Links::clear() {
  all.clear();
  shm_link = -1;
  rails.reset();  // before transports_, whose decorators own memory posted to Rails
  transports_.clear();
}

}  // namespace weft
