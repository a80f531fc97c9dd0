// all_reduce along rails when some hosts have slower ports than the others.
//
// Every host must send and receive the message once, whichever host reduces it; a host that takes
// part in the reduction moves nearly twice as many bytes. Therefore hosts with slow ports reduce
// less: for the share 1 - b of the message they only send their contributions, in pieces. Each
// piece goes to one of the other hosts, which adds its own contribution; the results return the
// same way, over all ports in proportion to their rates. If a slow host's port on a rail is slow,
// it sends over another rail, to a local rank of the rank that needs the piece. The other hosts
// reduce the share 1 - b among themselves, and the share b with all hosts. b follows from the rates
// in closed form. With one slow host it reaches the lower bound: 2 (H-1) / (rate of all ports) or 1
// / (rate of the slow host's ports), whichever is larger (the bound for ranks instead of hosts:
// OptCC, arXiv 2606.01680).
#include <cmath>
#include <numeric>
#include <utility>

#include "coll/schedule/building_blocks.h"

namespace weft {
namespace {

// b (see above) is set to 0 if it saves less than this share of the time, since b > 0 doubles the
// messages.
constexpr double kWorthTwice = 0.002;
// Fraction of the optimal b that is used: a slow host whose ports are as busy as the other hosts'
// ports finishes late, since more of its steps wait for other hosts.
constexpr double kBusy = 0.8;
// Number of pieces per message of one rail. Each piece adds its time to one port of one of the
// other hosts.
constexpr int kPieces = 64;
// With up to this many pieces per rail, each of the other hosts gets one piece per port.
constexpr int kOneForEach = 16;
constexpr int kPerPort = 2;  // minimum pieces per port, if there are more

using Rates = std::vector<double>;  // by rail

double sum_of(const Rates& rates) { return std::accumulate(rates.begin(), rates.end(), 0.0); }

// A piece of a slow host's contribution.
struct PieceOfSlow {
  Chunks at;
  int port;  // port of the slow host that sends it
  int host;  // host that adds its own contribution, as an index among the other hosts
};

// The part of the message that is reduced on one rail: first the chunks that all hosts reduce, then
// the chunks that only the hosts without slow ports reduce.
struct RailPart {
  Chunks shared, direct;
  std::vector<std::vector<PieceOfSlow>> pieces;  // by slow host; pieces of `direct`, ascending
};

// The division of the message among hosts, rails and ports; every rank computes the same.
class Shares {
 public:
  Shares(const Shape& shape, const Layout& layout)
      : slow_(slow_hosts(shape)), hosts_(layout.nhosts()), ports_(layout.per_host()) {
    const auto n = static_cast<std::size_t>(ports_);
    Rates all = shape.rail_weight;
    if (all.size() != n) all.assign(n, 1.0);
    std::vector<Rates> here(slow_.size(), all);
    for (const SlowPort& p : shape.slow_ports)
      if (const int k = place_of(p.host); k >= 0)
        here[static_cast<std::size_t>(k)][static_cast<std::size_t>(p.local)] *= p.rate;
    cut(all, here);
  }
  const std::vector<int>& slow_ones() const { return slow_; }
  // The host's index among the slow hosts, or -1.
  int place_of(int host) const {
    const auto it = std::ranges::find(slow_, host);
    return it == slow_.end() ? -1 : static_cast<int>(it - slow_.begin());
  }
  const RailPart& rail(int l) const { return rails_[static_cast<std::size_t>(l)]; }
  const std::vector<PieceOfSlow>& pieces(int slow, int l) const {
    return rail(l).pieces[static_cast<std::size_t>(slow)];
  }
  // The chunks that rank l of a host handles: all chunks of its rail.
  Chunks whole(int l) const {
    return {rail(l).shared.first, rail(l).shared.count + rail(l).direct.count};
  }
  // The host's index among the hosts that are not slow.
  int among_others(int host) const {
    return host - static_cast<int>(std::ranges::count_if(slow_, [&](int s) { return s < host; }));
  }
  // Calls f with each range of chunks of rail l that a slow host sends through `port`.
  template <class F>
  void through(int slow, int l, int port, F f) const {
    const auto& all = pieces(slow, l);
    for (std::size_t i = 0, end; i < all.size(); i = end) {
      for (end = i + 1; end < all.size() && all[end].port == all[i].port;) ++end;
      const int first = all[i].at.first;
      if (all[i].port == port) f(Chunks{first, all[end - 1].at.end() - first});
    }
  }
  Rates take_weights() { return std::move(weight_); }
  int nchunks() const { return static_cast<int>(weight_.size()); }

