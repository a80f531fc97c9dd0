#include "support/jobs/simulate_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "coll/runtime/task.h"
#include "transport/fault.h"
#include "transport/integrity/checked.h"

namespace weft {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

std::size_t at(Rank r) { return static_cast<std::size_t>(r); }

// Ranks of a communicator by host, as in Shape.
Shape shape_on(const SimFabricOptions& fabric, const std::vector<Rank>& ranks) {
  Shape shape;
  shape.nranks = static_cast<int>(ranks.size());
  std::map<int, std::vector<Rank>> hosts;
  for (std::size_t r = 0; r < ranks.size(); ++r)
    hosts[fabric.host_of_rank[at(ranks[r])]].push_back(static_cast<Rank>(r));
  for (auto& [host, members] : hosts) shape.hosts.push_back(std::move(members));
  return shape;
}

}  // namespace

struct SimJob::State {
  struct Communicator {
    std::vector<Rank> ranks;
    Shape shape;
    std::uint64_t sequence = 0;
  };
  struct Member {
    std::unique_ptr<Transport> endpoint;
    std::array<Transport*, 2> links;
    std::vector<std::unique_ptr<SimPart>> parts;  // by call; null if not a member
    SimProgram program;
    std::size_t next = 0;                // in program order
    std::vector<std::size_t> under_way;  // pending calls
    double moved_us = 0;
    bool ended = false;
    SimOutcome outcome;
  };

  explicit State(SimJobOptions o) : options(std::move(o)), fabric(options.fabric) {
    const auto n = options.fabric.host_of_rank.size();
    std::vector<Rank> world(n);
    for (std::size_t r = 0; r < n; ++r) world[r] = static_cast<Rank>(r);
    communicators.push_back({world, shape_on(options.fabric, world)});
    members.resize(n);
    for (const Rank r : world) {
      members[at(r)].endpoint = fabric.endpoint(r);
      if (!options.fault.empty())
        members[at(r)].endpoint = make_checked_transport(
            make_faulty_transport(std::move(members[at(r)].endpoint), fault_from(options.fault), r),
            r, static_cast<int>(n), [this] { ++retries; });
      members[at(r)].links = {members[at(r)].endpoint.get(), members[at(r)].endpoint.get()};
    }
    for (SimPause& p : options.pauses) {
      if (!p.until_us) continue;
      // Rounds to whole picoseconds, like the fabric, so that the pause is over at the wake.
      p.until_us = static_cast<double>(std::llround(*p.until_us * 1e6)) / 1e6;
      fabric.wake(p.rank, *p.until_us);
    }
    for (const SimFailure& f : options.fabric.failures)
      if (f.rank != kNoRank) deaths.push_back({f.at_us, f.rank});
    std::ranges::sort(deaths);
  }

  // ---- the program of a rank

  void prepare(std::span<const SimCall> calls, std::span<const SimProgram> programs) {
    for (Member& m : members) {
      m.parts.clear();
      m.parts.resize(calls.size());
      m.program = {};
      m.next = 0;
      m.under_way.clear();
      m.ended = false;
      m.outcome = {};
      m.outcome.done.assign(calls.size(), false);
    }
    for (std::size_t i = 0; i < calls.size(); ++i) {
      const SimCall& c = calls[i];
      Communicator& group = communicators.at(static_cast<std::size_t>(c.communicator));
      const std::size_t n = group.ranks.size();
      Shape shape = group.shape;
      shape.root = c.root;
      shape.deterministic = c.deterministic;
      if (!c.algorithm->applies(shape))
        throw Error(
            fmt::format("simulated job: {} {} does not apply to communicator {} of {} ranks",
                        name(c.algorithm->collective), c.algorithm->name, c.communicator, n));
      const std::uint64_t sequence = group.sequence++;
      const auto id = next_id++;
      std::vector<Schedule> schedules = c.schedules;
      if (schedules.empty())
        for (shape.rank = 0; shape.rank < shape.nranks; ++shape.rank)
          schedules.push_back(c.algorithm->build(shape));
      auto parts = prepare_parts(c.algorithm->collective, schedules, group.ranks, c.count, c.type,
                                 options.fabric, options.tuning, c);
      for (std::size_t r = 0; r < n; ++r) {
        parts[r]->call.tag = static_cast<std::uint64_t>(c.communicator) << kIdShift |
                             (sequence & ((1u << kSequenceBits) - 1))
                                 << (kRoundBits + kOrdinalBits);
        parts[r]->call.id_high = id;
        Member& m = members[at(group.ranks[r])];
        m.parts[i] = std::move(parts[r]);
        m.program.order.push_back(i);
      }
    }
    first_id = next_id - static_cast<std::uint32_t>(calls.size());
    for (std::size_t r = 0; r < programs.size(); ++r) members[r].program = programs[r];
  }

