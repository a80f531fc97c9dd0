// The life of a World: what it measures at its start, shrink(), and its fixed communicators.
// This file does not know where the job came from, nor what a Core consists of.
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

// The first failure that this rank has heard of, also one of a communicator that others have.
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

Core::Core(std::unique_ptr<Job>&& job_in, const Place& place, const WorldOptions& opts,
           int shrunk_before, bool around)
    : job(std::move(job_in)), options(opts), around_down_ports(around), shrunk(shrunk_before) {
  options.timeout = std::min(options.timeout, kLongest);
  options.slow = std::min(options.slow, kLongest);
  try {
    set_up(place);
  } catch (...) {
    job_in = std::move(job);  // the job may go on without the ranks that made this fail
    throw;
  }
}

void Core::set_up(const Place& place) {
  const auto& asked = options.transport;
  if (asked != "auto" && asked != "shm" && asked != "tcp" && asked != "ucx" && asked != "verbs")
    throw Error(fmt::format("transport '{}' is not one of auto, shm, tcp, ucx, verbs", asked));
  bool known = options.algorithm == "auto";
  for (const Algorithm& a : algorithms()) known = known || a.name == options.algorithm;
  if (!known) {
    std::set<std::string_view> names;
    for (const Algorithm& a : algorithms()) names.insert(a.name);
    throw Error(fmt::format("no collective has an algorithm '{}'; there are auto, {}",
                            options.algorithm, fmt::join(names, ", ")));
  }
  if (options.cross_rail != "auto" && options.cross_rail != "never" &&
      options.cross_rail != "allow")
    throw Error(fmt::format("cross_rail '{}' is not one of auto, never, allow (WEFT_CROSS_RAIL)",
                            options.cross_rail));
  const int n = job->size();
  const Rank me = job->rank();
  std::vector<Place> places;
  std::vector<std::string> offers;  // of memory, behind each place
  for (const std::string& text : job->all_gather(encode(place) + '\n' + shm::memory_offer())) {
    const std::size_t line = text.find('\n');
    places.push_back(decode_place(text.substr(0, line)));
    offers.push_back(line == std::string::npos ? "" : text.substr(line + 1));
  }
  topology = std::make_unique<Topology>(std::move(places));
  const std::vector<Rank> memory_of = meet_machine(offers);
  if (options.slow_ports != kMeasurePorts) set_slow_ports("WEFT_SLOW_PORTS", options.slow_ports);
  check_libraries(*topology, asked);

  // Who is reached how: decided from what all ranks have heard, so that all decide alike.
  const auto machine = [&](Rank r) -> const std::string& { return topology->place(r).machine; };
  bool one_machine = true;
  for (Rank r = 0; r < n; ++r) one_machine = one_machine && machine(r) == machine(0);
  if (options.transport == "shm" && !one_machine)
    throw Error(
        fmt::format("transport shm needs all ranks on one machine, but rank 0 is on '{}' "
                    "and others are elsewhere; use --transport auto",
                    machine(0)));
  const std::string far = asked != "auto" ? asked
                          : around_down_ports && !all_ports_are_up(*topology)
                              ? "tcp"
                              : transport_between_hosts(*topology);
  const bool no_shm = asked != "auto" && asked != "shm";
  const auto share = [&](Rank a, Rank b) {
    return !no_shm &&
           memory_of[static_cast<std::size_t>(a)] == memory_of[static_cast<std::size_t>(b)] &&
           (asked == "shm" || topology->same_host(a, b));
  };
  shm_peer.assign(static_cast<std::size_t>(n), 0);
  std::vector<Rank> members;
  for (Rank r = 0; r < n; ++r) {
    shm_peer[static_cast<std::size_t>(r)] = share(me, r);
    if (share(me, r)) members.push_back(r);
  }
  bool any_far = false;
  for (Rank a = 0; a < n; ++a)
    for (Rank b = 0; b < a && !any_far; ++b) any_far = !share(a, b);

  if (const std::string why = why_no_rdma(*topology);
      asked == "auto" && any_far && me == 0 && !why.empty())
    log().error("weft: {}", why);

  const auto damage = [&](std::unique_ptr<Transport> t, int rail = -1) {
    if (!faults().empty()) t = make_faulty_transport(std::move(t), fault_from(faults()), me, rail);
    return t;
  };
  const auto check = [&](std::unique_ptr<Transport> t, int rail = -1) {
    if (options.integrity)
      t = make_checked_transport(
          std::move(t), me, n, [this] { telemetry->retried(); }, rail);
    return t;
  };
  if (!no_shm) {
    shm_link = static_cast<int>(links.size());
    transports.push_back(check(damage(make_shm_transport(*job, *topology, members))));
    links.push_back(transports.back().get());
  }
  if (any_far || no_shm) {
    first_rail_link = static_cast<int>(links.size());
    const auto& nics = topology->place(me).rails;
    std::vector<std::unique_ptr<Transport>> inner;
    for (int r = 0; r < topology->nrails(); ++r) {
      const Nic& nic = nics[static_cast<std::size_t>(r)];
      const bool replaceable = options.failover && topology->nrails() > 1;
      inner.push_back(damage(make_rail_transport(far, *job, *topology, nic, replaceable), r));
    }
    for (auto& rail : inner) rail = decorate_rail(far, std::move(rail));
    set_up_rails(inner);
    for (std::size_t r = 0; r < inner.size(); ++r) {
      transports.push_back(check(std::move(inner[r]), static_cast<int>(r)));
      links.push_back(transports.back().get());
    }
  }
  for (const Transport* link : links) link_kinds.push_back({link->caps().views});
  for (const Transport* link : links) id_bits = std::min(id_bits, link->caps().tag_bits - kIdShift);
  id_bits -= kLaneBits;
  if (shm_link >= 0) use_link(static_cast<std::size_t>(shm_link));

  telemetry = std::make_unique<Telemetry>(*this, [this] { away(); });

  log().debug("weft: rank {} of {}: {} hosts, {} rails, {} ranks share memory{}", me, n,
              topology->nhosts(), topology->nrails(), members.size(),
              oversubscribed ? ", more ranks than cores" : "");
}

