// Drives the runs of all ranks on the simulated fabric until they complete. Uses neither a real
// transport nor a clock.
#include "coll/sim/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <type_traits>
#include <unordered_map>
#include <utility>

#include "coll/engine/engine.h"
#include "coll/engine/plan.h"
#include "coll/runtime/arguments.h"
#include "coll/sim/one_host.h"
#include "topo/base/status.h"

namespace weft {
namespace {

std::vector<Rank> everyone(int nranks) {
  std::vector<Rank> all(static_cast<std::size_t>(nranks));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

std::vector<Schedule> schedules_of(const Algorithm& algorithm, Shape shape,
                                   std::span<const Rank> ranks) {
  std::vector<Schedule> all;
  all.reserve(ranks.size());
  for (const Rank r : ranks) {
    shape.rank = r;
    all.push_back(algorithm.build(shape));
  }
  return all;
}

// The count that gives `few` rounds per lane of the same size; the full count if there are few
// rounds.
std::size_t count_of_few(const SimPart& part, int few) {
  const std::size_t count = part.call.count;
  auto chunks = static_cast<std::size_t>(part.plan.nchunks);
  const auto ranks = static_cast<std::size_t>(part.plan.schedule.nranks);
  if (part.plan.collective == Collective::kAllToAll) chunks /= ranks;
  if (part.plan.layout != Plan::Layout::kMessage) chunks = std::max<std::size_t>(1, chunks / ranks);
  const std::size_t segment = part.slicing.slice_bytes / size_of(part.call.type) * chunks;
  const std::size_t rounds = (count + segment - 1) / segment;
  const auto lanes = static_cast<std::size_t>(part.slicing.rounds_in_flight);
  if (rounds < kManyRounds * lanes) return count;
  return count / rounds * static_cast<std::size_t>(few) * lanes;
}

// `few`: the number of rounds that each lane simulates; 0: every round of the message.
class Simulation {
 public:
  Simulation(Collective collective, std::span<const Schedule> schedules, std::size_t count,
             DType type, const SimFabricOptions& options, const Tuning& tuning,
             const SimBuffers& buffers, const OneHost* one_host = nullptr, int few = 0)
      : collective_(collective),
        options_(options),
        one_host_(one_host),
        fabric_(options),
        ranks_(schedules.size()) {
    const std::size_t n = schedules.size();
    if (options.host_of_rank.size() != n && one_host == nullptr)
      throw Error(fmt::format("simulate: {} schedules for a fabric of {} ranks", n,
                              options.host_of_rank.size()));
    auto parts = prepare_parts(collective, schedules,
                               everyone(static_cast<int>(options.host_of_rank.size())), count, type,
                               options, tuning, buffers);
    if (one_host)
      endpoints_ = one_host->links(fabric_);
    else
      for (std::size_t r = 0; r < n; ++r)
        endpoints_.push_back(fabric_.endpoint(static_cast<Rank>(r)));
    for (std::size_t r = 0; r < n; ++r) {
      Member& m = ranks_[r];
      m.part = std::move(parts[r]);
      all_count_ = m.part->call.count;
      if (few > 0) m.part->call.count = count_of_few(*m.part, few);
      count_ = m.part->call.count;
      m.part->call.id_high = 1;
      m.endpoint = endpoints_[r].get();
      m.rank = one_host ? one_host->ranks()[r] : static_cast<Rank>(r);
      m.links = {m.endpoint, m.endpoint};
    }
  }

  SimResult run() {
    unfinished_ = ranks_.size();
    std::mt19937_64 random(options_.seed);
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      ranks_[r].starts_us = options_.skew_us * static_cast<double>(random() >> 11) * 0x1p-53;
      if (ranks_[r].starts_us > 0)
        fabric_.wake(static_cast<Rank>(r), ranks_[r].starts_us);
      else
        start(ranks_[r]);
    }
    const bool moved = drive(
        fabric_, [&](Rank r) { progress(r); }, [&] { return unfinished_ == 0 || !failure_.ok(); });
    if (!failure_.ok()) throw Error(failure_.to_string());
    if (!moved) throw Error(why_stuck());
    if (fabric_.views_lent() != 0)
      throw Error(fmt::format("simulate: {}: {} views were not released", name(collective_),
                              fabric_.views_lent()));
    SimResult result;
    result.time_us = std::max(fabric_.now_us(), worked_us_);
    result.traffic = fabric_.statistics();
    result.rounds = result.simulated_rounds = ranks_[0].part->run.rounds();
    if (count_ != all_count_) result.rounds = (all_count_ * result.rounds + count_ / 2) / count_;
    for (const Member& m : ranks_)
      result.scratch_bytes = std::max(result.scratch_bytes, m.part->run.scratch_bytes());
    result.trace_hash = fabric_.trace();
    if (!result.traffic.ports.empty() && result.time_us > 0) {
      result.limiting = result.traffic.ports[0].name;
      result.busy_share = result.traffic.ports[0].busy_us / result.time_us;
    }
    return result;
  }

 private:
  struct Member {
    std::unique_ptr<SimPart> part;
    Transport* endpoint = nullptr;
    std::array<Transport*, 2> links;
    Rank rank = 0;  // on the fabric
    double starts_us = 0;
    bool started = false;
    std::uint64_t copied = 0;  // bytes whose copies the core has been charged for
  };

  std::size_t place(Rank r) const {
    return one_host_ ? one_host_->place(r) : static_cast<std::size_t>(r);
  }

  void start(Member& m) {
    m.started = true;
    m.part->run.start(m.part->plan, m.part->call, m.part->slicing, m.links);
    charge_copies(m);
    unfinished_ -= m.part->run.done();
  }

  // Occupies the core of the member with what its packed rounds have copied since the last call.
  // The copies of short messages stay in cache, and take no time.
  void charge_copies(Member& m) {
    const std::uint64_t copied = m.part->run.copied_bytes();
    const bool is_short = may_pack(m.part->call.total_bytes, m.part->plan.schedule.nranks);
    if (options_.copy_us_per_byte > 0 && copied > m.copied && !is_short)
      worked_us_ = std::max(
          worked_us_,
          fabric_.work(m.rank, options_.copy_us_per_byte * static_cast<double>(copied - m.copied)));
    m.copied = copied;
  }

  void progress(Rank r) {
    if (one_host_ && one_host_->as(r) != r) return;  // another rank represents rank r
    Member& m = ranks_[place(r)];
    if (!failure_.ok()) return;
    if (!m.started) {
      if (fabric_.now_us() >= m.starts_us) start(m);
      return;
    }
    if (m.part->run.done()) return;
    std::array<Completion, 64> batch;
    while (const std::size_t n = m.endpoint->poll(batch))
      for (std::size_t i = 0; i < n; ++i) {
        // Reductions from scratch; the fabric itself charges reductions of views.
        if (options_.reduce_us_per_byte > 0 && batch[i].code == Code::kOk)
          worked_us_ =
              std::max(worked_us_,
                       fabric_.work(r, options_.reduce_us_per_byte *
                                           static_cast<double>(m.part->run.to_reduce(batch[i]))));
        m.part->run.complete(batch[i]);
      }
    if (m.part->run.failure() != Code::kOk) return fail(r);
    m.part->run.progress();
    charge_copies(m);
    unfinished_ -= m.part->run.done();
  }

  void fail(Rank r) {
    const Run& run = ranks_[place(r)].part->run;
    const Rank peer = run.failed_peer();
    const Status cause = ranks_[place(r)].endpoint->cause(peer);
    failure_ = Status(
        run.failure(),
        fmt::format("rank {} in a simulated {}, at {} us: {}", r, name(collective_),
                    fabric_.now_us(), cause.ok() ? fmt::format("rank {}", peer) : cause.message()),
        peer);
  }

  std::string why_stuck() const {
    for (std::size_t r = 0; r < ranks_.size(); ++r)
      if (!fabric_.alive(static_cast<Rank>(r)) && !ranks_[r].part->run.done())
        return fmt::format("simulated {}: rank {} died before it was done", name(collective_), r);
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      const Run& run = ranks_[r].part->run;
      if (run.done() || run.waiting_for() == kNoRank) continue;
      return fmt::format(
          "simulated {}: deadlock at {} us: rank {} waits for rank {}; {} of {} ranks are not done",
          name(collective_), fabric_.now_us(), r, run.waiting_for(), unfinished_, ranks_.size());
    }
    return fmt::format(
        "simulated {}: deadlock at {} us: {} of {} ranks are not done, and none has posted "
        "what it waits for",
        name(collective_), fabric_.now_us(), unfinished_, ranks_.size());
  }

