// Runs the pairs of a pair test in rounds, and gathers their results. Does not move bytes.
#include "perf/pair/pair_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <utility>

#include "coll/jobs/report.h"
#include "perf/pair/pair_link.h"
#include "perf/pair/pair_report.h"
#include "perf/pair/pair_run.h"
#include "perf/pair/pair_setup.h"
#include "topo/base/exit_code.h"
#include "topo/counters.h"
#include "topo/discover.h"
#include "transport/factory/transport_factory.h"
#include "transport/launch/failures.h"
#include "transport/launch/local_job.h"
#include "transport/shm/shm.h"
#include "transport/transport.h"

namespace weft {

std::vector<std::vector<std::pair<Rank, Rank>>> pair_rounds(int n) {
  const int seats = n + n % 2;  // with odd n, one rank pauses per round
  std::vector<std::vector<std::pair<Rank, Rank>>> rounds;
  for (int round = 0; round + 1 < seats; ++round) {
    auto& pairs = rounds.emplace_back();
    for (int i = 0; i < seats / 2; ++i) {
      // The last seat stays fixed, and the others rotate.
      const int a = i == 0 ? seats - 1 : (round + i) % (seats - 1);
      const int b = i == 0 ? round : (round + seats - 1 - i) % (seats - 1);
      if (a < n && b < n) pairs.emplace_back(std::min(a, b), std::max(a, b));
    }
  }
  return rounds;
}

namespace {

using Json = nlohmann::ordered_json;
using Rounds = std::vector<std::vector<RankPair>>;

constexpr int kWarmUp = 10;  // round trips
// Target duration of a batch of round trips, after which ranks synchronize and check the time. -D
// overruns by up to one batch, which may be much longer than earlier batches on a busy machine.
constexpr double kBatchSeconds = 0.1;

class PairSession {
 public:
  explicit PairSession(const PairOptions& options)
      : o_(options), launched_(options.server.empty() && launched()) {
    Place place = discover_place();
    if (!launched_ && std::ranges::any_of(place.rails, &Nic::up))
      std::erase_if(place.rails, [](const Nic& nic) { return !nic.up; });
    if (!launched_) place.host = o_.server.empty() ? "server" : "client";
    if (!o_.device.empty()) place.rails = {device_named(o_.device)};
    for (Nic& rail : place.rails)
      if (o_.op == "tcp" && rail.rdma && !rail.netdev.empty()) rail = rail_for(o_, rail);
    if (!launched_ && o_.verbs()) {
      const auto rdma = std::ranges::find_if(place.rails, &Nic::rdma);
      if (rdma != place.rails.end()) place.rails = {*rdma};
    }
    if (!launched_) place.rails.resize(1);
    if (!launched_) (void)rail_for(o_, place.rails.front());
    // Last, so that errors of this end do not wait for the other end.
    JobSpec spec = launched_ ? job_from_environment() : client_or_server(o_);
    if (spec.size < 2) throw UsageError("one rank has no peer to send to: start two or more");
    // While a size is measured, the other end may send no control message.
    spec.timeout = std::chrono::milliseconds(1000 * o_.limit_s + o_.timeout_ms);
    const auto end = std::chrono::steady_clock::now() + spec.timeout;
    try {
      job_ = connect(spec);
    } catch (const Error& e) {
      if (launched_ || spec.rank != 0) throw;
      if (std::chrono::steady_clock::now() < end)
        throw Error(fmt::format("{}; for both ends of a pair, -p does", e.what()));
      throw Error(
          fmt::format("no client within {} s (--timeout-ms and --limit-s together): {}; start the "
                      "same command with this host's name on the other one, or give both -p",
                      spec.timeout.count() / 1000, e.what()));
    }
    std::vector<Place> places;
    for (const std::string& text : job_->all_gather(encode(place)))
      places.push_back(decode_place(text));
    topology_ = std::make_unique<Topology>(std::move(places));
    me_ = job_->rank();
    o_.damage_from = damage_from(me_);
  }

  int run() {
    try {
      return measure();
    } catch (const std::exception& e) {
      const bool known = job_->failed();
      const bool usage = dynamic_cast<const UsageError*>(&e) != nullptr;
      const auto* coded = dynamic_cast<const StatusError*>(&e);
      const std::string what = (coded ? coded->status().message() : e.what()) +
                               (usage ? std::string() : pair_) + counted_;
      const Status failure = known ? job_->failure() : Status(Code::kTransport, what, kNoRank);
      if (!known) {
        job_->report(Status(usage ? Code::kInvalidArgument : Code::kTransport,
                            fmt::format("rank {}: {}", me_, what)));
        fmt::print(stderr, "weft perf {}: {}\n", name(o_.test), what);
      } else if (!launched_ || me_ == speaker(failure.rank())) {
        fmt::print(stderr, "weft perf {}: {}{}\n", name(o_.test), failure.to_string(), counted_);
      }
      // A wrong command line, of this end or of the end that reported first, is not a failure of
      // the fabric.
      const bool asked = usage || failure.code() == Code::kInvalidArgument;
      return asked ? kExitError : kExitCritical;
    }
  }

