// Drives the runs of all ranks over the simulated fabric until they are done.
// Knows no real transport and no clock.
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

class Simulation {
 public:
  Simulation(Collective collective, std::span<const Schedule> schedules, std::size_t count,
             DType type, const SimFabricOptions& options, const Tuning& tuning,
             const SimBuffers& buffers, const OneHost* one_host = nullptr)
      : collective_(collective), options_(options), fabric_(options), ranks_(schedules.size()) {
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
      m.part->call.id_high = 1;
      m.endpoint = endpoints_[r].get();
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
      throw Error(fmt::format("simulate: {}: {} views were not given back", name(collective_),
                              fabric_.views_lent()));
    SimResult result;
    result.time_us = std::max(fabric_.now_us(), worked_us_);
    result.traffic = fabric_.statistics();
    result.rounds = ranks_[0].part->run.rounds();
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
    double starts_us = 0;
    bool started = false;
  };

  void start(Member& m) {
    m.started = true;
    m.part->run.start(m.part->plan, m.part->call, m.part->slicing, m.links);
    unfinished_ -= m.part->run.done();
  }

  void progress(Rank r) {
    if (static_cast<std::size_t>(r) >= ranks_.size()) return;  // a rank of the first host stands in
    Member& m = ranks_[static_cast<std::size_t>(r)];
    if (!failure_.ok()) return;
    if (!m.started) {
      if (fabric_.now_us() >= m.starts_us) start(m);
      return;
    }
    if (m.part->run.done()) return;
    std::array<Completion, 64> batch;
    while (const std::size_t n = m.endpoint->poll(batch))
      for (std::size_t i = 0; i < n; ++i) {
        // The fabric knows what a reader of a view will reduce; this was received first.
        if (options_.reduce_us_per_byte > 0 && batch[i].code == Code::kOk)
          worked_us_ =
              std::max(worked_us_,
                       fabric_.work(r, options_.reduce_us_per_byte *
                                           static_cast<double>(m.part->run.to_reduce(batch[i]))));
        m.part->run.complete(batch[i]);
      }
    if (m.part->run.failure() != Code::kOk) return fail(r);
    m.part->run.progress();
    unfinished_ -= m.part->run.done();
  }

