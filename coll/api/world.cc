// World: measurements at its start, shrink(), and its fixed communicators. This file is independent
// of where the job came from, and of the parts of a Core.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "coll/runtime/calibrate.h"
#include "coll/runtime/core.h"
#include "coll/runtime/internals.h"
#include "coll/runtime/selector.h"

namespace weft {
namespace {

// The first failure reported to this rank, even if of a communicator without this rank.
Status first_failure(const Job& job) {
  const auto failures = job.failures(0);
  return failures.empty() ? job.failure() : failures.front().status;
}

std::shared_ptr<GroupState> fixed_group(const std::shared_ptr<Core>& core, std::uint32_t id,
                                        std::vector<Rank> ranks) {
  const CoreLock lock(core->mutex);
  return {core, &core->groups.fixed(id, std::move(ranks))};
}

}  // namespace

World::World(std::unique_ptr<Job> job, Place place, const WorldOptions& options)
    : core_(Core::make(std::move(job), std::move(place), options)) {
  measure_costs();
  core_->finish_setup();
  if (options.slow_ports == kMeasurePorts) measure_slow_ports();
}

void World::measure_costs() {
  Communicator all = world();
  if (size() < 2) return;
  try {
    calibrate(*core_, *all.state_).check();
    core_->share_profile();
  } catch (const Error& e) {
    gather_status(e).check();
    throw;
  }
}

// Guards a call of a World that another thread may end with shrink(): keeps the core alive until
// the call returns. It takes no lock, since a signal handler may call abort().
class World::Asking {
 public:
  explicit Asking(const World& world) : core_(*world.core_) { ++core_.asking; }
  ~Asking() { --core_.asking; }
  Asking(const Asking&) = delete;
  Asking& operator=(const Asking&) = delete;
  Core* in_time() const { return core_.ending ? nullptr : &core_; }
  Core& core() const {
    if (Core* const core = in_time()) return *core;
    throw Error("this World was replaced: use the one that shrink() made");
  }

 private:
  Core& core_;
};

World::~World() { core_->close(); }

Status World::gather_status(const Error& thrown) {
  const Asking asking(*this);
  Core& core = asking.core();
  const Status why = core.failures.gather_status(thrown);
  core.job->report(why);
  return why.ok() ? why : core.job->failure();
}

Rank World::rank() const { return Asking(*this).core().job->rank(); }
int World::size() const { return Asking(*this).core().job->size(); }
Status World::failure() const {
  const Asking asking(*this);
  return first_failure(*asking.core().job);
}
const Topology& World::topology() const { return *Asking(*this).core().topology; }
Metrics World::metrics() const { return Asking(*this).core().telemetry->metrics(); }
bool World::failover() const { return Asking(*this).core().links.rails != nullptr; }
std::vector<CounterSnapshot> World::rail_counters() const {
  return Asking(*this).core().telemetry->ports().read();
}
Job& World::job() {
  const Asking asking(*this);
  Core& core = asking.core();
  return core.answering_job ? *core.answering_job : *core.job;
}
void World::abort(const char* reason) noexcept {
  const Asking asking(*this);
  if (Core* const core = asking.in_time()) core->job->abort(reason);
}

std::unique_ptr<World> World::shrink() {
  Core& old = Asking(*this).core();
  const Place place = old.topology->place(old.job->rank());
  {
    CoreLock lock(old.mutex);
    old.failures.hear();
    if (const Status why = first_failure(*old.job); !why.ok()) old.failures.end_groups(why, {});
    old.run_callbacks(lock);
  }
  std::unique_ptr<Job> job = old.job->shrink();
  std::vector<Rank> former = job->former_ranks();
  // shrink() has ended all tasks of the old World: no thread uses these transports any more.
  old.close();
  std::shared_ptr<Core> next;
  while (!next) try {
      next = Core::make(std::move(job), place, options_for(old, former), old.shrunk + 1);
    } catch (const Error&) {
      if (!job || !job->failed()) throw;
      job = job->shrink();  // another rank has failed meanwhile
      std::vector<Rank> left;
      for (const Rank r : job->former_ranks()) left.push_back(former[static_cast<std::size_t>(r)]);
      former = std::move(left);
    }
  next->machine = old.machine;
  next->costs = old.costs;
  next->profile = old.profile;  // also if it is off
  next->finish_setup();
  std::unique_ptr<World> world(new World(std::move(next)));
  world->former_ = std::move(former);
  return world;
}

Communicator World::world() {
  std::vector<Rank> ranks(static_cast<std::size_t>(size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return Communicator(fixed_group(core_, kWorldGroup, std::move(ranks)));
}

Communicator World::host() {
  const Topology& t = topology();
  return Communicator(fixed_group(core_, kHostGroup, t.ranks_of(t.host(rank()))));
}

Communicator World::rail() {
  const Topology& t = topology();
  std::vector<Rank> ranks;
  for (int h = 0; h < t.nhosts(); ++h) {
    const auto& members = t.ranks_of(h);
    const auto local = static_cast<std::size_t>(t.local(rank()));
    if (local < members.size()) ranks.push_back(members[local]);
  }
  std::sort(ranks.begin(), ranks.end());
  return Communicator(fixed_group(core_, kRailGroup, std::move(ranks)));
}

void Internals::name_communicator(Communicator& comm, std::string_view name) {
  const GroupState& group = comm.state();
  Core& core = *group.core;
  const CoreLock lock(core.mutex);
  core.telemetry->name_communicator(group, std::string(name));
}

void Internals::while_waiting(World& world, void (*between)()) {
  world.core_->waiting.while_waiting = between;
}

void Internals::set_timeout(World& world, std::chrono::milliseconds timeout) {
  const CoreLock lock(world.core_->mutex);
  world.core_->options.timeout = timeout;
}

void Internals::start_progress_thread(World& world) {
  if (!world.core_->waiting.served()) world.core_->waiting.start_serving();
}

}  // namespace weft