 private:
  bool speaks() const { return (!launched_ || me_ == 0) && o_.json != "-"; }
  bool writes() const { return launched_ ? me_ == 0 : me_ == 1; }

  void agree() {
    const auto all = job_->all_gather(agreement(o_));
    for (std::size_t r = 1; r < all.size(); ++r)
      if (all[r] != all[0])
        throw UsageError(
            fmt::format("the two ends were given different flags, {}: {} has `{}`, {} has `{}`",
                        differing(all[0], all[r]), launched_ ? "rank 0" : "the server", all[0],
                        launched_ ? fmt::format("rank {}", r) : "the client", all[r]));
  }

  std::unique_ptr<Transport> make_transport() const {
    if (o_.verbs()) return nullptr;
    if (o_.op != "shm") return make_rail_transport(o_.op, *job_, *topology_, rail_);
    std::vector<Rank> everybody(static_cast<std::size_t>(topology_->nranks()));
    std::iota(everybody.begin(), everybody.end(), 0);
    for (const Rank r : everybody)
      if (topology_->place(r).machine != topology_->place(0).machine)
        throw UsageError("--op shm: all ranks must be on one machine");
    return make_shm_transport(*job_, *topology_, everybody);
  }

  int measure() {
    agree();
    rail_number_ = launched_ && o_.device.empty() ? topology_->rail(me_) : 0;
    rail_ = rail_for(o_, topology_->place(me_).rails.at(static_cast<std::size_t>(rail_number_)));
    transport_ = make_transport();
    if (const std::string why = writes() ? why_not_writable(o_.json) : ""; !why.empty())
      throw UsageError(why);
    const Rounds rounds =
        launched_ ? choose_pairs(o_.pairs, o_.seed, *topology_) : Rounds{{{1, 0}}};
    named_ = launched_;
    if (speaks()) fmt::print("{}\n", pair_header(o_, named_));
    std::fflush(stdout);
    for (const auto& round : rounds) measure_round(round);
    const std::vector<std::string> missed = missed_limits(o_, rows_);
    if (speaks()) {
      fmt::print("{}", pair_summary(o_, rows_));
      for (const std::string& line : missed) fmt::print(" # MISSED: {}\n", line);
    }
    if (writes() && !o_.json.empty())
      write_report(o_.json, to_json(o_, rows_, pairs_).dump(2) + "\n");
    job_->all_gather("");  // no rank leaves while others still read
    job_->leave();
    const auto either = [&](const char* key) {
      return std::ranges::any_of(rows_, [key](const PairRow& row) {
        return row.at_client.contains(key) || row.at_server.contains(key);
      });
    };
    const bool wrong = either("wrong"), cut = either("ended_by_limit");
    return wrong || !missed.empty() ? kExitCritical : cut ? kExitWarn : kExitOk;
  }

  void measure_round(const std::vector<RankPair>& round) {
    const auto mine = std::ranges::find_if(
        round, [this](const RankPair& p) { return p.client == me_ || p.server == me_; });
    link_.reset();
    pair_.clear();
    Rank peer = kNoRank;
    const std::uint64_t most = o_.sizes().back();
    if (mine != round.end()) {
      // Rails may be separate networks, so both ends use the client's rail.
      if (launched_ && o_.device.empty() && o_.verbs()) {
        rail_number_ = topology_->rail(mine->client);
        rail_ =
            rail_for(o_, topology_->place(me_).rails.at(static_cast<std::size_t>(rail_number_)));
      }
      peer = mine->client == me_ ? mine->server : mine->client;
      const auto host = [this](Rank r) { return topology_->host_name(topology_->host(r)); };
      if (launched_)
        pair_ = fmt::format("; pair {}->{}: host {} to host {}{}", mine->client, mine->server,
                            host(mine->client), host(mine->server),
                            o_.op == "shm" || host(me_) == host(peer)
                                ? std::string()
                                : fmt::format(", rail {} ({})", rail_number_, rail_.name));
      link_ = o_.verbs() ? make_verbs_pair(o_, rail_, most)
                         : make_transport_pair(o_, *transport_, me_, peer, most);
    }
    const auto offers = job_->all_gather(link_ ? link_->offer() : "");
    if (link_) link_->connect(offers[static_cast<std::size_t>(peer)]);
    announce(round);
    for (const std::uint64_t bytes : o_.sizes())
      measure_size(round, bytes, link_ && mine->client == me_);
    link_.reset();
  }

