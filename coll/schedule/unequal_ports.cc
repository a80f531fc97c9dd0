// all_reduce along rails where one host has slower ports than the others.
//
// That host must send and get the message once, whoever adds it up; a host that takes its part in
// adding up has nearly twice as many bytes. So the host with slow ports adds up less: of the share
// 1 - b of the message it only sends its contribution, in pieces, each to one of the other hosts,
// which adds it to its own, and gets the results the same way, over all of its ports in proportion
// to their rates. Of a rail where its port is slow, it sends over another rail, to the neighbor of
// the rank that wants it. The other hosts add up that share among themselves, and the share b with
// all hosts, as if all ports were equal. b follows from the rates in closed form, and reaches the
// lower bound: 2 (H-1) / (rate of all ports of all hosts) or 1 / (rate of the slow host's ports),
// whichever is more (the bound for ranks instead of hosts: OptCC, arXiv 2606.01680).
#include <cmath>
#include <numeric>
#include <utility>

#include "coll/schedule/building_blocks.h"

namespace weft {
namespace {

// b (see above) is 0 where it would shorten the time by less: it costs twice the messages.
constexpr double kWorthTwice = 0.002;
// Of the best b: a host whose ports are all as busy as those of the others is late, since more of
// what it does waits for others.
constexpr double kBusy = 0.8;
// Pieces of the message of one rail: each goes through a port of one of the other hosts, which is
// busy for that much longer.
constexpr int kPieces = 64;

// A piece of the slow host's contribution.
struct PieceOfSlow {
  Chunks at;
  int port;  // of the slow host, that it goes through
  int host;  // that adds it to its own, as a place among the others
};

// The part of the message that one rail adds up: chunks of all hosts, then of all but the slow one.
struct RailPart {
  Chunks shared, direct;
  std::vector<PieceOfSlow> pieces;  // of `direct`, in ascending order
};

// What goes where; the same on every rank.
class Shares {
 public:
  Shares(const Shape& shape, const Layout& layout)
      : slow_(shape.slow_ports[0].host), hosts_(layout.nhosts()), ports_(layout.per_host()) {
    const auto n = static_cast<std::size_t>(ports_);
    std::vector<double> all = shape.rail_weight;
    if (all.size() != n) all.assign(n, 1.0);
    std::vector<double> here = all;
    for (const SlowPort& p : shape.slow_ports)
      here[static_cast<std::size_t>(p.local)] = all[static_cast<std::size_t>(p.local)] * p.rate;
    cut(all, here);
  }
  int slow_host() const { return slow_; }
  const RailPart& rail(int l) const { return rails_[static_cast<std::size_t>(l)]; }
  // What rank l of a host has to do with: all parts of its rail.
  Chunks whole(int l) const {
    return {rail(l).shared.first, rail(l).shared.count + rail(l).direct.count};
  }
  // The host's place among those that are not slow.
  int among_others(int host) const { return host - (host > slow_); }
  // Calls f with each range of chunks of rail l that the slow host sends through `port`.
  template <class F>
  void through(int l, int port, F f) const {
    const auto& pieces = rail(l).pieces;
    for (std::size_t i = 0, end; i < pieces.size(); i = end) {
      for (end = i + 1; end < pieces.size() && pieces[end].port == pieces[i].port;) ++end;
      const int first = pieces[i].at.first;
      if (pieces[i].port == port) f(Chunks{first, pieces[end - 1].at.end() - first});
    }
  }
  std::vector<double> take_weights() { return std::move(weight_); }
  int nchunks() const { return static_cast<int>(weight_.size()); }

 private:
  // `all`, `here`: rates of the ports of other hosts, and of the slow one.
  void cut(const std::vector<double>& all, const std::vector<double>& here) {
    const double sum = std::accumulate(all.begin(), all.end(), 0.0);
    const double live = std::accumulate(here.begin(), here.end(), 0.0);
    const double h = hosts_;
    // Of a share of the message, what each port of a rail sends: `shared` among all hosts, `ring`
    // among the others, `extra` from and to the slow host besides.
    const double shared = 2 * (h - 1) / h, ring = 2 * (h - 2) / (h - 1), extra = 1 / (h - 1);
    const double without_us = std::max((ring + extra) / sum, 1 / live);
    double b = (ring + extra) / sum - 1 / live;
    b = b <= 0 ? 0 : b / ((shared - 1) / live + (ring + extra - shared) / sum);
    b = std::min(b, 1.0) * kBusy;
    if (const double us = (b * shared + (1 - b) * (ring + extra)) / sum;
        without_us < us * (1 + kWorthTwice))
      b = 0;
    const double us = (b * shared + (1 - b) * (ring + extra)) / sum;
    std::vector<double> through, direct;  // shares of the message, by port and by rail
    for (std::size_t l = 0; l < all.size(); ++l) {
      through.push_back((1 - b) * here[l] / live);
      const double rest = us * all[l] - b * here[l] / live * shared - through[l] * extra;
      direct.push_back(ring > 0 ? rest / ring : (1 - b) * all[l] / sum);
    }
    std::vector<double> room = through;  // of ports, beside what their own rail takes
    for (std::size_t l = 0; l < all.size(); ++l) room[l] -= std::min(through[l], direct[l]);
    const double all_room = std::accumulate(room.begin(), room.end(), 0.0);
    for (std::size_t l = 0; l < all.size(); ++l) {
      RailPart part;
      const double of_shared = b * here[l] / live;
      part.shared = add(of_shared > kNothing ? hosts_ : 0, of_shared);
      // Its own port takes what it can, the others the rest by their room.
      std::vector<double> by_port(all.size(), 0.0);
      by_port[l] = std::min(through[l], direct[l]);
      for (std::size_t m = 0; m < all.size() && direct[l] - by_port[l] > kNothing; ++m)
        if (m != l) by_port[m] = (direct[l] - by_port[l]) * room[m] / all_room;
      add_direct(part, by_port, direct[l]);
      rails_.push_back(std::move(part));
    }
  }

