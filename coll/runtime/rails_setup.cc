// Sets up rails that stand in for each other (transport/rails/rails.h): which rails a message uses,
// which algorithms keep to their rails, and which rank logs that a rail is lost.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "coll/runtime/core.h"
#include "coll/schedule/rail_contract.h"
#include "topo/base/log.h"
#include "topo/base/thread.h"
#include "transport/rails/datagram_channel_letters.h"
#include "transport/rails/datagram_channel_udp.h"

namespace weft {

using Clock = std::chrono::steady_clock;

namespace {

// The rank of the host that tells of the rail: the first one whose own rail it is, else the first.
Rank speaker_of_rail(const Topology& topology, int host, int rail) {
  const std::vector<Rank>& ranks = topology.ranks_of(host);
  const auto own = std::ranges::find(ranks, rail, [&](Rank r) { return topology.rail(r); });
  return own != ranks.end() ? *own : ranks.front();
}

constexpr int kPolls = 64;  // until rails look at their lanes several times

// Peers get answers while it gathers.
class AnsweringJob final : public Job {
 public:
  explicit AnsweringJob(Core& core) : core_(core) {}
  Rank rank() const override { return job().rank(); }
  int size() const override { return job().size(); }
  std::vector<std::string> all_gather(std::string_view mine) override {
    std::vector<std::string> all;
    core_.answer_while([&] { all = job().all_gather(mine); });
    return all;
  }
  std::vector<std::string> all_to_all(const std::vector<std::string>& mine) override {
    std::vector<std::string> all;
    core_.answer_while([&] { all = job().all_to_all(mine); });
    return all;
  }
  std::vector<std::string> gather(std::string_view mine) override {
    std::vector<std::string> all;
    core_.answer_while([&] { all = job().gather(mine); });
    return all;
  }
  std::string scatter(const std::vector<std::string>& parts) override {
    std::string mine;
    core_.answer_while([&] { mine = job().scatter(parts); });
    return mine;
  }
  std::string key(std::string_view label) const override { return job().key(label); }
  std::unique_ptr<Mailbox> open_mailbox() override { return job().open_mailbox(); }
  bool failed() const noexcept override { return job().failed(); }
  Status failure() const override { return job().failure(); }
  std::size_t heard() const noexcept override { return job().heard(); }
  std::vector<JobFailure> failures(std::size_t first) const override {
    return job().failures(first);
  }
  void report(const Status& failure, const Scope& scope) noexcept override {
    job().report(failure, scope);
  }
  std::vector<Rank> silent(std::chrono::milliseconds age) const override {
    return job().silent(age);
  }
  std::vector<std::string> inquire(std::chrono::milliseconds limit) override {
    return job().inquire(limit);
  }
  void set_witness(Witness* witness) override { job().set_witness(witness); }
  void leave() noexcept override { job().leave(); }
  void abort(const char* reason) noexcept override { job().abort(reason); }
  std::unique_ptr<Job> shrink() override { return job().shrink(); }
  std::vector<Rank> former_ranks() const override { return job().former_ranks(); }