  // Records and prints the pairs of a round and the settings of their links.
  void announce(const std::vector<RankPair>& round) {
    const PairUse use = link_ ? link_->use() : PairUse{};
    const auto uses = job_->all_gather(Json{
        {"path", link_ ? link_->path() : ""},
        {"tx_depth", use.depth},
        {"inline_bytes", use.inline_bytes}}.dump());
    for (const RankPair& p : round) {
      const Json at_client = Json::parse(uses[static_cast<std::size_t>(p.client)]);
      const Json at_server = Json::parse(uses[static_cast<std::size_t>(p.server)]);
      const std::string path = at_client["path"];
      int depth = at_client["tx_depth"];
      if (o_.both_ways) depth = std::min(depth, at_server["tx_depth"].get<int>());
      Json& pair =
          pairs_.emplace_back(Json{{"client", p.client},
                                   {"server", p.server},
                                   {"client_host", topology_->host_name(topology_->host(p.client))},
                                   {"server_host", topology_->host_name(topology_->host(p.server))},
                                   {"path", path},
                                   {"tx_depth", depth}});
      if (at_client["inline_bytes"] >= 0) pair["inline_bytes"] = at_client["inline_bytes"];
      pair["sizes"] = Json::array();
      if (!speaks()) continue;
      if (!launched_) fmt::print(" # {}\n", path);
      if (depth < o_.depth && o_.test == PairTest::kBandwidth)
        fmt::print(" # {}-t {}: {} under way, {}\n", launched_ ? path + ": " : "", o_.depth, depth,
                   o_.verbs() ? "for which the device, or memory to compare them in, has room"
                              : "which fit 256 MiB");
    }
  }

  void measure_size(const std::vector<RankPair>& round, std::uint64_t bytes, bool client) {
    const bool latency = o_.test == PairTest::kLatency;
    const PairRole role{bytes, latency, client || (o_.both_ways && !latency),
                        !client || o_.both_ways};
    const CounterSnapshot before = read_counters(rail_, o_.device_port);
    const int rail = launched_ ? topology_->rail(me_) : 0;
    const std::string where =
        fmt::format("{} ({})", topology_->host_name(topology_->host(me_)), rail_.name);
    const auto counted = [&] { return difference(before, read_counters(rail_, o_.device_port)); };
    EndResult result;
    try {
      if (link_) link_->prepare(role);
      job_->all_gather("");
      if (latency) {
        bool cut = false;
        const Histogram times = ping_pongs(round, role, cut);
        if (client) result = EndResult::of_times(times, cut);
      } else if (link_ && (role.sends || !link_->one_sided())) {
        const StreamResult stream = run_stream(*link_, o_, role, *job_);
        if (role.sends) result = EndResult::of_stream(stream, bytes);
      }
      job_->all_gather("");  // all bytes of this size have arrived
    } catch (...) {
      counted_ = evidence(rail, where, signs_of_trouble(counted()));
      if (!counted_.empty()) counted_ = "; " + counted_;
      throw;
    }
    if (link_) {
      const std::string wrong = link_->check();
      if (!wrong.empty()) result.json["wrong"] = wrong;
      if (role.sends && link_->use().moderation > 0)
        result.json["messages_per_completion"] = link_->use().moderation;
      result.add_counters(rail, where, counted());
    }
    const auto all = job_->all_gather(result.json.dump());
    for (const RankPair& p : round) {
      rows_.push_back({p.client, p.server, bytes,
                       Json::parse(all[static_cast<std::size_t>(p.client)]),
                       Json::parse(all[static_cast<std::size_t>(p.server)]),
                       topology_->host_name(topology_->host(p.client)),
                       topology_->host_name(topology_->host(p.server))});
      if (!speaks()) continue;
      fmt::print("{}\n{}{}", pair_line(o_, rows_.back(), named_),
                 o_.ports ? pair_ports(rows_.back()) : "", pair_remarks(rows_.back()));
      std::fflush(stdout);
    }
  }