  Chunks add(int count, double share) {
    const int first = nchunks();
    weight_.insert(weight_.end(), static_cast<std::size_t>(count), share / count);
    return {first, count};
  }

  // Pieces of one port follow each other where hosts are many. Where there are few, each host has a
  // piece for every port, as long as that port's share.
  void add_direct(RailPart& part, const std::vector<double>& by_port, double share) {
    std::vector<int> used;
    for (std::size_t m = 0; m < by_port.size(); ++m)
      if (by_port[m] > kNothing) used.push_back(static_cast<int>(m));
    const int others = hosts_ - 1, ports = static_cast<int>(used.size());
    if (others < 2 * ports) {
      part.direct = add(others * ports, share);
      for (int c = 0; c < part.direct.count; ++c) {
        const int m = used[static_cast<std::size_t>(c % ports)], chunk = part.direct.first + c;
        part.pieces.push_back({{chunk, 1}, m, c / ports});
        weight_[static_cast<std::size_t>(chunk)] = by_port[static_cast<std::size_t>(m)] / others;
      }
      return;
    }
    part.direct = add(others, share);
    const double whole = share + weight_of(part.shared);
    const int wanted = static_cast<int>(std::ceil(kPieces * share / whole));
    const int pieces = std::min(others, std::max(2 * ports, wanted));
    double before = 0;
    for (const int m : used) {
      before += by_port[static_cast<std::size_t>(m)];
      const double end = before / share * pieces + 0.5;
      for (int i = static_cast<int>(part.pieces.size()); i < static_cast<int>(end); ++i)
        part.pieces.push_back({part.direct.part(i, pieces), m, i * others / pieces});
    }
  }
  double weight_of(Chunks at) const {
    return std::accumulate(weight_.begin() + at.first, weight_.begin() + at.end(), 0.0);
  }

  static constexpr double kNothing = 1e-9;  // of the message

  const int slow_, hosts_, ports_;
  std::vector<RailPart> rails_;
  std::vector<double> weight_;
};

class Builder {
 public:
  Builder(const Shape& shape, RailBlock reduce_scatter, RailBlock all_gather)
      : layout_(shape),
        shares_(shape, layout_),
        reduce_scatter_(reduce_scatter),
        all_gather_(all_gather),
        s_(empty_schedule(shape, shares_.nchunks())),
        me_(layout_.my_local()),
        host_(layout_.my_host()) {
    const Group rail = layout_.rail();
    others_.assign(rail.ranks.begin(), rail.ranks.end());
    others_.erase(others_.begin() + shares_.slow_host());
    s_.weight = shares_.take_weights();
  }

  Schedule build() {
    host_ == shares_.slow_host() ? of_slow() : of_other();
    return std::move(s_);
  }

 private:
  int n() const { return layout_.per_host(); }
  Rank local(int l) const { return layout_.host().at(l); }
  Rank slow(int l) const {
    return layout_
        .hosts()[static_cast<std::size_t>(shares_.slow_host())][static_cast<std::size_t>(l)];
  }

  // Calls f with each range of chunks that rank `owner` of the slow host collects.
  template <class F>
  void collected(int owner, F f) const {
    Chunks open{0, 0};  // neighbors make one range
    const auto take = [&](Chunks at) {
      if (open.count > 0 && open.end() != at.first) f(std::exchange(open, {0, 0}));
      open = open.count > 0 ? Chunks{open.first, open.count + at.count} : at;
    };
    for (int l = 0; l < n(); ++l) {
      if (l == owner && shares_.rail(l).shared.count > 0) take(shares_.rail(l).shared);
      shares_.through(l, owner, take);
    }
    if (open.count > 0) f(open);
  }