 private:
  int others() const { return hosts_ - static_cast<int>(slow_.size()); }

  // `all`: port rates of a host that is not slow; `here`: port rates of each slow host.
  void cut(const Rates& all, const std::vector<Rates>& here) {
    const double sum = sum_of(all), h = hosts_, m = others();
    Rates low = all;  // by rail: the slowest host's port
    double live = sum;
    for (const Rates& of : here) {
      live = std::min(live, sum_of(of));
      for (std::size_t l = 0; l < all.size(); ++l) low[l] = std::min(low[l], of[l]);
    }
    const double lowest = sum_of(low);
    // Bytes that each port of a rail sends per byte of the message: `shared` if all hosts reduce
    // it, `ring` if only the other hosts do, and `extra` in addition to and from each slow host.
    const double shared = 2 * (h - 1) / h, ring = 2 * (m - 1) / m, extra = 1 / m;
    const double apart = ring + extra * (h - m);
    const auto us_of = [&](double b) { return (b * shared + (1 - b) * apart) / sum; };
    double b = apart / sum - 1 / live;
    b = b <= 0 ? 0 : b / ((shared - 1) / live + (apart - shared) / sum);
    b = std::clamp(b, 0.0, 1.0) * kBusy;
    // If hosts are slow on different rails, the shared part runs at each rail's lowest rate.
    if (const double spare = lowest > 0 ? shared * (1 / lowest - 1 / live)
                             : b > 0    ? 1e9
                                        : 0;
        spare > 0)
      b = std::min(b, 1 / live / (1 / live + spare));
    if (std::max(us_of(0), 1 / live) < us_of(b) * (1 + kWorthTwice)) b = 0;
    Rates of_shared(all.size(), 0.0), direct(all.size());        // shares of the message, by rail
    std::vector<Rates> through(here.size(), Rates(all.size()));  // by slow host and port
    for (std::size_t l = 0; l < all.size(); ++l) {
      if (lowest > 0) of_shared[l] = b * low[l] / lowest;
      double extras = 0;
      for (std::size_t s = 0; s < here.size(); ++s) {
        const double busy = (b * shared + (1 - b)) * here[s][l] / sum_of(here[s]);
        extras += through[s][l] = std::max(0.0, busy - of_shared[l] * shared);
      }
      const double rest = us_of(b) * all[l] - of_shared[l] * shared - extras * extra;
      direct[l] = ring > 0 ? std::max(0.0, rest) : all[l];
    }
    const double directs = sum_of(direct);
    for (double& d : direct) d *= (1 - b) / directs;
    loads_.assign(here.size(), std::vector<Rates>(all.size(), Rates(static_cast<std::size_t>(m))));
    for (std::size_t l = 0; l < all.size(); ++l) {
      RailPart part;
      part.shared = add(of_shared[l] > kNothing ? hosts_ : 0, of_shared[l]);
      std::vector<Rates> by_port;
      for (const Rates& ports : through) by_port.push_back(ports_for(l, ports, direct));
      add_direct(part, by_port, direct[l]);
      rails_.push_back(std::move(part));
    }
  }

