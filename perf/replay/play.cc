// Plays one rank's part of a trace over communicators. Does not depend on file formats or on the
// simulation.
#include "perf/replay/play.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <list>
#include <map>
#include <numeric>
#include <queue>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "transport/launch/failures.h"

namespace weft::replay {
namespace {

using SteadyTime = std::chrono::steady_clock;

// The memory of a call; concurrent calls use separate buffers.
struct Buffers {
  std::vector<char> in, out;
};

class RankPlay {
 public:
  RankPlay(World& world, const JobTrace& trace, const PlayOptions& options)
      : trace_(trace), options_(options), me_(world.rank()), keys_(keys_of(trace)) {
    all_ = world.world();
    for (const TraceGroup& group : trace.groups) {
      int color = Communicator::kNoColor, key = 0;
      for (std::size_t l = 0; l < group.lists.size(); ++l)
        for (std::size_t i = 0; i < group.lists[l].size(); ++i)
          if (group.lists[l][i] == me_) {
            color = static_cast<int>(l);
            key = static_cast<int>(i);
          }
      comms_.push_back(all_.split(color, key));
    }
    if (plays()) {
      const Program& program = trace.program(me_);
      next_.resize(program.size());
      for (std::size_t i = 0; i < program.size(); ++i)
        for (const int a : program[i].after)
          next_[static_cast<std::size_t>(a)].push_back(static_cast<int>(i));
      order_calls();
    }
  }

  // Plays a step and returns its time. Records the times of calls in the ledger.
  double step(Ledger& ledger) {
    require(all_.barrier());
    if (options_.heartbeat != nullptr && plays())
      options_.heartbeat->phase(step_ == 0 ? "plays the first step, which is not timed; nodes"
                                           : "plays the steps that are timed; nodes of this step",
                                trace_.program(me_).size());
    ++step_;
    const double begin_us = now_us();
    if (plays()) run(ledger);
    return now_us() - begin_us;
  }

  const std::vector<CallKey>& keys() const { return keys_; }
  Communicator& all() { return all_; }

 private:
  struct Open {
    int node;
    int call;  // handle of the ledger
    std::vector<Request> requests;
    Buffers buffers;
  };

  bool plays() const { return me_ < trace_.ranks; }

  // weft delivers the messages of a pair in the order in which they were sent, regardless of tags:
  // so receives are issued in the order of the sends in the peer's program.
  void order_calls() {
    const Program& program = trace_.program(me_);
    std::map<std::pair<Rank, std::int64_t>, std::vector<int>>
        sent;  // by peer and tag: positions in its program
    std::set<Rank> peers;
    for (const TraceNode& n : program)
      if (n.kind == NodeKind::kRecv && peers.insert(n.peer).second) {
        int place = 0;
        for (const TraceNode& theirs : trace_.program(n.peer))
          if (theirs.kind == NodeKind::kSend && theirs.peer == me_)
            sent[{n.peer, theirs.tag}].push_back(place++);
      }
    std::map<std::pair<Rank, std::int64_t>, std::size_t> received;
    std::vector<std::pair<int, int>> order;  // position among the calls, node
    for (std::size_t i = 0; i < program.size(); ++i) {
      const TraceNode& n = program[i];
      if (n.kind == NodeKind::kCompute) continue;
      int place = static_cast<int>(i);
      if (n.kind == NodeKind::kRecv) {
        const std::pair<Rank, std::int64_t> from{n.peer, n.tag};
        place = sent[from].at(received[from]++);
      }
      order.emplace_back(place, static_cast<int>(i));
    }
    std::ranges::stable_sort(order);
    for (const auto& [place, i] : order) issue_order_.push_back(i);
  }
  double now_us() const {
    return std::chrono::duration<double, std::micro>(SteadyTime::now() - start_).count();
  }

  // The progress of a step, by node.
  struct Progress {
    std::vector<int> missing;
    std::vector<bool> ready, posted, arrived;
    // Issues calls of a group in program order, which all its ranks share, and messages of a pair
    // in the sender's order.
    std::map<std::pair<NodeKind, int>, std::queue<int>> issue;
    std::priority_queue<int, std::vector<int>, std::greater<>> compute;
    std::queue<int> over;  // ended nodes whose successors must be updated
    std::size_t left = 0;
  };

  static std::pair<NodeKind, int> whom(const TraceNode& n) {
    return {n.kind, n.kind == NodeKind::kCollective ? n.group : n.peer};
  }
  const TraceNode& node(int i) const { return trace_.program(me_)[static_cast<std::size_t>(i)]; }