Core::~Core() { close(); }

void Core::end(Core* core) noexcept {
  if (!core->forked()) {
    delete core;
    return;
  }
  static auto* const remains = new std::vector<Core*>;  // so that nobody takes it for a leak
  remains->push_back(core);
}

void Core::close() noexcept {
  if (forked()) return;
  stop_devices(*this);
  std::unique_ptr<Job> leaving;
  bool together = false;
  Status give_up;
  std::chrono::steady_clock::time_point close_at;
  {
    CoreLock lock(mutex);
    if (!job || ending) return;
    const auto missed = std::ranges::count(tasks, false, &Task::patient);
    if (missed > 0)  // others wait for them
      fail({Code::kAborted,
            fmt::format("rank {} destroyed its World with {} tasks under way", job->rank(), missed),
            job->rank()},
           nullptr, lock);
    if (const Status left = broken ? Status() : leftover_of_all(*this); !left.ok()) {
      log().error("weft: rank {}: {}", job->rank(), left.to_string());
      fail(left, nullptr, lock);
    }
    // Ranks that disagree are alive, and may be connecting at this moment. UCX 1.13 ends the
    // process where a connection closes while it is made from both sides: let them hear of the
    // failure first.
    if (first_rail_link >= 0) close_at = disagreed_at + kHeard;
    hear();
    // Others may wait for this rank in communicators that have not failed.
    if (!broken && !first_end.ok())
      give_up = {Code::kAborted,
                 fmt::format("rank {} ended its World after a failure: {}", job->rank(),
                             first_end.message()),
                 job->rank()};
    together = !broken && give_up.ok() && !job->failed();
    // What this rank sent last may still be on its way.
    if (!broken && !together) close_at = std::chrono::steady_clock::now() + kHeard;
    ending = true;
    end_groups({Code::kAborted, "the World of this Communicator was destroyed"}, {});
    lock.without([&] {  // who asks may want the mutex
      while (asking != 0) yield_core();
    });
    for (const auto& [id, g] : groups)
      if (g) g->board.reset();
    leaving = std::move(job);
    run_callbacks(lock);
  }
  leaving->report(give_up, {Scope::Ends::kRank, leaving->rank()});
  std::this_thread::sleep_until(close_at);
  // Only now: a callback that one of them is in may have waited for what has ended here.
  stop_serving();
  stop_calling();
  {
    const CoreLock lock(mutex);
    if (learnt_times.size() > 0) save_profile(profile_file, learnt_times);
  }
  telemetry->leaving();
  // Leave together: what this rank sent last may still lie in its own memory or sockets.
  try {
    if (together) {
      settle_rails(*leaving, [&] {
        telemetry->align_clocks();
        leaving->all_gather("");
      });
      // Who still looked at its rails would see those of the first that is gone break.
      if (rails) leaving->all_gather("");
    }
  } catch (const std::exception& e) {
    log().info("weft: rank {}: leaving alone: {}", leaving->rank(), e.what());
  }
  leaving->leave();
  telemetry->left();
  const CoreLock lock(mutex);
  links.clear();
  shm_link = -1;
  rails.reset();  // first: what is around its faces has posted memory of its own
  transports.clear();
}