  void fail(Rank r) {
    const Run& run = ranks_[static_cast<std::size_t>(r)].part->run;
    const Rank peer = run.failed_peer();
    const Status cause = ranks_[static_cast<std::size_t>(r)].endpoint->cause(peer);
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
  SimFabric fabric_;
  std::vector<std::unique_ptr<Transport>> endpoints_;  // go before the fabric does
  std::vector<Member> ranks_;
  std::size_t unfinished_ = 0;
  double worked_us_ = 0;  // when the last reduction is done
  Status failure_;
};

// Makes a rank's call one of blocks of different sizes, SimBuffers::counts. The call points into
// what is returned.
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

// What a rank runs; see prepare_parts().
Plan plan_on_fabric(Collective collective, const Schedule& schedule, std::span<const Rank> world,
                    const SimFabricOptions& options, const Call& call, Rank root, bool in_place,
                    bool packed) {
  // The two links of every rank. Both are the rank's one endpoint: the fabric knows by itself which
  // ranks share a host; the plan learns here where arrivals are lent.
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
  const bool packed = by_blocks(collective) && std::ranges::any_of(schedules, [&](const auto& s) {
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
  const Outline outline =
      outline_of(schedules[static_cast<std::size_t>(outlined_rank(collective, shape))], collective,
                 shape, by_blocks(collective) && !packed);
  for (std::size_t r = 0; r < schedules.size(); ++r) {
    SimPart& part = *parts[r];
    part.plan = plan_on_fabric(collective, schedules[r], world, options, part.call, buffers.root,
                               buffers.in_place, packed);
    part.plan.outline = outline;
    part.slicing = slicing_for(tuning, part.plan, part.call.total_bytes, model);
  }
  return parts;
}

CostModel model_of(const SimFabricOptions& o) {
  const auto GBps = [](double us_per_byte) { return us_per_byte > 0 ? 1e-3 / us_per_byte : 0; };
  double speed = 0;
  for (const double scale : o.rail_scale) speed += scale;
  const double scale = o.rail_scale.empty() ? 1 : speed / static_cast<double>(o.rail_scale.size());
  Machine machine;
  machine.host = {o.host.latency_us, o.host.gbps};
  machine.rail = {o.rail.latency_us, o.rail.gbps * scale};
  machine.spine = {o.spine.latency_us, o.spine.gbps};
  machine.payload_share = o.payload_share;
  machine.core_us = (o.post_us + o.complete_us) / 2;
  machine.reduce_GBps = GBps(o.reduce_us_per_byte);
  machine.copy_GBps = GBps(o.copy_us_per_byte);
  machine.rail_copies = o.rail_copies;
  CostModel m = costs_of(machine);
  m.eager_bytes = static_cast<double>(o.eager_below);
  m.fan_in_penalty = 0;
  if (!o.rail_of_rank.empty()) m.rails_per_host = 1 + std::ranges::max(o.rail_of_rank);
  return m;
}

SimFabricOptions fabric_of(const Shape& shape, int rails) {
  SimFabricOptions options;
  const auto n = static_cast<std::size_t>(shape.nranks);
  options.host_of_rank.assign(n, 0);
  options.rail_of_rank.assign(n, 0);
  const auto place = [&](Rank r, std::size_t host, std::size_t local) {
    options.host_of_rank[static_cast<std::size_t>(r)] = static_cast<int>(host);
    options.rail_of_rank[static_cast<std::size_t>(r)] =
        static_cast<int>(rails > 0 ? local % static_cast<std::size_t>(rails) : local);
  };
  for (std::size_t h = 0; h < shape.hosts.size(); ++h)
    for (std::size_t l = 0; l < shape.hosts[h].size(); ++l) place(shape.hosts[h][l], h, l);
  if (shape.hosts.empty())
    for (Rank r = 0; r < shape.nranks; ++r) place(r, 0, static_cast<std::size_t>(r));
  return options;
}

void set_machine(SimFabricOptions& o, const Machine& m) {
  const auto us_per_byte = [](double GBps) { return GBps > 0 ? 1e-3 / GBps : 0; };
  o.host = {m.host.us, m.host.gbps};
  o.rail = {m.rail.us, m.rail.gbps};
  o.spine = {m.spine.us, m.spine_gbps()};
  o.payload_share = m.payload_share;
  // The fabric has one cost of a message, whether it leaves its host or not.
  const bool rails =
      std::ranges::adjacent_find(o.host_of_rank, std::not_equal_to<>()) != o.host_of_rank.end();
  o.post_us = o.complete_us = m.core_us + (rails ? m.rail_core_us : 0);
  o.reduce_us_per_byte = us_per_byte(m.reduce_GBps);
  o.copy_us_per_byte = us_per_byte(m.copy_GBps);
  o.rail_copies = m.rail_copies;
}

SimFabricOptions fabric_of(const Shape& shape, int rails, const Machine& machine) {
  SimFabricOptions options = fabric_of(shape, rails);
  set_machine(options, machine);
  options.carry_data = false;
  return options;
}

std::optional<OneHost> one_host_of(const Algorithm& algorithm, const Shape& shape,
                                   std::size_t count, DType type, const SimFabricOptions& o) {
  if (shape.hosts.size() < 2 || OneHost::same_as(shape).empty() || rooted(algorithm.collective) ||
      o.carry_data || !o.failures.empty() || !o.slowdowns.empty() || !o.slow_ports.empty() ||
      !o.host_scale.empty() || o.skew_us > 0 || o.delay_us_max > 0 || o.lose_message > 0 ||
      !o.cpu_of_rank.empty())
    return {};
  const auto n = static_cast<std::size_t>(shape.nranks);
  const auto first = schedules_of(algorithm, shape, shape.hosts[0]);
  // Chunks of different lengths are others on each host.
  std::size_t elements = count;
  if (by_blocks(algorithm.collective)) elements *= n;
  if (algorithm.collective == Collective::kAllToAll) elements *= n;
  if (elements % static_cast<std::size_t>(first[0].nchunks) != 0) return {};
  const std::vector<Rank> world = everyone(shape.nranks);
  const auto parts = prepare_parts(algorithm.collective, first, world, count, type, o, {}, {});
  std::vector<const Plan*> plans;
  for (const auto& part : parts) plans.push_back(&part->plan);
  OneHost one_host(plans);
  std::vector<Rank> ranks = one_host.peers();
  for (const auto& host : shape.hosts) ranks.push_back(host[0]);
  ranks.insert(ranks.end(), shape.hosts.back().begin(), shape.hosts.back().end());
  std::ranges::sort(ranks);
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  for (const Rank r : ranks)
    if (r >= static_cast<Rank>(plans.size()) &&
        !one_host.add(plan_on_fabric(
            algorithm.collective, schedules_of(algorithm, shape, std::span(&r, 1))[0], world, o,
            parts[0]->call, 0, false, plans[0]->layout == Plan::Layout::kPacked)))
      return {};
  if (!one_host.finish()) return {};
  return one_host;
}

SimResult simulate_one_host(const Algorithm& algorithm, const Shape& shape, std::size_t count,
                            DType type, const SimFabricOptions& options, const OneHost& one_host) {
  SimFabricOptions same = options;
  same.same_as = OneHost::same_as(shape);
  const auto schedules = schedules_of(algorithm, shape, shape.hosts.at(0));
  return Simulation(algorithm.collective, schedules, count, type, same, {}, {}, &one_host).run();
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