  const Collective collective_;
  const SimFabricOptions options_;
  const OneHost* const one_host_;
  SimFabric fabric_;
  std::vector<std::unique_ptr<Transport>> endpoints_;  // destroyed before the fabric
  std::vector<Member> ranks_;
  std::size_t unfinished_ = 0;
  std::size_t count_ = 0, all_count_ = 0;
  double worked_us_ = 0;  // time at which the last reduction ends
  Status failure_;
};

// Changes a rank's call to one with blocks of different sizes, SimBuffers::counts. The call points
// into the result.
std::vector<std::size_t> give_blocks(Call& call, Collective collective,
                                     const std::vector<std::vector<std::size_t>>& counts, Rank r) {
  std::vector<std::size_t> sent, received;
  const auto me = static_cast<std::size_t>(r);
  for (std::size_t s = 0; s < counts.size(); ++s) {
    if (collective != Collective::kAllToAll) {
      sent.push_back(counts[s].at(0));
      continue;
    }
    sent.push_back(counts[me].at(s));
    received.push_back(counts[s].at(me));
  }
  call.is_vector = true;
  call.counts = sent;
  call.recv_counts = received;
  return own_blocks(call, counts.size());
}

// The plan of a rank; see prepare_parts().
Plan plan_on_fabric(Collective collective, const Schedule& schedule, std::span<const Rank> world,
                    const SimFabricOptions& options, const Call& call, Rank root, bool in_place,
                    bool packed) {
  // The two links of every rank. Both refer to the rank's only endpoint: the fabric knows which
  // ranks share a host, and the plan determines from the link which messages arrive as views.
  constexpr int kHostLink = 0, kRailLink = 1;
  const Link links[] = {{.views = options.views}, {.views = false}};
  const auto host = [&](Rank peer) {
    return options.host_of_rank[static_cast<std::size_t>(world[static_cast<std::size_t>(peer)])];
  };
  const auto link_of = [&](Rank peer, int) {
    return host(schedule.rank) == host(peer) ? kHostLink : kRailLink;
  };
  bool network = false;
  for (Rank peer = 1; peer < schedule.nranks; ++peer)
    network = network || host(peer) != host(peer - 1);
  const PlanRequest request{.collective = collective,
                            .network = network,
                            .in_place = in_place,
                            .root = root,
                            .premultiplied = reduces(collective) && call.op == RedOp::kPreMulSum,
                            .world = world,
                            .links = links,
                            .link_of = link_of};
  return compile(schedule, request, packed);
}

}  // namespace