void Core::share_profile() {
  const int n = job->size();
  std::string cores = "unknown processor";
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);)
    if (line.starts_with("model name") && line.find(": ") != std::string::npos) {
      cores = line.substr(line.find(": ") + 2);
      break;
    }
  std::string rails;
  for (const Nic& nic : topology->place(0).rails)
    rails += (nic.rate_gbps > 0 ? fmt::format(" {:g} Gb/s", nic.rate_gbps) : " of unknown rate") +
             (nic.rdma ? " rdma" : "");
  const double declared = declared_rail_gbps(options.rail_gbps);
  const std::string what = fmt::format(
      "{} ranks, {} hosts, rails{}{}{}; transport {}{}; {:.2g} ranks per core; {}", n,
      topology->nhosts(), rails, declared > 0 ? fmt::format(", declared {:g} Gb/s", declared) : "",
      options.spread ? "" : ", not spread", options.transport,
      options.integrity ? " with integrity" : "", oversubscription, cores);
  std::string text;
  if (job->rank() == 0) {
    profile_file = profile_path(what);
    text = load_profile(profile_file, what).text();
  }
  text = job->all_gather(text)[0];
  profile = Profile::parse(text);
  ++selection;
  const CoreLock lock(mutex);
  learnt_times.topology = profile.topology;
  log().debug("weft: profile: {}", profile.off() ? "off" : fmt::format("{} times", profile.size()));
}

World::World(std::unique_ptr<Job> job, Place place, const WorldOptions& options)
    : core_(Core::make(std::move(job), std::move(place), options)) {
  measure_costs();
  core_->set_out();
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

// A call of a World that another thread may be ending with shrink(): the core stays alive until the
// call returns. It takes no lock, as a signal handler may call abort().
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
  // Whoever went on has ended what was under way: nobody uses these transports any more.
  old.close();
  std::shared_ptr<Core> next;
  while (!next) try {
      next = Core::make(std::move(job), place, options_for(old, former), old.shrunk + 1);
    } catch (const Error&) {
      if (!job || !job->failed()) throw;
      job = job->shrink();  // one more has gone meanwhile
      std::vector<Rank> left;
      for (const Rank r : job->former_ranks()) left.push_back(former[static_cast<std::size_t>(r)]);
      former = std::move(left);
    }
  next->machine = old.machine;
  next->costs = old.costs;
  next->profile = old.profile;  // and whether it is off
  next->set_out();
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