  // The part of rail l's direct share that a slow host sends through each of its ports: as much as
  // possible through its port on rail l, the rest through the other ports, in proportion to the
  // capacity that their own rails leave.
  static Rates ports_for(std::size_t l, const Rates& through, const Rates& direct) {
    Rates room = through, by_port(through.size(), 0.0);
    const double scale = sum_of(direct) / sum_of(through);
    for (std::size_t m = 0; m < room.size(); ++m) {
      room[m] *= scale;
      if (m == l) by_port[l] = std::min(room[l], direct[l]);
      room[m] -= std::min(room[m], direct[m]);
    }
    const double all_room = sum_of(room);
    for (std::size_t m = 0; m < room.size() && direct[l] - by_port[l] > kNothing; ++m)
      if (m != l) by_port[m] = (direct[l] - by_port[l]) * room[m] / all_room;
    return by_port;
  }

  Chunks add(int count, double share) {
    const int first = nchunks();
    weight_.insert(weight_.end(), static_cast<std::size_t>(count), share / count);
    return {first, count};
  }

  // `by_port`: the shares of each slow host's ports. With few pieces, each of the other hosts gets
  // one piece per port, whose size is that port's share. With more pieces, the pieces of one port
  // are adjacent, so that they are one message within the slow host.
  void add_direct(RailPart& part, const std::vector<Rates>& by_port, double share) {
    const int n = others();
    std::vector<std::vector<int>> used(by_port.size());
    int ports = 1;
    for (std::size_t s = 0; s < by_port.size(); ++s) {
      for (std::size_t m = 0; m < by_port[s].size(); ++m)
        if (by_port[s][m] > kNothing) used[s].push_back(static_cast<int>(m));
      ports = std::max(ports, static_cast<int>(used[s].size()));
    }
    part.pieces.resize(by_port.size());
    if (share <= kNothing) return;
    if (by_port.size() == 1 && n * ports <= kOneForEach) {
      part.direct = add(n * ports, share);
      for (int c = 0; c < part.direct.count; ++c) {
        const int m = used[0][static_cast<std::size_t>(c % ports)], chunk = part.direct.first + c;
        part.pieces[0].push_back({{chunk, 1}, m, c / ports});
        weight_[static_cast<std::size_t>(chunk)] = by_port[0][static_cast<std::size_t>(m)] / n;
      }
      return;
    }
    const double whole = share + weight_of(part.shared);
    const int wanted = static_cast<int>(std::ceil(kPieces * share / whole));
    const int pieces =
        ports == 1 ? std::min(n, wanted)
                   : std::min(std::max(wanted, kPerPort * ports), std::max(n, kPerPort * ports));
    part.direct = add(n * ((pieces + n - 1) / n), share);
    for (std::size_t s = 0; s < by_port.size(); ++s) {
      auto& mine = part.pieces[s];
      double before = 0;
      for (const int m : used[s]) {
        before += by_port[s][static_cast<std::size_t>(m)];
        const double end = before / share * pieces + 0.5;
        for (int i = static_cast<int>(mine.size()); i < std::min(pieces, static_cast<int>(end));
             ++i) {
          const Chunks at = part.direct.part(i, pieces);
          mine.push_back({at, m, least_busy(s, m, i * n / pieces, weight_of(at))});
        }
      }
    }
  }

  // The host whose port on that rail receives least from the slow host, searched from `first` on.
  int least_busy(std::size_t slow, int port, int first, double share) {
    Rates& load = loads_[slow][static_cast<std::size_t>(port)];
    const int n = others();
    int best = first;
    for (int i = 1; i < n; ++i) {
      const int host = (first + i) % n;
      if (load[static_cast<std::size_t>(host)] < load[static_cast<std::size_t>(best)] - kNothing)
        best = host;
    }
    load[static_cast<std::size_t>(best)] += share;
    return best;
  }
  double weight_of(Chunks at) const {
    return std::accumulate(weight_.begin() + at.first, weight_.begin() + at.end(), 0.0);
  }

  static constexpr double kNothing = 1e-9;  // share of the message that counts as 0

