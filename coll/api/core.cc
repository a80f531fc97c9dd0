// Sets a Core up (topology and transports) and closes it. This file is independent of where the job
// came from, and of how a transport works.
#include "coll/runtime/core.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <thread>

#include "coll/gpu/begin.h"
#include "coll/runtime/calibrate.h"
#include "coll/runtime/selector.h"
#include "coll/tasks/agreement.h"
#include "coll/tasks/schedule_task.h"
#include "topo/base/log.h"
#include "topo/base/yield.h"
#include "transport/factory/transport_factory.h"
#include "transport/fault.h"
#include "transport/integrity/checked.h"
#include "transport/shm/reach.h"
#include "transport/shm/shm.h"

namespace weft {
namespace {

bool all_ports_are_up(const Topology& topology) {
  const auto used = static_cast<std::size_t>(topology.nrails());
  for (Rank r = 0; r < topology.nranks(); ++r) {
    const auto& rails = topology.place(r).rails;
    if (!std::all_of(rails.begin(), rails.begin() + std::min(used, rails.size()),
                     [](const Nic& nic) { return nic.up; }))
      return false;
  }
  return true;
}

// The time that a failure takes to reach all live ranks.
constexpr std::chrono::milliseconds kHeard{30};

// Practically infinite, but multiples of it still fit in nanoseconds.
constexpr std::chrono::milliseconds kLongest = std::chrono::hours(24 * 365);

}  // namespace

Core::Core(std::unique_ptr<Job>&& job_in, const Place& place, const WorldOptions& opts,
           int shrunk_before, bool around)
    : job(std::move(job_in)), options(opts), around_down_ports(around), shrunk(shrunk_before) {
  options.timeout = std::min(options.timeout, kLongest);
  options.slow = std::min(options.slow, kLongest);
  try {
    set_up(place);
  } catch (...) {
    job_in = std::move(job);  // the job may continue without the ranks that caused this
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
  std::vector<Place> places;
  std::vector<std::string> offers;  // shm::memory_offer() of each place
  for (const std::string& text : job->all_gather(encode(place) + '\n' + shm::memory_offer())) {
    const std::size_t line = text.find('\n');
    places.push_back(decode_place(text.substr(0, line)));
    offers.push_back(line == std::string::npos ? "" : text.substr(line + 1));
  }
  topology = std::make_unique<Topology>(std::move(places));
  links.place(job->rank(), *topology);
  const std::vector<Rank> memory_of = meet_machine(offers);
  if (options.slow_ports != kMeasurePorts)
    weft::set_slow_ports(*this, "WEFT_SLOW_PORTS", options.slow_ports);
  check_libraries(*topology, asked);

  set_up_links(memory_of);
}

void Core::set_up_links(const std::vector<Rank>& memory_of) {
  const auto& asked = options.transport;
  const int n = job->size();
  const Rank me = job->rank();
  // Chooses the link to each rank from data that all ranks have, so that all choose the same.
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
  links.shm_peer.assign(static_cast<std::size_t>(n), 0);
  std::vector<Rank> members;
  for (Rank r = 0; r < n; ++r) {
    links.shm_peer[static_cast<std::size_t>(r)] = share(me, r);
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
  if (!no_shm) links.add_shm(check(damage(make_shm_transport(*job, *topology, members))));
  if (any_far || no_shm) {
    const auto& nics = topology->place(me).rails;
    std::vector<std::unique_ptr<Transport>> inner;
    for (int r = 0; r < topology->nrails(); ++r) {
      const Nic& nic = nics[static_cast<std::size_t>(r)];
      const bool replaceable = options.failover && topology->nrails() > 1;
      inner.push_back(damage(make_rail_transport(far, *job, *topology, nic, replaceable), r));
    }
    for (auto& rail : inner) rail = decorate_rail(far, std::move(rail));
    links.set_up_rails(
        *job, inner, [this](const RailEvent& e) { telemetry->rail_event(e); },
        [this](int rail) { return telemetry->ports().trouble(rail); });
    if (links.rails) answering_job = make_answering_job(*this);
    for (std::size_t r = 0; r < inner.size(); ++r)
      links.add_rail(check(std::move(inner[r]), static_cast<int>(r)));
  }
  for (const Transport* link : links.all)
    groups.id_bits = std::min(groups.id_bits, link->caps().tag_bits - kIdShift);
  groups.id_bits -= kLaneBits;
  if (!no_shm) links.use(static_cast<std::uint8_t>(links.shm_link));

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
  static auto* const remains = new std::vector<Core*>;  // reachable for leak checkers
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
    const auto missed = std::ranges::count(tasks.all(), false, &Task::patient);
    if (missed > 0)  // others wait for them
      failures.fail(
          {Code::kAborted,
           fmt::format("rank {} destroyed its World with {} tasks under way", job->rank(), missed),
           job->rank()},
          nullptr, lock);
    if (const Status left = failures.all_over() ? Status() : unexpected_at_end(*this); !left.ok()) {
      log().error("weft: rank {}: {}", job->rank(), left.to_string());
      failures.fail(left, nullptr, lock);
    }
    // After a mismatch, live ranks may still be connecting. UCX 1.13 ends the process if a
    // connection closes while both sides set it up: let the failure reach all ranks first.
    if (links.first_rail_link >= 0) close_at = failures.disagreed_at() + kHeard;
    failures.hear();
    // Peers may wait for this rank in communicators that have not failed.
    if (!failures.all_over() && !failures.first_end().ok())
      give_up = {Code::kAborted,
                 fmt::format("rank {} ended its World after a failure: {}", job->rank(),
                             failures.first_end().message()),
                 job->rank()};
    together = !failures.all_over() && give_up.ok() && !job->failed();
    // This rank's last messages may still be in flight.
    if (!failures.all_over() && !together) close_at = std::chrono::steady_clock::now() + kHeard;
    ending = true;
    failures.end_groups({Code::kAborted, "the World of this Communicator was destroyed"}, {});
    lock.without([&] {  // these threads may need the mutex
      while (asking != 0) yield_core();
    });
    for (const auto& [id, g] : groups.all)
      if (g) g->board.reset();
    leaving = std::move(job);
    run_callbacks(lock);
  }
  leaving->report(give_up, {Scope::Ends::kRank, leaving->rank()});
  std::this_thread::sleep_until(close_at);
  // After end_groups(): callbacks on these threads may have waited for the tasks it ended.
  waiting.stop_serving();
  waiting.stop_calling();
  {
    const CoreLock lock(mutex);
    if (learnt_times.size() > 0) save_profile(profile_file, learnt_times);
  }
  telemetry->leaving();
  // All ranks leave together: a rank's last messages may still be in its memory or sockets.
  try {
    if (together) {
      waiting.settle_rails(*leaving, [&] {
        telemetry->align_clocks();
        leaving->all_gather("");
      });
      // Without it, a polling rank would see its rails fail when the first rank leaves.
      if (links.rails) leaving->all_gather("");
    }
  } catch (const std::exception& e) {
    log().info("weft: rank {}: leaving alone: {}", leaving->rank(), e.what());
  }
  leaving->leave();
  telemetry->left();
  const CoreLock lock(mutex);
  links.clear();
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

void Core::finish_setup() {
  {
    const CoreLock lock(mutex);
    usable = true;
  }
  if (options.progress_thread) waiting.start_serving();
}

void Core::away() noexcept {
  if (!mutex.try_lock()) return;
  const CoreLock lock(mutex, std::adopt_lock);
  if (!usable || ending) return;
  links.before_pause();
}

}  // namespace weft