std::vector<std::unique_ptr<SimPart>> prepare_parts(Collective collective,
                                                    std::span<const Schedule> schedules,
                                                    std::span<const Rank> world, std::size_t count,
                                                    DType type, const SimFabricOptions& options,
                                                    const Tuning& tuning,
                                                    const SimBuffers& buffers) {
  const std::size_t n = world.size();
  if (options.carry_data && (buffers.in.size() != n || buffers.out.size() != n))
    throw Error(
        fmt::format("simulate: the fabric carries data, and there are buffers for {} and "
                    "{} of {} ranks; give all, or set carry_data to false",
                    buffers.in.size(), buffers.out.size(), n));
  std::vector<std::unique_ptr<SimPart>> parts;
  std::size_t total = 0;
  for (std::size_t r = 0; r < schedules.size(); ++r) {
    parts.push_back(std::make_unique<SimPart>());
    Call& call = parts[r]->call;
    call.count = collective == Collective::kBarrier ? 0 : count;
    call.type = type;
    call.op = buffers.op.op;
    call.factor = buffers.op.factor;
    if (!buffers.counts.empty())
      parts[r]->blocks = give_blocks(call, collective, buffers.counts, static_cast<Rank>(r));
    call.total_bytes = total_bytes(collective, call, n);
    call.streaming = call.total_bytes >= tuning.streaming_bytes;
    total = std::max(total, call.total_bytes);
    if (!options.carry_data) continue;
    call.in = buffers.in[r];
    call.out = buffers.out[r];
  }
  bool packed = by_blocks(collective) && std::ranges::any_of(schedules, [&](const auto& s) {
                  return wants_packed(total, s);
                });
  Shape shape;
  shape.nranks = static_cast<int>(n);
  shape.root = buffers.root;
  std::map<int, std::vector<Rank>> hosts;
  for (std::size_t r = 0; r < n; ++r)
    hosts[options.host_of_rank[static_cast<std::size_t>(world[r])]].push_back(static_cast<Rank>(r));
  for (auto& [host, ranks] : hosts) shape.hosts.push_back(std::move(ranks));
  const CostModel model = model_of(options);
  if (!schedules.empty() && !schedules[0].weight.empty())
    for (const SimSlowPort& p : options.slow_ports)
      shape.slow_ports.push_back({p.host, p.rail, p.factor});
  const auto outline_in = [&](bool split) {
    return outline_of(collective, shape, split,
                      [&](Rank r) { return schedules[static_cast<std::size_t>(r)]; });
  };
  Outline outline = outline_in(by_blocks(collective) && !packed);
  if (by_blocks(collective) && !packed && shape.hosts.size() > 1 && buffers.counts.empty()) {
    const auto chunks = static_cast<std::size_t>(schedules[0].nchunks);
    const Outline in_rounds = outline_in(false);
    packed = packs_rounds(tuning, collective, in_rounds, outline,
                          static_cast<double>(total) / static_cast<double>(chunks), chunks, model);
    if (packed) outline = in_rounds;
  }
  for (std::size_t r = 0; r < schedules.size(); ++r) {
    SimPart& part = *parts[r];
    part.plan = plan_on_fabric(collective, schedules[r], world, options, part.call, buffers.root,
                               buffers.in_place, packed);
    part.plan.outline = outline;
    part.slicing = slicing_for(tuning, part.plan, part.call.total_bytes, model);
  }
  return parts;
}