  const std::vector<int> slow_;
  const int hosts_, ports_;
  std::vector<RailPart> rails_;
  Rates weight_;
  std::vector<std::vector<Rates>> loads_;  // by slow host, port and other host
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
    for (int h = 0; h < rail.size(); ++h)
      if (shares_.place_of(h) < 0) others_.push_back(rail.at(h));
    s_.weight = shares_.take_weights();
  }

  Schedule build() {
    const int slow = shares_.place_of(host_);
    slow >= 0 ? of_slow(slow) : of_other();
    return std::move(s_);
  }

 private:
  int n() const { return layout_.per_host(); }
  Rank local(int l) const { return layout_.host().at(l); }
  int slow_ones() const { return static_cast<int>(shares_.slow_ones().size()); }
  // The rank of a slow host on this rail.
  Rank on_slow(int slow) const {
    return layout_.rail().at(shares_.slow_ones()[static_cast<std::size_t>(slow)]);
  }

  // Calls f with each range of chunks that rank `owner` of a slow host collects.
  template <class F>
  void collected(int slow, int owner, F f) const {
    Chunks open{0, 0};  // merges adjacent ranges
    const auto take = [&](Chunks at) {
      if (open.count > 0 && open.end() != at.first) f(std::exchange(open, {0, 0}));
      open = open.count > 0 ? Chunks{open.first, open.count + at.count} : at;
    };
    for (int l = 0; l < n(); ++l) {
      if (l == owner && shares_.rail(l).shared.count > 0) take(shares_.rail(l).shared);
      shares_.through(slow, l, owner, take);
    }
    if (open.count > 0) f(open);
  }

  // Calls f with each piece of rail l that a slow host sends through `port`, in the order of
  // sending: the other hosts reduce from the last part to the first (halving_doubling.cc).
  template <class F>
  void for_pieces(int slow, int l, int port, F f) const {
    const auto& all = shares_.pieces(slow, l);
    for (auto p = all.rbegin(); p != all.rend(); ++p)
      if (p->port == port) f(*p);
  }

  void of_slow(int slow) {
    for (int i = 1; i < n(); ++i)
      collected(slow, (me_ + i) % n(),
                [&](Chunks at) { s_.send(local(me_ + i), at, kHostChannel); });
    collected(slow, me_, [&](Chunks at) {
      for (int i = 1; i < n(); ++i) s_.recv_reduce(local(me_ - i), at, kHostChannel);
    });
    const auto directly = [&](auto f) {
      for (int l = 0; l < n(); ++l)
        for_pieces(slow, l, me_, [&](const PieceOfSlow& p) {
          f(others_[static_cast<std::size_t>(p.host)], p.at);
        });
    };
    directly([&](Rank to, Chunks at) { s_.send(to, at, kSlowChannel); });
    const Chunks shared = shares_.rail(me_).shared;
    reduce_scatter_(s_, layout_.rail(), shared, kRailChannel);
    all_gather_(s_, layout_.rail(), shared, kRailChannel);
    directly([&](Rank from, Chunks at) { s_.recv(from, at, kSlowChannel); });
    for (int i = 1; i < n(); ++i)
      collected(slow, me_, [&](Chunks at) { s_.send(local(me_ + i), at, kHostChannel); });
    for (int i = 1; i < n(); ++i)
      collected(slow, (me_ - i + n()) % n(),
                [&](Chunks at) { s_.recv(local(me_ - i), at, kHostChannel); });
  }

  // Calls f with each piece of rail l that this host receives from a slow host's `port`, in the
  // order of sending.
  template <class F>
  void direct_here(int slow, int l, int port, F f) const {
    for_pieces(slow, l, port, [&](const PieceOfSlow& p) {
      if (p.host == shares_.among_others(host_)) f(p.at);
    });
  }