  double now() const { return fabric.now_us(); }

  bool paused(Rank r) const {
    return std::ranges::any_of(options.pauses, [&](const SimPause& p) {
      return p.rank == r && p.from_us <= now() && (!p.until_us || now() < *p.until_us);
    });
  }
  bool stopped(Rank r) const {  // forever
    return std::ranges::any_of(options.pauses, [&](const SimPause& p) {
      return p.rank == r && p.from_us <= now() && !p.until_us;
    });
  }
  bool over(Rank r) const { return members[at(r)].ended || !fabric.alive(r) || stopped(r); }

  void start_more(Member& m) {
    while (m.next < m.program.order.size() &&
           m.under_way.size() < static_cast<std::size_t>(m.program.window)) {
      const std::size_t i = m.program.order[m.next++];
      SimPart& part = *m.parts[i];
      part.run.start(part.plan, part.call, part.slicing, m.links);
      m.under_way.push_back(i);
      collect(m);
    }
  }

  // Removes completed calls.
  void collect(Member& m) {
    std::erase_if(m.under_way, [&](std::size_t i) {
      if (!m.parts[i]->run.done()) return false;
      m.outcome.done[i] = true;
      return true;
    });
  }

  void progress(Rank r) {
    Member& m = members[at(r)];
    if (m.ended || paused(r)) return;
    std::array<Completion, 64> batch;
    while (const std::size_t n = m.endpoint->poll(batch)) {
      m.moved_us = now();
      for (std::size_t k = 0; k < n; ++k) {
        const auto id = static_cast<std::uint32_t>(batch[k].id >> 32);
        m.parts.at(id - first_id)->run.complete(batch[k]);
      }
    }
    for (const std::size_t i : m.under_way) {
      Run& run = m.parts[i]->run;
      if (run.failure() == Code::kOk) {
        run.progress();
        continue;
      }
      const Status cause = m.endpoint->cause(run.failed_peer());
      return suspect(cause.ok() ? Status(run.failure(), fmt::format("rank {}", run.failed_peer()),
                                         run.failed_peer())
                                : cause);
    }
    const std::size_t before = m.next;
    collect(m);
    start_more(m);
    if (m.next != before) m.moved_us = now();
    if (m.under_way.empty() && m.next == m.program.order.size()) return end(r, {});
    watch_deadline(r);
  }

  void watch_deadline(Rank r) {
    const Member& m = members[at(r)];
    if (now() < m.moved_us + options.deadline_us) return;
    for (const SimPause& p : options.pauses)
      if (p.from_us + options.deadline_us / 2 <= now() && paused(p.rank))
        return suspect({Code::kPeerFailed, fmt::format("rank {} is silent", p.rank), p.rank});
    const Run& run = m.parts[m.under_way.front()]->run;
    suspect({Code::kTimeout,
             fmt::format("rank {} waits for rank {} since {} us", r, run.waiting_for(), m.moved_us),
             run.waiting_for()});
  }

  // ---- the control plane