  void run(Ledger& ledger) {
    const Program& program = trace_.program(me_);
    Progress p;
    p.left = program.size();
    for (std::vector<bool>* flags : {&p.ready, &p.posted, &p.arrived})
      flags->assign(program.size(), false);
    for (const TraceNode& n : program) p.missing.push_back(static_cast<int>(n.after.size()));
    for (const int i : issue_order_) p.issue[whom(node(i))].push(i);
    for (std::size_t i = 0; i < program.size(); ++i)
      if (p.missing[i] == 0) make_ready(p, static_cast<int>(i), ledger);
    int computing = -1;
    double until_us = 0;
    while (p.left > 0 || !open_.empty()) {
      for (; !p.over.empty(); p.over.pop()) ended(p, p.over.front(), ledger);
      if (computing < 0 && !p.compute.empty()) {
        computing = p.compute.top();
        p.compute.pop();
        const double begin = now_us();
        until_us = begin + node(computing).compute_us * options_.compute_scale;
        ledger.compute(true, begin);
      }
      if (computing >= 0 && options_.busy)
        while (now_us() < until_us) {
        }
      if (computing >= 0 && now_us() >= until_us) {
        ledger.compute(false, now_us());
        p.over.push(std::exchange(computing, -1));
        continue;
      }
      if (look(p, ledger)) continue;
      wait_a_little(computing >= 0 ? until_us - now_us() : 0);
    }
  }

  void make_ready(Progress& p, int i, Ledger& ledger) {
    const auto at = [](int n) { return static_cast<std::size_t>(n); };
    if (node(i).kind == NodeKind::kCompute) {
      p.compute.push(i);
      return;
    }
    p.ready[at(i)] = true;
    const bool receives = node(i).kind == NodeKind::kRecv;
    std::queue<int>& line = p.issue[whom(node(i))];
    // Before a receive, posts the receives of earlier messages of the sender, which arrive first.
    for (; !line.empty() && (receives ? !p.posted[at(i)] : p.ready[at(line.front())]); line.pop()) {
      const int next = line.front();
      p.posted[at(next)] = true;
      post(next, node(next), ledger);
      if (trace_.sends_are_eager && node(next).kind == NodeKind::kSend) p.over.push(next);
    }
    if (p.arrived[at(i)]) p.over.push(i);
  }

  void ended(Progress& p, int i, Ledger& ledger) {
    --p.left;
    if (options_.heartbeat != nullptr) options_.heartbeat->done_one();
    for (const int n : next_[static_cast<std::size_t>(i)])
      if (--p.missing[static_cast<std::size_t>(n)] == 0) make_ready(p, n, ledger);
  }

  // Completes the nodes of finished calls. Returns whether any call has finished.
  bool look(Progress& p, Ledger& ledger) {
    bool some = false;
    for (auto open = open_.begin(); open != open_.end();) {
      if (!std::ranges::all_of(open->requests, [](Request& r) { return r.test(); })) {
        ++open;
        continue;
      }
      some = true;
      for (Request& request : open->requests) require(request.wait());
      ledger.done(open->call, now_us());
      const auto i = static_cast<std::size_t>(open->node);
      p.arrived[i] = true;
      const bool went_on = trace_.sends_are_eager && node(open->node).kind == NodeKind::kSend;
      if (p.ready[i] && !went_on) p.over.push(open->node);
      spare_.push_back(std::move(open->buffers));
      open = open_.erase(open);
    }
    return some;
  }

  // Waits in an open call, which progresses all calls; without an open call, sleeps for about `us`.
  void wait_a_little(double us) {
    constexpr double kTurnUs = 200, kOversleptUs = 100;
    const double most = us > 0 ? std::min(us, kTurnUs) : kTurnUs;
    if (!open_.empty())
      (void)open_.front().requests.back().wait_for(std::chrono::nanoseconds(
          static_cast<std::int64_t>(1e3 * (open_.size() > 1 ? 20 : most))));
    else if (us > kOversleptUs)
      std::this_thread::sleep_for(
          std::chrono::microseconds(static_cast<std::int64_t>(us - kOversleptUs)));
  }

  void post(int i, const TraceNode& node, Ledger& ledger) {
    Buffers buffers;
    if (!spare_.empty()) {
      buffers = std::move(spare_.back());
      spare_.pop_back();
    }
    const int call = ledger.post(key_of(node), now_us());
    std::vector<Request> requests;
    if (node.kind != NodeKind::kCollective)
      requests.push_back(begin_message(node, buffers));
    else if (node.collective == Collective::kSendRecv)
      requests = begin_shift(node, buffers);
    else
      requests.push_back(begin_collective(node, buffers));
    open_.push_back({i, call, std::move(requests), std::move(buffers)});
  }

  Request begin_message(const TraceNode& node, Buffers& b) {
    b.in.resize(std::max(b.in.size(), node.bytes));
    return node.kind == NodeKind::kSend
               ? all_.send_async(b.in.data(), node.bytes, DType::kUInt8, node.peer)
               : all_.recv_async(b.in.data(), node.bytes, DType::kUInt8, node.peer);
  }

  std::vector<Request> begin_shift(const TraceNode& node, Buffers& b) {
    Communicator& comm = comms_[static_cast<std::size_t>(node.group)];
    const int n = comm.size(), by = node.back ? n - 1 : 1;
    b.in.resize(std::max(b.in.size(), node.bytes));
    b.out.resize(std::max(b.out.size(), node.bytes));
    std::vector<Request> requests;
    requests.push_back(
        comm.send_async(b.in.data(), node.bytes, DType::kUInt8, (comm.rank() + by) % n));
    requests.push_back(
        comm.recv_async(b.out.data(), node.bytes, DType::kUInt8, (comm.rank() + n - by) % n));
    return requests;
  }

