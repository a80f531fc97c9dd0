// Setup and reports of the simulated fabric. datapath.cc transfers messages, failure.cc kills ranks
// and cuts links.
#include "transport/sim/sim.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <utility>

#include "transport/offers.h"
#include "transport/sim/state.h"

namespace weft {

namespace {

// Converts to whole picoseconds. Throws Error for times that are negative or out of range, so that
// no later sum overflows.
std::int64_t to_ps(double us, const char* what) {
  if (!(us >= 0 && us <= 1e12)) {
    throw Error(fmt::format("simulated fabric: {} = {}; must be between 0 and 1e12", what, us));
  }
  return std::llround(us * kPsPerUs);
}

double ps_per_byte(const SimLink& link, const char* what) {
  if (!(link.gbps > 0)) {
    throw Error(fmt::format("simulated fabric: {}.gbps = {}; must be above 0", what, link.gbps));
  }
  return 8000.0 / link.gbps;
}

int check_indices(const std::vector<int>& of_rank, std::size_t nranks, const char* what) {
  if (of_rank.size() != nranks) {
    throw Error(fmt::format("simulated fabric: {} has {} entries, but there are {} {}", what,
                            of_rank.size(), nranks,
                            what == std::string_view("leaf_of_host") ? "hosts" : "ranks"));
  }
  for (std::size_t r = 0; r < nranks; ++r) {
    if (of_rank[r] < 0 || of_rank[r] >= 1 << 20) {
      throw Error(fmt::format("simulated fabric: {}[{}] = {}; must be between 0 and 2^20 - 1", what,
                              r, of_rank[r]));
    }
  }
  return *std::ranges::max_element(of_rank) + 1;
}

class SimEndpoint final : public Transport, private Views {
 public:
  SimEndpoint(SimFabric::State& state, Rank rank) : state_(state), rank_(rank) {}
  ~SimEndpoint() override {
    cancel_all();
    state_.attached[rank_] = false;
  }
  void post(std::span<const Transfer> transfers) noexcept override {
    for (const Transfer& t : transfers) state_.post(rank_, t);
  }
  std::size_t poll(std::span<Completion> out) noexcept override { return state_.poll(rank_, out); }
  void cancel(std::uint32_t id_high) noexcept override { state_.cancel(rank_, id_high, false); }
  Caps caps() const override {
    return {.name = "sim", .phantom = !state_.opt.carry_data, .inline_bytes = 0, .cuda = false};
  }
  Status cause(Rank peer) const override { return state_.cause(rank_, peer); }
  bool disputed(Rank peer, Head& theirs) const noexcept override {
    const auto it = state_.disputed.find({rank_, peer});
    if (it == state_.disputed.end() || it->second.sign == 0) return false;
    theirs = it->second;
    return true;
  }
  Rank unexpected(Rank peer, std::uint64_t tag, std::uint64_t mask,
                  Head& theirs) noexcept override {
    return state_.unexpected(rank_, peer, tag, mask, theirs);
  }
  Views* views() noexcept override { return state_.opt.views ? this : nullptr; }

 private:
  bool release(std::uint64_t token) noexcept override {
    state_.release(rank_, token);
    return true;
  }
  void cancel_all() { state_.cancel(rank_, 0, true); }

