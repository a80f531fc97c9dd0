// Transports and datagram channels on the simulated fabric, for the Rails of ranks with several
// rails.
#include "transport/sim/rails.h"

#include <algorithm>
#include <utility>

#include "transport/decorator.h"

namespace weft {
namespace {

SimFabricOptions spread(SimFabricOptions o, int rails) {
  const std::vector<int> hosts = std::exchange(o.host_of_rank, {});
  o.rail_of_rank.clear();
  o.cpu_of_rank.clear();
  for (std::size_t p = 0; p < hosts.size(); ++p)
    for (int r = 0; r < rails; ++r) {
      o.host_of_rank.push_back(hosts[p]);
      o.rail_of_rank.push_back(r);
      o.cpu_of_rank.push_back(static_cast<int>(p));
    }
  return o;
}

}  // namespace

class SimRailTransport final : public Decorator, private Recovery {
 public:
  SimRailTransport(SimRails& rails, Rank rank, int rail)
      : Decorator(rails.fabric_.endpoint(rank * rails.rails_ + rail)),
        rails_(rails),
        me_(rank * rails.rails_ + rail),
        rail_(rail) {}

  void post(std::span<const Transfer> transfers) noexcept override {
    batch_.assign(transfers.begin(), transfers.end());
    for (Transfer& t : batch_) t.peer = there(t.peer);
    inner_->post(batch_);
  }
  Status cause(Rank peer) const override {
    const Status s = inner_->cause(there(peer));
    return s.ok() ? s : Status(s.code(), s.message(), peer);
  }
  bool disputed(Rank peer, Head& theirs) const noexcept override {
    return inner_->disputed(there(peer), theirs);
  }
  Rank unexpected(Rank peer, std::uint64_t tag, std::uint64_t mask,
                  Head& theirs) noexcept override {
    const Rank from = inner_->unexpected(peer < 0 ? peer : there(peer), tag, mask, theirs);
    return from < 0 ? from : rails_.rank_of(from);
  }
  Recovery* recovery() noexcept override { return this; }

 private:
  void disconnect(Rank peer) noexcept override { rails_.fabric_.disconnect(me_, there(peer)); }
  std::string reopen(Rank) noexcept override { return "sim"; }
  bool connect(Rank, std::string_view theirs) noexcept override { return theirs == "sim"; }
  Rank there(Rank peer) const { return peer * rails_.rails_ + rail_; }

  SimRails& rails_;
  Rank me_;
  int rail_;
  std::vector<Transfer> batch_;
};

class SimPaths final : public DatagramChannel {
 public:
  SimPaths(SimRails& rails, Rank rank) : rails_(rails), rank_(rank) {}
  std::int64_t now_us() noexcept override {
    return static_cast<std::int64_t>(rails_.fabric_.now_us());
  }
  void send(Rank to, int rail, std::string_view bytes) noexcept override {
    rails_.random_ = rails_.random_ * 6364136223846793005u + 1442695040888963407u;
    if (!link_up(rail) || static_cast<int>((rails_.random_ >> 33) % 1000) < rails_.loss_) return;
    const double at_us = rails_.fabric_.now_us() + rails_.latency_us_ +
                         rails_.delay_us_[static_cast<std::size_t>(rail)];
    auto& flying = rails_.flying_[static_cast<std::size_t>(to)];
    const auto later = std::find_if(flying.begin(), flying.end(),
                                    [=](const auto& other) { return other.at_us > at_us; });
    flying.insert(later, {at_us, {rank_, rail, std::string(bytes)}});
    rails_.fabric_.wake(to * rails_.rails_ + rail, at_us);
  }
  bool receive(Datagram& datagram) noexcept override {
    auto& flying = rails_.flying_[static_cast<std::size_t>(rank_)];
    while (!flying.empty() && flying.front().at_us <= rails_.fabric_.now_us() + 1e-6) {
      datagram = std::move(flying.front().datagram);
      flying.pop_front();
      if (link_up(datagram.rail)) return true;
    }
    return false;
  }
  bool link_up(int rail) noexcept override { return rails_.link_up(rank_, rail); }
  void wake_in(std::int64_t us) noexcept override {
    const double at_us = rails_.fabric_.now_us() + static_cast<double>(us);
    if (wake_us_ > rails_.fabric_.now_us() && wake_us_ <= at_us) return;  // already scheduled
    wake_us_ = at_us;
    rails_.fabric_.wake(rank_ * rails_.rails_, at_us);
  }

 private:
  SimRails& rails_;
  Rank rank_;
  double wake_us_ = 0;
};

SimRails::SimRails(SimFabricOptions options, int rails)
    : rails_(rails),
      host_(options.host_of_rank),
      latency_us_(options.rail.latency_us),
      fabric_(spread(std::move(options), rails)),
      flying_(host_.size()),
      delay_us_(static_cast<std::size_t>(rails), 0) {}

std::unique_ptr<Transport> SimRails::transport(Rank rank, int rail) {
  return std::make_unique<SimRailTransport>(*this, rank, rail);
}
std::unique_ptr<DatagramChannel> SimRails::paths(Rank rank) {
  return std::make_unique<SimPaths>(*this, rank);
}

}  // namespace weft