  Request begin_collective(const TraceNode& node, Buffers& b) {
    Communicator& comm = comms_[static_cast<std::size_t>(node.group)];
    const auto n = static_cast<std::size_t>(comm.size());
    const std::size_t unit = size_of(node.type) * (by_blocks(node.collective) ? n : 1);
    const std::size_t count = std::max<std::size_t>((node.bytes + unit - 1) / unit, 1);
    b.in.resize(std::max(b.in.size(), count * unit));
    b.out.resize(std::max(b.out.size(), count * unit));
    const std::vector<Rank>* list = trace_.list_of(node.group, me_);
    const auto found = std::ranges::find(*list, node.root);
    const Rank root = found == list->end() ? 0 : static_cast<Rank>(found - list->begin());
    const void* in = b.in.data();
    void* out = b.out.data();
    switch (node.collective) {
      case Collective::kAllReduce:
        return comm.all_reduce_async(in, out, count, node.type, RedOp::kSum);
      case Collective::kAllGather:
        return comm.all_gather_async(in, out, count, node.type);
      case Collective::kReduceScatter:
        return comm.reduce_scatter_async(in, out, count, node.type, RedOp::kSum);
      case Collective::kBroadcast:
        return comm.broadcast_async(in, out, count, node.type, root);
      case Collective::kReduce:
        return comm.reduce_async(in, out, count, node.type, RedOp::kSum, root);
      case Collective::kGather:
        return comm.gather_async(in, out, count, node.type, root);
      case Collective::kScatter:
        return comm.scatter_async(in, out, count, node.type, root);
      case Collective::kAllToAll:
        return comm.all_to_all_async(in, out, count, node.type);
      case Collective::kBarrier:
      case Collective::kSendRecv:
        break;
    }
    return comm.barrier_async();
  }

  const JobTrace& trace_;
  const PlayOptions options_;
  const Rank me_;
  const std::vector<CallKey> keys_;
  Communicator all_;
  std::vector<Communicator> comms_;  // communicators, by group
  std::vector<std::vector<int>> next_;
  std::vector<int> issue_order_;  // nodes
  const SteadyTime::time_point start_ = SteadyTime::now();
  int step_ = 0;
  std::vector<Buffers> spare_;
  std::list<Open> open_;
};

}  // namespace

Played play(World& world, const JobTrace& trace, const PlayOptions& options) {
  RankPlay rank(world, trace, options);
  const std::vector<CallKey>& keys = rank.keys();
  {
    Ledger unused(keys);
    rank.step(unused);  // sets up connections, registrations and choices
  }
  std::vector<Ledger> ledgers;
  std::vector<double> steps;
  for (int i = 0; i < options.steps; ++i) steps.push_back(rank.step(ledgers.emplace_back(keys)));
  require(rank.all().all_reduce(steps.data(), steps.data(), steps.size(), DType::kFloat64,
                                RedOp::kMax));
  // Report the median step alone, so that its parts add up to its time.
  std::vector<std::size_t> by_time(steps.size());
  std::iota(by_time.begin(), by_time.end(), 0);
  std::ranges::sort(by_time, {}, [&](std::size_t i) { return steps[i]; });
  const std::size_t median = by_time[by_time.size() / 2];
  const Ledger& ledger = ledgers[median];
  std::vector<double> sums = {ledger.compute_us()};
  for (const Tally& t : ledger.tallies())
    sums.insert(sums.end(), {t.calls, t.time_us, t.exposed_us, t.alone_us});
  require(
      rank.all().all_reduce(sums.data(), sums.data(), sums.size(), DType::kFloat64, RedOp::kSum));
  std::vector<Tally> tallies;
  for (std::size_t i = 1; i < sums.size(); i += 4)
    tallies.push_back({sums[i], sums[i + 1], sums[i + 2], sums[i + 3]});
  return summarize(keys, tallies, trace.ranks, sums[0], steps[median], calls_of(trace, keys));
}

void check_same_trace(World& world, const JobTrace& trace) {
  std::string all = fmt::format("{} {}", trace.format, trace.ranks);
  for (Rank r = 0; r < trace.ranks; ++r)
    all += fmt::format(" {}", trace.program_of[static_cast<std::size_t>(r)]);
  for (const Program& program : trace.programs)
    for (const TraceNode& n : program)
      all += fmt::format(" {} {} {} {} {} {} {}", static_cast<int>(n.kind), n.bytes, n.group,
                         n.compute_us, n.after.size(), n.peer, n.tag);
  const auto hash = static_cast<std::int64_t>(std::hash<std::string>{}(all));
  std::vector<std::int64_t> every(static_cast<std::size_t>(world.size()));
  require(world.world().all_gather(&hash, every.data(), 1, DType::kInt64));
  for (std::size_t r = 0; r < every.size(); ++r)
    if (every[r] != every[0])
      throw UsageError(
          fmt::format("rank {} has read another trace than rank 0: give both the same "
                      "files",
                      r));
}

}  // namespace weft::replay