  void of_slow() {
    for (int i = 1; i < n(); ++i)
      collected((me_ + i) % n(), [&](Chunks at) { s_.send(local(me_ + i), at, kHostChannel); });
    collected(me_, [&](Chunks at) {
      for (int i = 1; i < n(); ++i) s_.recv_reduce(local(me_ - i), at, kHostChannel);
    });
    // The others add up from the last part to the first (halving_doubling.cc).
    const auto directly = [&](auto f) {
      for (int l = 0; l < n(); ++l)
        for (auto p = shares_.rail(l).pieces.rbegin(); p != shares_.rail(l).pieces.rend(); ++p)
          if (p->port == me_) f(others_[static_cast<std::size_t>(p->host)], p->at);
    };
    directly([&](Rank to, Chunks at) { s_.send(to, at, kDirectChannel); });
    const Chunks shared = shares_.rail(me_).shared;
    reduce_scatter_(s_, layout_.rail(), shared, kRailChannel);
    all_gather_(s_, layout_.rail(), shared, kRailChannel);
    directly([&](Rank from, Chunks at) { s_.recv(from, at, kDirectChannel); });
    for (int i = 1; i < n(); ++i)
      collected(me_, [&](Chunks at) { s_.send(local(me_ + i), at, kHostChannel); });
    for (int i = 1; i < n(); ++i)
      collected((me_ - i + n()) % n(),
                [&](Chunks at) { s_.recv(local(me_ - i), at, kHostChannel); });
  }

  // Calls f with each piece of rail l that comes to this host from the slow host's `port`.
  template <class F>
  void direct_here(int l, int port, F f) const {
    for (const PieceOfSlow& p : shares_.rail(l).pieces)
      if (p.port == port && p.host == shares_.among_others(host_)) f(p.at);
  }

  void of_other() {
    const Chunks whole = shares_.whole(me_);
    for (int i = 1; i < n(); ++i)
      s_.send(local(me_ + i), shares_.whole((me_ + i) % n()), kHostChannel);
    for (int i = 1; i < n(); ++i) s_.recv_reduce(local(me_ - i), whole, kHostChannel);
    // Contributions of the slow host: those for other ranks of this host are handed on.
    for (int l = 0; l < n(); ++l)
      direct_here(l, me_, [&](Chunks at) {
        if (l == me_) return s_.recv_reduce(slow(me_), at, kDirectChannel);
        s_.recv(slow(me_), at, kDirectChannel);
        s_.send(local(l), at, kDetourChannel);
      });
    for (int m = 0; m < n(); ++m)
      if (m != me_)
        direct_here(me_, m, [&](Chunks at) { s_.recv_reduce(local(m), at, kDetourChannel); });
    const RailPart& mine = shares_.rail(me_);
    const Group rail = layout_.rail(), others{others_, shares_.among_others(host_)};
    reduce_scatter_(s_, rail, mine.shared, kRailChannel);
    reduce_scatter_(s_, others, mine.direct, kDirectChannel);
    all_gather_(s_, rail, mine.shared, kRailChannel);
    all_gather_(s_, others, mine.direct, kDirectChannel);
    // The results, back the same way.
    for (int m = 0; m < n(); ++m)
      if (m != me_) direct_here(me_, m, [&](Chunks at) { s_.send(local(m), at, kDetourChannel); });
    for (int l = 0; l < n(); ++l)
      direct_here(l, me_, [&](Chunks at) {
        if (l != me_) s_.recv(local(l), at, kDetourChannel);
        s_.send(slow(me_), at, kDirectChannel);
      });
    for (int i = 1; i < n(); ++i)
      without_detours(me_, (me_ + i) % n(),
                      [&](Chunks at) { s_.send(local(me_ + i), at, kHostChannel); });
    for (int i = 1; i < n(); ++i)
      without_detours((me_ - i + n()) % n(), me_,
                      [&](Chunks at) { s_.recv(local(me_ - i), at, kHostChannel); });
  }

  // What rank `to` of this host still lacks of the results of rank `from`: all but those that it
  // has handed on to the slow host.
  template <class F>
  void without_detours(int from, int to, F f) const {
    const Chunks all = shares_.whole(from);
    int begin = all.first;
    direct_here(from, to, [&](Chunks at) {
      if (at.first > begin) f(Chunks{begin, at.first - begin});
      begin = at.end();
    });
    if (all.end() > begin) f(Chunks{begin, all.end() - begin});
  }

  const Layout layout_;
  Shares shares_;
  const RailBlock reduce_scatter_, all_gather_;
  Schedule s_;
  const int me_, host_;
  std::vector<Rank> others_;  // of this rail, all but the slow host's
};

}  // namespace

bool has_unequal_ports(const Shape& shape) {
  return !shape.slow_ports.empty() && shape.hosts.size() > 1 && !shape.deterministic &&
         uniform_hosts(shape) &&
         std::ranges::all_of(
             shape.slow_ports,
             [&](const SlowPort& p) { return p.host == shape.slow_ports[0].host; }) &&
         std::ranges::any_of(shape.slow_ports, [](const SlowPort& p) { return p.rate < 1; }) &&
         std::ranges::count(shape.slow_ports, 0.0, &SlowPort::rate) < std::ssize(shape.hosts[0]);
}

Schedule unequal_ports_all_reduce(const Shape& shape, RailBlock reduce_scatter,
                                  RailBlock all_gather) {
  return Builder(shape, reduce_scatter, all_gather).build();
}

}  // namespace weft