namespace {

// Whether each rank of a host has its own rail, and all rails are alike.
bool rails_alike(const Shape& shape, const SimFabricOptions& o) {
  const std::size_t per_host = shape.hosts[0].size();
  for (std::size_t r = 0; r < o.rail_of_rank.size(); ++r)
    if (o.rail_of_rank[r] != static_cast<int>(r % per_host)) return false;
  return o.rail_of_rank.size() == o.host_of_rank.size() && shape.rail_weight.empty() &&
         std::ranges::adjacent_find(o.rail_scale, std::not_equal_to<>()) == o.rail_scale.end();
}

std::optional<OneHost> one_of(Alike alike, const Algorithm& algorithm, const Shape& shape,
                              std::size_t count, DType type, const SimFabricOptions& o) {
  const auto per_host = static_cast<int>(shape.hosts[0].size());
  const std::vector<Rank> world = everyone(shape.nranks);
  std::vector<Rank> stand;
  if (alike == Alike::kHosts)
    stand = shape.hosts[0];
  else
    for (const auto& host : shape.hosts) stand.push_back(host[0]);
  const auto parts = prepare_parts(algorithm.collective, schedules_of(algorithm, shape, stand),
                                   world, count, type, o, {}, {});
  std::vector<const Plan*> plans;
  for (const auto& part : parts) plans.push_back(&part->plan);
  OneHost one(alike, per_host, plans);
  std::vector<Rank> ranks = one.peers();
  if (alike == Alike::kRails)  // messages that change rails would share the spine with others
    for (const auto& part : parts)
      for (const Step& s : part->plan.schedule.steps)
        if (s.peer / per_host != part->plan.schedule.rank / per_host && s.peer % per_host != 0)
          return {};
  for (const auto& host : shape.hosts) ranks.push_back(host[0]);
  ranks.insert(ranks.end(), shape.hosts.back().begin(), shape.hosts.back().end());
  std::ranges::sort(ranks);
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  for (const Rank r : ranks)
    if (one.as(r) != r &&
        !one.add(plan_on_fabric(
            algorithm.collective, schedules_of(algorithm, shape, std::span(&r, 1))[0], world, o,
            parts[0]->call, 0, false, plans[0]->layout == Plan::Layout::kPacked)))
      return {};
  if (!one.finish()) return {};
  return one;
}

}  // namespace

std::optional<OneHost> one_host_of(const Algorithm& algorithm, const Shape& any, std::size_t count,
                                   DType type, const SimFabricOptions& o) {
  if (any.hosts.size() < 2 || !OneHost::applies(any) || rooted(algorithm.collective) ||
      o.carry_data || !o.failures.empty() || !o.slowdowns.empty() || !o.slow_ports.empty() ||
      !any.slow_ports.empty() || o.skew_us > 0 || o.delay_us_max > 0 || o.lose_message > 0 ||
      !o.cpu_of_rank.empty())
    return {};
  Shape shape = any;
  shape.rank = 0;
  const auto n = static_cast<std::size_t>(shape.nranks);
  const auto chunks = static_cast<std::size_t>(algorithm.build(shape).nchunks);
  std::size_t elements = count;
  if (by_blocks(algorithm.collective)) elements *= n;
  if (algorithm.collective == Collective::kAllToAll) elements *= n;
  const bool equal = elements % chunks == 0;
  // Hosts differ if chunks differ in length.
  if (equal && o.host_scale.empty() && o.leaf_of_host.empty())  // hosts of a leaf are not alike
    if (auto one = one_of(Alike::kHosts, algorithm, shape, count, type, o)) return one;
  if ((equal || elements / chunks >= kManyElements) && shape.hosts[0].size() > 1 &&
      rails_alike(shape, o))
    return one_of(Alike::kRails, algorithm, shape, count, type, o);
  return {};
}