 private:
  Job& job() const { return *core_.job; }
  Core& core_;
};

}  // namespace

// Puts the faces of Rails in the place of the transports of the rails, on all ranks or on none.
void Core::set_up_rails(std::vector<std::unique_ptr<Transport>>& inner) {
  if (inner.size() < 2 || !options.failover) return;
  for (const auto& rail : inner)
    if (!rail->recovery()) return;  // the same on all ranks: they build alike
  std::string why;
  auto paths = make_udp_paths(*job, *topology, why);
  if (!paths && (paths = make_letter_paths(*job, *topology)))
    log().info("weft: rails agree by way of rank 0: {}", why);
  if (!paths) {
    log().warn("weft: rails cannot stand in for each other: {}", why);
    return;
  }
  RailsOptions o;
  // Also while the World ends, when the job is somebody else's.
  const Rank me = job->rank();
  o.stripes = [this, me](Rank peer, int home) { return stripes(me, peer, home); };
  const int n = static_cast<int>(inner.size());
  rails = std::make_unique<Rails>(std::move(inner), std::move(paths), job->rank(), job->size(), o);
  const auto counted = [this](int rail) {
    const std::string line = telemetry->ports().trouble(rail);
    return line.empty() ? line : fmt::format(" ({})", line);
  };
  rails->on_event([this, me, counted, lanes_out = std::vector<int>(static_cast<std::size_t>(n))](
                      const RailEvent& e) mutable {
    telemetry->rail_event(e);
    if (speaker_of_rail(*topology, topology->host(me), e.rail) != me) return;
    // Every rank of the host loses its own lanes for one and the same reason: one of the ranks
    // tells, of its first lane that goes and of its last one that comes back.
    int& out = lanes_out[static_cast<std::size_t>(e.rail)];
    const bool tell = e.kind == RailEvent::Kind::kOut    ? out++ == 0
                      : e.kind == RailEvent::Kind::kBack ? --out == 0
                                                         : false;
    if (!tell) return;
    const auto device = [&](Rank r) {
      return topology->place(r).rails[static_cast<std::size_t>(e.rail)].name;
    };
    const auto host = [&](Rank r) { return topology->host_name(topology->host(r)); };
    if (e.kind == RailEvent::Kind::kBack)
      log().warn("weft: rank {}: rail {} ({} on host {}) is back", me, e.rail, device(me),
                 host(me));
    else
      log().warn(
          "weft: rank {}: rail {} ({} on host {}, to {} on host {}, rank {}) is taken out: {}; "
          "what was under way goes over the others{}",
          me, e.rail, device(me), host(me), device(e.peer), host(e.peer), e.peer, e.cause,
          counted(e.rail));
  });
  inner.clear();
  for (int r = 0; r < n; ++r) inner.push_back(rails->face(r));
  answering_job = std::make_unique<AnsweringJob>(*this);
}

void Core::prove_rails(GroupState& g) {
  if (g.shape.rail.empty() || g.shape.hosts.size() < 2 || std::exchange(g.cache->proved, true))
    return;
  // By collective: why its first algorithm leaves its rails; empty once one is found that does not.
  std::map<Collective, std::string> why;
  for (const Algorithm& a : algorithms()) {
    if (!a.applies(g.shape)) continue;
    const auto [it, first] = why.try_emplace(a.collective);
    if (!first && it->second.empty()) continue;
    const auto breach = find_breach(a, g.shape);
    if (!breach)
      it->second.clear();
    else if (first)
      it->second = fmt::format("{}: {}", a.name, to_string(*breach));
  }
  for (const auto& [collective, path] : why) {
    if (path.empty()) continue;
    const std::string text =
        fmt::format("no algorithm of {} keeps to the rails of these {} ranks; {}", name(collective),
                    g.ranks.size(), path);
    if (options.cross_rail == "never")
      throw Error(
          fmt::format("{}. Give every host a rank on each rail, or allow it with "
                      "WEFT_CROSS_RAIL=auto or allow",
                      text));
    if (g.me == 0) log().warn("weft: {}", text);
  }
}

Status Core::check_rails(GroupState& g, const Algorithm& a, Rank root, bool by_name) {
  if (g.shape.rail.empty()) return {};
  const auto [it, fresh] = g.cache->breaches.try_emplace({&a, root, g.shape.deterministic});
  std::string& why = it->second;
  if (fresh) {
    Shape shape = g.shape;
    shape.root = root;
    if (const auto breach = find_breach(a, shape)) {
      why = to_string(*breach);
      const auto level = g.me == 0 ? spdlog::level::warn : spdlog::level::info;  // once per group
      if (options.cross_rail == "auto" && !by_name)
        log().log(level, "weft: {} {} leaves its rail: {}", name(a.collective), a.name, why);
    }
  }
  if (why.empty() || (options.cross_rail == "auto" && !by_name)) return {};
  return {Code::kInvalidArgument,
          fmt::format("{} {} leaves its rail: {}. Let `auto` choose, or allow it with "
                      "WEFT_CROSS_RAIL=allow",
                      name(a.collective), a.name, why)};
}

// Large messages use every rail that is as near as the rank's own rail (unless messages are not to
// be spread), or, with fewer ranks than rails, the rank's share of the rails. Both ends go by the
// lower rank, as for the rail of a pair.
std::vector<int> Core::stripes(Rank me, Rank peer, int home) const {
  const Rank low = std::min(me, peer);
  const int nlocal = static_cast<int>(topology->ranks_of(topology->host(low)).size());
  const int n = topology->nrails();
  const auto& nics = topology->place(low).rails;
  std::vector<int> mine;
  for (int i = 0; i < n; ++i) {
    const int r = (home + i) % n;
    const bool near = options.spread && nics[static_cast<std::size_t>(r)].numa_node ==
                                            nics[static_cast<std::size_t>(home)].numa_node;
    if (near || r == home || (nlocal < n && r * nlocal / n == topology->local(low)))
      mine.push_back(r);
  }
  return mine;
}

void Core::poll_rails() noexcept {
  for (int i = 0; i < kPolls; ++i) rails->poll();
}

void Core::answer_while(const std::function<void()>& meet) {
  if (!rails || served) return meet();
  std::atomic<bool> met = false;
  std::thread polling = start_thread("a thread that answers peers", [&] {
    while (!met) {
      {
        const CoreLock lock(mutex);
        if (waiters == 0) poll_rails();
      }
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  });
  const auto end = [&] {
    met = true;
    polling.join();
  };
  try {
    meet();
  } catch (...) {
    end();
    throw;
  }
  end();
}

// What this rank sent last may have been lost with a rail, and only this rank can send it again. A
// receiver says what it has at the latest when it comes here itself; that may be lost, too, and
// only this rank can say so again. So it polls until all are here.
void Core::settle_rails(const Job& of, const std::function<void()>& meet) {
  if (!rails) return meet();
  const auto until = Clock::now() + options.timeout / 2;
  const auto settled = [&] {
    const CoreLock lock(mutex);
    return rails->settled();
  };
  {
    const CoreLock lock(mutex);
    rails->settle();
  }
  answer_while([&] {
    while (!settled() && !of.failed() && Clock::now() < until)
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    meet();
  });
}

}  // namespace weft