  void of_other() {
    const Chunks whole = shares_.whole(me_);
    for (int i = 1; i < n(); ++i)
      s_.send(local(me_ + i), shares_.whole((me_ + i) % n()), kHostChannel);
    for (int i = 1; i < n(); ++i) s_.recv_reduce(local(me_ - i), whole, kHostChannel);
    // Contributions of slow hosts; those for other ranks of this host are forwarded.
    for (int slow = 0; slow < slow_ones(); ++slow) {
      for (int l = 0; l < n(); ++l)
        direct_here(slow, l, me_, [&](Chunks at) {
          if (l == me_) return s_.recv_reduce(on_slow(slow), at, kSlowChannel);
          s_.recv(on_slow(slow), at, kSlowChannel);
          s_.send(local(l), at, kDetourChannel);
        });
      for (int m = 0; m < n(); ++m)
        if (m != me_)
          direct_here(slow, me_, m,
                      [&](Chunks at) { s_.recv_reduce(local(m), at, kDetourChannel); });
    }
    const RailPart& mine = shares_.rail(me_);
    const Group rail = layout_.rail(), others{others_, shares_.among_others(host_)};
    reduce_scatter_(s_, rail, mine.shared, kRailChannel);
    reduce_scatter_(s_, others, mine.direct, kDirectChannel);
    all_gather_(s_, rail, mine.shared, kRailChannel);
    all_gather_(s_, others, mine.direct, kDirectChannel);
    // The results return the same way.
    for (int slow = 0; slow < slow_ones(); ++slow) {
      for (int m = 0; m < n(); ++m)
        if (m != me_)
          direct_here(slow, me_, m, [&](Chunks at) { s_.send(local(m), at, kDetourChannel); });
      for (int l = 0; l < n(); ++l)
        direct_here(slow, l, me_, [&](Chunks at) {
          if (l != me_) s_.recv(local(l), at, kDetourChannel);
          s_.send(on_slow(slow), at, kSlowChannel);
        });
    }
    for (int i = 1; i < n(); ++i)
      without_detours(me_, (me_ + i) % n(),
                      [&](Chunks at) { s_.send(local(me_ + i), at, kHostChannel); });
    for (int i = 1; i < n(); ++i)
      without_detours((me_ - i + n()) % n(), me_,
                      [&](Chunks at) { s_.recv(local(me_ - i), at, kHostChannel); });
  }

  // Calls f with the results of rank `from` that rank `to` of this host still needs: all results
  // except those that `to` has forwarded to slow hosts.
  template <class F>
  void without_detours(int from, int to, F f) const {
    std::vector<Chunks> handed_on;
    for (int slow = 0; slow < slow_ones(); ++slow)
      direct_here(slow, from, to, [&](Chunks at) { handed_on.push_back(at); });
    std::ranges::sort(handed_on, {}, &Chunks::first);
    const Chunks all = shares_.whole(from);
    int begin = all.first;
    for (const Chunks at : handed_on) {
      if (at.first > begin) f(Chunks{begin, at.first - begin});
      begin = std::max(begin, at.end());
    }
    if (all.end() > begin) f(Chunks{begin, all.end() - begin});
  }

  const Layout layout_;
  Shares shares_;
  const RailBlock reduce_scatter_, all_gather_;
  Schedule s_;
  const int me_, host_;
  std::vector<Rank> others_;  // this rail's ranks of all hosts that are not slow
};

}  // namespace

std::vector<int> slow_hosts(const Shape& shape) {
  std::vector<int> slow;
  if (shape.slow_ports.empty() || shape.hosts.size() < 2 || shape.deterministic ||
      !uniform_hosts(shape))
    return slow;
  std::vector<int> dead(shape.hosts.size(), 0);
  for (const SlowPort& p : shape.slow_ports) {
    if (p.rate < 1 && (slow.empty() || slow.back() != p.host)) slow.push_back(p.host);
    if (p.rate <= 0 && ++dead[static_cast<std::size_t>(p.host)] >= std::ssize(shape.hosts[0]))
      return {};
  }
  if (slow.size() >= shape.hosts.size()) slow.clear();
  return slow;
}

Schedule unequal_ports_all_reduce(const Shape& shape, RailBlock reduce_scatter,
                                  RailBlock all_gather) {
  return Builder(shape, reduce_scatter, all_gather).build();
}

}  // namespace weft