  SimFabric::State& state_;
  const Rank rank_;
};

}  // namespace

SimFabric::State::State(SimFabricOptions o) : opt(std::move(o)) {
  const std::size_t n = opt.host_of_rank.size();
  if (n == 0) throw Error("simulated fabric: host_of_rank is empty; give each rank its host");
  if (opt.rail_of_rank.empty()) opt.rail_of_rank.assign(n, 0);
  nranks = static_cast<int>(n);
  nhosts = check_indices(opt.host_of_rank, n, "host_of_rank");
  nrails = check_indices(opt.rail_of_rank, n, "rail_of_rank");
  if (opt.cpu_of_rank.empty() && !opt.same_as.empty()) {
    cpu_of_rank = opt.same_as;
  } else if (opt.cpu_of_rank.empty()) {
    for (Rank r = 0; r < nranks; ++r) cpu_of_rank.push_back(r);
  } else {
    cpu_of_rank = opt.cpu_of_rank;
  }
  cpu.resize(check_indices(cpu_of_rank, n, "cpu_of_rank"));

  if (!(opt.payload_share > 0 && opt.payload_share <= 1)) {
    throw Error(fmt::format("simulated fabric: payload_share = {}; must be above 0, at most 1",
                            opt.payload_share));
  }
  if (opt.rail_scale.empty()) opt.rail_scale.assign(nrails, 1.0);
  if (std::ssize(opt.rail_scale) < nrails) {
    throw Error(fmt::format("simulated fabric: rail_scale has {} entries for {} rails",
                            opt.rail_scale.size(), nrails));
  }
  if (opt.reorder && !(opt.delay_us_max > 0)) {
    throw Error(
        fmt::format("simulated fabric: reorder with delay_us_max = {}; messages overtake "
                    "each other by their delays, so set delay_us_max above 0",
                    opt.delay_us_max));
  }
  host_latency_ps = to_ps(opt.host.latency_us, "host.latency_us");
  rail_latency_ps = to_ps(opt.rail.latency_us, "rail.latency_us");
  spine_latency_ps = to_ps(opt.spine.latency_us, "spine.latency_us");
  delay_ps_max = to_ps(opt.delay_us_max, "delay_us_max");
  detect_ps = to_ps(opt.detect_us, "detect_us");
  post_ps = to_ps(opt.post_us, "post_us");
  complete_ps = to_ps(opt.complete_us, "complete_us");
  to_ps(opt.send_us_per_byte, "send_us_per_byte");
  to_ps(opt.copy_us_per_byte, "copy_us_per_byte");
  to_ps(opt.reduce_us_per_byte, "reduce_us_per_byte");
  send_ps_per_byte = opt.send_us_per_byte * kPsPerUs;
  copy_ps_per_byte = opt.copy_us_per_byte * kPsPerUs;
  reduce_ps_per_byte = opt.reduce_us_per_byte * kPsPerUs;
  random = opt.seed;

  SimPort local;
  local.ps_per_byte = ps_per_byte(opt.host, "host");
  local_tx.assign(n, local);
  local_rx = local_tx;
  const auto wire = [&](double per_byte) {
    SimPort port;
    port.ps_per_byte = per_byte / opt.payload_share;
    port.header_ps = sim_ps(static_cast<double>(opt.header_bytes) * per_byte);
    return port;
  };
  spine_model = wire(ps_per_byte(opt.spine, "spine"));
  if (!opt.leaf_of_host.empty()) {
    const int leaves =
        check_indices(opt.leaf_of_host, static_cast<std::size_t>(nhosts), "leaf_of_host");
    if (opt.uplink_gbps != 0)
      leaf_up.assign(static_cast<std::size_t>(leaves * nrails),
                     wire(ps_per_byte({0, opt.uplink_gbps}, "uplink")));
    leaf_down = leaf_up;
  }
  for (int nic_index = 0; nic_index < nhosts * nrails; ++nic_index) {
    const double scale = opt.rail_scale[nic_index % nrails];
    if (!(scale > 0)) {
      throw Error(fmt::format("simulated fabric: rail_scale[{}] = {}; must be above 0",
                              nic_index % nrails, scale));
    }
    nic_tx.push_back(wire(ps_per_byte(opt.rail, "rail") / scale));
  }
  dead_port.resize(nic_tx.size());
  for (const SimSlowPort& p : opt.slow_ports) {
    if (p.host < 0 || p.host >= nhosts || p.rail < 0 || p.rail >= nrails || !(p.factor >= 0))
      throw Error(
          fmt::format("simulated fabric: port of host {} on rail {} at {} of its rate; there are "
                      "{} hosts and {} "
                      "rails, and a factor is 0 or above",
                      p.host, p.rail, p.factor, nhosts, nrails));
    const auto port = static_cast<std::size_t>(p.host * nrails + p.rail);
    dead_port[port] = p.factor == 0;
    any_dead_port = any_dead_port || p.factor == 0;
    if (p.factor > 0) nic_tx[port].ps_per_byte /= p.factor;
  }
  for (int h = 0; h < nhosts; ++h)
    if (std::all_of(dead_port.begin() + h * nrails, dead_port.begin() + (h + 1) * nrails,
                    [](bool dead) { return dead; }))
      throw Error(fmt::format("simulated fabric: all ports of host {} are dead; leave one", h));
  nic_rx = nic_tx;
  if (!opt.host_scale.empty()) {
    if (std::ssize(opt.host_scale) < nhosts)
      throw Error(fmt::format("simulated fabric: host_scale has {} entries for {} hosts",
                              opt.host_scale.size(), nhosts));
    for (std::size_t r = 0; r < n; ++r) {
      const double scale = opt.host_scale[opt.host_of_rank[r]];
      if (!(scale > 0))
        throw Error(fmt::format("simulated fabric: host_scale[{}] = {}; must be above 0",
                                opt.host_of_rank[r], scale));
      local_tx[r].ps_per_byte /= scale;
      local_rx[r].ps_per_byte /= scale;
    }
  }
  for (Rank r = 0; r < nranks; ++r) {
    const Rank as = same_as(r);
    nic_of_rank.push_back(
        static_cast<std::uint32_t>(opt.host_of_rank[as] * nrails + opt.rail_of_rank[as]));
  }
  down.resize(nic_tx.size());
  down_known.resize(nic_tx.size());
  rail_bytes.resize(nrails);
  host_tx_bytes.resize(nhosts);
  inbox.resize(n);
  for (auto* flags : {&attached, &woken, &in_ready, &dead, &dead_known}) flags->resize(n);
  died_ps.resize(n);
  table.assign(1024, kNone);

  for (std::size_t i = 0; i < opt.slowdowns.size(); ++i) {
    const SimSlowdown& s = opt.slowdowns[i];
    if (s.rail < 0 || s.rail >= nrails || !(s.factor > 0))
      throw Error(fmt::format("simulated fabric: rail {} slows to {}; there are {} rails", s.rail,
                              s.factor, nrails));
    schedule(SimEvent::Kind::kSlow, to_ps(s.at_us, "slowdowns.at_us"),
             static_cast<std::uint32_t>(i));
  }
  for (const SimFailure& f : opt.failures) {
    const std::int64_t at_ps = to_ps(f.at_us, "failures.at_us");
    if (valid(f.rank)) {
      schedule(SimEvent::Kind::kKill, at_ps, static_cast<std::uint32_t>(f.rank));
    } else if (f.rank == kNoRank && f.host >= 0 && f.host < nhosts && f.rail >= 0 &&
               f.rail < nrails) {
      schedule(SimEvent::Kind::kCut, at_ps, static_cast<std::uint32_t>(f.host * nrails + f.rail));
    } else {
      throw Error(
          fmt::format("simulated fabric: failure of rank {}, host {}, rail {}; there are "
                      "{} ranks, {} hosts, {} rails",
                      f.rank, f.host, f.rail, nranks, nhosts, nrails));
    }
  }
}

SimFabric::SimFabric(SimFabricOptions options)
    : state_(std::make_unique<State>(std::move(options))) {}
SimFabric::~SimFabric() = default;

std::unique_ptr<Transport> SimFabric::endpoint(Rank rank) {
  if (!state_->valid(rank)) {
    throw Error(fmt::format("simulated fabric: no rank {} of {}", rank, state_->nranks));
  }
  if (state_->attached[rank]) {
    throw Error(fmt::format("simulated fabric: rank {} has an endpoint already", rank));
  }
  state_->attached[rank] = true;
  return std::make_unique<SimEndpoint>(*state_, rank);
}

int SimFabric::nranks() const { return state_->nranks; }
std::int64_t SimFabric::now_ps() const { return state_->now_ps; }
double SimFabric::now_us() const { return static_cast<double>(state_->now_ps) / kPsPerUs; }
bool SimFabric::advance() { return state_->advance(); }
bool SimFabric::alive(Rank rank) const { return !state_->dead.at(rank); }
std::uint64_t SimFabric::activity() const { return state_->activity; }
std::size_t SimFabric::views_lent() const { return state_->lent; }
std::uint64_t SimFabric::trace() const { return state_->trace; }

std::span<const Rank> SimFabric::runnable() {
  State& s = *state_;
  s.handed_out.clear();
  std::size_t kept = 0;
  for (const Rank r : s.ready) {
    if (!s.dead[r] && (s.woken[r] || !s.inbox[r].empty())) {
      s.woken[r] = false;
      s.handed_out.push_back(r);
      s.ready[kept++] = r;
    } else {
      s.in_ready[r] = false;
    }
  }
  s.ready.resize(kept);
  return s.handed_out;
}

double SimFabric::work(Rank rank, double us) {
  State& s = *state_;
  SimPort& core = s.cpu[s.cpu_of_rank[rank]];
  core.serve(s.now_ps, s.core_ps(rank, to_ps(us, "work")), 0);
  return static_cast<double>(core.free_ps) / kPsPerUs;
}

void SimFabric::wake(Rank rank, double at_us) {
  if (!state_->valid(rank)) {
    throw Error(fmt::format("simulated fabric: no rank {} of {}", rank, state_->nranks));
  }
  const std::int64_t at_ps = std::max(state_->now_ps, to_ps(at_us, "time of wake()"));
  state_->schedule(SimEvent::Kind::kWake, at_ps, static_cast<std::uint32_t>(rank));
}

void SimFabric::kill(Rank rank) {
  if (!state_->valid(rank)) {
    throw Error(fmt::format("simulated fabric: no rank {} of {}", rank, state_->nranks));
  }
  state_->kill(rank);
}

void SimFabric::cut(int host, int rail) {
  if (host < 0 || host >= state_->nhosts || rail < 0 || rail >= state_->nrails) {
    throw Error(fmt::format("simulated fabric: no host {}, rail {} of {} hosts, {} rails", host,
                            rail, state_->nhosts, state_->nrails));
  }
  state_->cut(static_cast<std::uint32_t>(host * state_->nrails + rail));
}

void SimFabric::mend(int host, int rail) {
  state_->mend(static_cast<std::uint32_t>(host * state_->nrails + rail));
}
bool SimFabric::link_up(int host, int rail) const {
  return !state_->down.at(static_cast<std::size_t>(host * state_->nrails + rail));
}
void SimFabric::disconnect(Rank rank, Rank peer) { state_->disconnect(rank, peer); }

SimStatistics SimFabric::statistics() const {
  const State& s = *state_;
  SimStatistics out{.messages = s.nmessages,
                    .events = s.events_done,
                    .host_bytes = s.host_bytes,
                    .rail_bytes = s.rail_bytes,
                    .cross_rail_bytes = s.cross_rail_bytes,
                    .uplink_bytes = s.uplink_bytes,
                    .host_tx_bytes = s.host_tx_bytes,
                    .ports = {},
                    .watched = s.watched};
  if (!s.opt.same_as.empty()) {
    const std::set<Rank> stand(s.opt.same_as.begin(), s.opt.same_as.end());
    const std::uint64_t times = s.opt.same_as.size() / stand.size();
    for (auto* count : {&out.messages, &out.host_bytes, &out.cross_rail_bytes, &out.uplink_bytes})
      *count *= times;
    const auto all = [](const std::vector<std::uint64_t>& of) {
      return std::accumulate(of.begin(), of.end(), std::uint64_t{0});
    };
    if (s.opt.host_of_rank[static_cast<std::size_t>(*stand.rbegin())] == 0) {  // one host
      out.host_tx_bytes.assign(out.host_tx_bytes.size(), all(out.host_tx_bytes));
      for (std::uint64_t& bytes : out.rail_bytes) bytes *= times;
    } else {  // one rail
      out.rail_bytes.assign(out.rail_bytes.size(), all(out.rail_bytes));
      for (std::uint64_t& bytes : out.host_tx_bytes) bytes *= times;
    }
  }
  const auto add = [&](const SimPort& port, std::string name) {
    if (port.bytes == 0 && port.busy_ps == 0) return;
    out.ports.push_back(
        {std::move(name), port.bytes, static_cast<double>(port.busy_ps) / kPsPerUs});
  };
  for (Rank r = 0; r < s.nranks; ++r) {
    add(s.local_tx[r], fmt::format("rank {} local tx", r));
    add(s.local_rx[r], fmt::format("rank {} local rx", r));
  }
  for (int i = 0; i < s.nhosts * s.nrails; ++i) {
    add(s.nic_tx[i], fmt::format("host {} rail {} tx", i / s.nrails, i % s.nrails));
    add(s.nic_rx[i], fmt::format("host {} rail {} rx", i / s.nrails, i % s.nrails));
  }
  for (std::size_t i = 0; i < s.leaf_up.size(); ++i) {
    const std::size_t leaf = i / s.nrails, rail = i % s.nrails;
    add(s.leaf_up[i], fmt::format("leaf {} rail {} up", leaf, rail));
    add(s.leaf_down[i], fmt::format("leaf {} rail {} down", leaf, rail));
  }
  for (const auto& [hosts, port] : s.spines) {
    add(port, fmt::format("spine host {} -> host {}", hosts >> 32, hosts & 0xffffffff));
  }
  for (std::size_t c = 0; c < s.cpu.size(); ++c) add(s.cpu[c], fmt::format("cpu {}", c));
  std::ranges::sort(out.ports, [](const SimPortUse& a, const SimPortUse& b) {
    return a.busy_us != b.busy_us ? a.busy_us > b.busy_us : a.name < b.name;
  });
  return out;
}

}  // namespace weft