  // Runs round trips in batches. After each batch, the clients announce how many follow, and all
  // ranks synchronize. Sets `cut` if --limit-s ended this end's round trips early.
  Histogram ping_pongs(const std::vector<RankPair>& round, const PairRole& role, bool& cut) {
    Histogram times, warm_up;
    std::uint64_t turn = 1;
    double spent = 0, estimate = 0;
    const auto wanted = static_cast<std::uint64_t>(o_.iterations_or_default());
    const auto more = [&]() -> std::uint64_t {
      if (!role.sends || turn == 1) return role.sends ? kWarmUp : 0;
      const bool timed = o_.seconds > 0;
      if (timed ? spent >= o_.seconds : times.count() >= wanted) return 0;
      cut = spent > o_.limit_s;
      if (cut) return 0;
      const double left = timed ? std::max(o_.seconds - spent, 0.0) : kBatchSeconds;
      const double fit = std::clamp(std::min(left, kBatchSeconds) / estimate, 1.0, 1e9);
      const auto n = static_cast<std::uint64_t>(fit);
      return (timed ? n : std::min(n, wanted - times.count())) + 1;  // the first is not timed
    };
    for (;;) {
      const auto all = job_->all_gather(fmt::format("{}", link_ ? more() : 0));
      std::uint64_t mine = 0, most = 0;
      for (const RankPair& p : round) {
        const std::uint64_t n = std::stoull(all[static_cast<std::size_t>(p.client)]);
        if (p.client == me_ || p.server == me_) mine = n;
        most = std::max(most, n);
      }
      if (most == 0) return times;
      if (mine == 0) continue;
      const double took =
          run_ping_pong(*link_, o_, role, turn, mine, turn == 1 ? warm_up : times, *job_);
      estimate = std::max(took / static_cast<double>(mine), 1e-9);
      if (turn != 1) spent += took;
      turn += mine;
    }
  }

  PairOptions o_;
  const bool launched_;
  std::unique_ptr<Job> job_;
  std::unique_ptr<Topology> topology_;
  Rank me_ = 0;
  Nic rail_;  // that this rank uses currently
  int rail_number_ = 0;
  bool named_ = false;
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<PairLink> link_;
  std::vector<PairRow> rows_;
  std::vector<Json> pairs_;
  std::string pair_;     // this rank's pair, in a launched job: "; pair 3->1: host ..."
  std::string counted_;  // counter changes of this end's port before an error: "; rail 0 ..."
};

Rounds ring(int n) {
  Rounds rounds(n > 2 ? (n % 2 ? 3U : 2U) : 1U);
  const int edges = n == 2 ? 1 : n;
  for (int i = 0; i < edges; ++i) {
    const bool odd_one = n % 2 == 1 && i == n - 1;
    rounds[odd_one ? 2U : static_cast<std::size_t>(i % 2)].push_back({i, (i + 1) % n});
  }
  return rounds;
}

Rounds along_rails(const Topology& t) {
  if (t.nhosts() < 2) throw UsageError("--pairs rail: all ranks are on one host");
  Rounds rounds;
  for (const auto& hosts : pair_rounds(t.nhosts())) {
    auto& round = rounds.emplace_back();
    for (const auto& [a, b] : hosts) {
      const std::size_t n = std::min(t.ranks_of(a).size(), t.ranks_of(b).size());
      for (std::size_t l = 0; l < n; ++l) round.push_back({t.ranks_of(b)[l], t.ranks_of(a)[l]});
    }
  }
  return rounds;
}

Rounds at_random(int n, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Rank> ranks(static_cast<std::size_t>(n));
  std::iota(ranks.begin(), ranks.end(), 0);
  // Not std::shuffle: its result depends on the library, and all ranks must agree.
  for (std::size_t i = ranks.size() - 1; i > 0; --i) std::swap(ranks[i], ranks[random() % (i + 1)]);
  Rounds rounds(1);
  for (std::size_t i = 0; i + 1 < ranks.size(); i += 2)
    rounds[0].push_back({ranks[i], ranks[i + 1]});
  return rounds;
}

}  // namespace

Rounds choose_pairs(const std::string& pairs, std::uint64_t seed, const Topology& topology) {
  const int n = topology.nranks();
  if (pairs == "ring") return ring(n);
  if (pairs == "rail") return along_rails(topology);
  if (pairs == "random") return at_random(n, seed);
  Rounds rounds;
  for (const auto& round : pair_rounds(n)) {
    auto& to = rounds.emplace_back();
    for (const auto& [a, b] : round) to.push_back({b, a});
  }
  return rounds;
}

int run_pairs(const PairOptions& options) {
  check(options);
  if (!options.server.empty() && launched())
    throw Error(
        fmt::format("server {}: the ranks of a launched job connect by themselves; leave it out",
                    options.server));
  return PairSession(options).run();
}

}  // namespace weft