  void suspect(const Status& status) {
    if (!suspicion.ok()) return;
    suspicion = status;
    suspected_us = now();
    decide_soon(suspected_us);
  }
  void decide_soon(double since_us) {
    if (since_us + options.verdict_us >= decide_us) return;
    decide_us = since_us + options.verdict_us;
    for (Rank r = 0; r < fabric.nranks(); ++r) fabric.wake(r, decide_us);
  }
  // All unfinished ranks end with the verdict: a known death, otherwise the first error of a rank.
  void decide() {
    Status verdict = suspicion;
    for (const auto& [at_us, rank] : deaths)
      if (!fabric.alive(rank) && at_us + options.fabric.detect_us <= now()) {
        verdict = {Code::kPeerFailed, fmt::format("rank {} died at {} us", rank, at_us), rank};
        break;
      }
    decide_us = kNever;
    for (Rank r = 0; r < fabric.nranks(); ++r)
      if (!over(r)) end(r, verdict);
  }

  void end(Rank r, const Status& status) {
    Member& m = members[at(r)];
    m.ended = true;
    m.outcome.status = status;
    m.outcome.ended_us = now();
    for (const std::size_t i : m.under_way) m.endpoint->cancel(m.parts[i]->call.id_high);
    m.under_way.clear();
  }

  std::vector<SimOutcome> run(std::span<const SimCall> calls,
                              std::span<const SimProgram> programs) {
    prepare(calls, programs);
    suspicion = {};
    decide_us = kNever;
    for (const auto& [at_us, rank] : deaths)
      if (fabric.alive(rank)) decide_soon(std::max(now(), at_us + options.fabric.detect_us));
    for (Rank r = 0; r < fabric.nranks(); ++r) {
      members[at(r)].moved_us = now();
      fabric.wake(r, now());
    }
    const auto all_over = [&] {
      for (Rank r = 0; r < fabric.nranks(); ++r)
        if (!over(r)) return false;
      return true;
    };
    double next_look_us = now() + options.deadline_us;
    fabric.wake(0, next_look_us);
    const bool moved = drive(
        fabric,
        [&](Rank r) {
          if (now() >= decide_us) decide();
          progress(r);
        },
        [&] {
          // Checks all deadlines: a rank without events has one, too.
          if (now() >= next_look_us) {
            next_look_us = now() + options.deadline_us / 4;
            for (Rank r = 0; r < fabric.nranks(); ++r) fabric.wake(r, next_look_us);
          }
          return all_over();
        });
    if (!moved) throw Error(fmt::format("simulated job: nothing moves at {} us", now()));
    std::vector<SimOutcome> outcomes;
    for (Rank r = 0; r < fabric.nranks(); ++r) {
      outcomes.push_back(members[at(r)].outcome);
      outcomes.back().alive = fabric.alive(r) && !stopped(r);
    }
    return outcomes;
  }

  SimJobOptions options;
  SimFabric fabric;
  std::vector<Communicator> communicators;
  std::vector<Member> members;  // destroyed before the fabric
  std::vector<std::pair<double, Rank>> deaths;
  std::uint32_t next_id = 1, first_id = 1;
  std::uint64_t retries = 0;
  Status suspicion;
  double suspected_us = 0, decide_us = kNever;
};

SimJob::SimJob(SimJobOptions options) : state_(std::make_unique<State>(std::move(options))) {}
SimJob::~SimJob() = default;

int SimJob::communicator(std::vector<Rank> ranks) {
  for (const Rank r : ranks)
    if (r < 0 || r >= state_->fabric.nranks())
      throw Error(fmt::format("simulated job: no rank {} of {}", r, state_->fabric.nranks()));
  Shape shape = shape_on(state_->options.fabric, ranks);
  state_->communicators.push_back({std::move(ranks), std::move(shape)});
  return static_cast<int>(state_->communicators.size()) - 1;
}

const Shape& SimJob::shape(int communicator) const {
  return state_->communicators.at(static_cast<std::size_t>(communicator)).shape;
}

std::vector<SimOutcome> SimJob::run(std::span<const SimCall> calls,
                                    std::span<const SimProgram> programs) {
  return state_->run(calls, programs);
}

void SimJob::settle() {
  while (state_->fabric.advance()) continue;
}

const SimFabric& SimJob::fabric() const { return state_->fabric; }
std::uint64_t SimJob::retries() const { return state_->retries; }

}  // namespace weft