namespace {

SimResult simulate_some(const Algorithm& algorithm, const Shape& shape, std::size_t count,
                        DType type, const SimFabricOptions& options, const OneHost* one, int few) {
  SimFabricOptions same = options;
  for (Rank r = 0; one && r < shape.nranks; ++r) same.same_as.push_back(one->as(r));
  SimBuffers none;
  none.root = shape.root;
  return Simulation(algorithm.collective,
                    schedules_of(algorithm, shape, one ? one->ranks() : everyone(shape.nranks)),
                    count, type, same, {}, none, one, few)
      .run();
}

}  // namespace

SimResult simulate_one_host(const Algorithm& algorithm, const Shape& shape, std::size_t count,
                            DType type, const SimFabricOptions& options, const OneHost& one_host) {
  return simulate_some(algorithm, shape, count, type, options, &one_host, 0);
}

SimResult simulate_few_rounds(const Algorithm& algorithm, const Shape& shape, std::size_t count,
                              DType type, const SimFabricOptions& options,
                              const OneHost* one_host) {
  const bool steady = options.failures.empty() && options.slowdowns.empty() &&
                      options.lose_message == 0 && options.watch == kNoRank && !options.carry_data;
  SimResult r =
      simulate_some(algorithm, shape, count, type, options, one_host, steady ? kFewRounds : 0);
  if (r.rounds == r.simulated_rounds) return r;
  const SimResult fewer = std::exchange(
      r, simulate_some(algorithm, shape, count, type, options, one_host, kFewRounds + 1));
  const double times = static_cast<double>(r.rounds - r.simulated_rounds) /
                       static_cast<double>(r.simulated_rounds - fewer.simulated_rounds);
  const auto go_on = [&](auto& value, auto before) {
    using T = std::remove_reference_t<decltype(value)>;
    value = static_cast<T>(static_cast<double>(value) +
                           times * (static_cast<double>(value) - static_cast<double>(before)));
  };
  SimStatistics& t = r.traffic;
  const SimStatistics& before = fewer.traffic;
  go_on(r.time_us, fewer.time_us);
  go_on(t.messages, before.messages);
  go_on(t.host_bytes, before.host_bytes);
  go_on(t.cross_rail_bytes, before.cross_rail_bytes);
  go_on(t.uplink_bytes, before.uplink_bytes);
  for (std::size_t i = 0; i < t.rail_bytes.size(); ++i)
    go_on(t.rail_bytes[i], before.rail_bytes[i]);
  for (std::size_t h = 0; h < t.host_tx_bytes.size(); ++h)
    go_on(t.host_tx_bytes[h], before.host_tx_bytes[h]);
  std::unordered_map<std::string, const SimPortUse*> ports;
  for (const SimPortUse& p : before.ports) ports[p.name] = &p;
  for (SimPortUse& p : t.ports)
    if (const auto at = ports.find(p.name); at != ports.end()) {
      go_on(p.bytes, at->second->bytes);
      go_on(p.busy_us, at->second->busy_us);
    }
  std::ranges::stable_sort(t.ports, std::greater<>(), &SimPortUse::busy_us);
  if (!t.ports.empty()) {
    r.limiting = t.ports[0].name;
    r.busy_share = t.ports[0].busy_us / r.time_us;
  }
  return r;
}

SimResult simulate(const Algorithm& algorithm, const Shape& shape, std::size_t count, DType type,
                   const SimFabricOptions& options, const Tuning& tuning,
                   const SimBuffers& buffers) {
  if (!algorithm.applies(shape))
    throw Error(fmt::format("simulate: {} {} does not apply to {} ranks on {} hosts",
                            name(algorithm.collective), algorithm.name, shape.nranks,
                            std::max<std::size_t>(1, shape.hosts.size())));
  SimBuffers with_root = buffers;
  with_root.root = shape.root;
  return simulate(algorithm.collective, schedules_of(algorithm, shape, everyone(shape.nranks)),
                  count, type, options, tuning, with_root);
}

SimResult simulate(Collective collective, std::span<const Schedule> schedules, std::size_t count,
                   DType type, const SimFabricOptions& options, const Tuning& tuning,
                   const SimBuffers& buffers) {
  return Simulation(collective, schedules, count, type, options, tuning, buffers).run();
}

}  // namespace weft
