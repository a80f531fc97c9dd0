#include "coll/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace weft {
namespace {

// Receives posted ahead on one channel, per round in flight.
constexpr std::size_t kAhead = 2;

// Steps over several chunks become steps over one chunk each: in the block layout chunks that
// follow each other in number do not in memory. Both ends of a transfer do this alike. Receives
// that reduce into the same chunks one after the other stay together, chunk by chunk.
Schedule split_chunks(const Schedule& s) {
  Schedule out = s;
  out.steps.clear();
  for (std::size_t i = 0; i < s.steps.size();) {
    const Step& first = s.steps[i];
    std::size_t end = i + 1;
    while (first.op == Op::kRecvReduce && end < s.steps.size() &&
           s.steps[end].op == Op::kRecvReduce && s.steps[end].at == first.at)
      ++end;
    for (int c = first.at.first; c < first.at.end(); ++c)
      for (std::size_t k = i; k < end; ++k)
        out.steps.push_back({s.steps[k].op, s.steps[k].peer, s.steps[k].channel, {c, 1}});
    i = end;
  }
  return out;
}

class Compiler {
 public:
  Compiler(Schedule schedule, const PlanRequest& request, Plan::Layout layout, bool copied)
      : request_(request) {
    plan_.schedule = std::move(schedule);
    plan_.collective = request.collective;
    plan_.layout = layout;
    plan_.copy_first = copied;
    plan_.network = request.network;
    const auto n = static_cast<std::size_t>(plan_.schedule.nchunks);
    where_.assign(n, Where::kNowhere);
    writer_.assign(n, -1);
    readers_.resize(n);
    plan_.scratch_of.assign(n, -1);
    for (std::size_t c = 0; c < n; ++c) where_[c] = initial(static_cast<int>(c));
  }

  // False when a step reads chunks whose values lie in different places: the caller starts again
  // with the input copied to the output first.
  bool run() {
    for (const Step& step : plan_.schedule.steps) {
      const Chunks at = step.at;
      if (step.op != Op::kRecv && !uniform(at)) return false;
      if (step.op != Op::kRecvReduce) open_ = -1;
      switch (step.op) {
        case Op::kSend:
          send(step);
          break;
        case Op::kRecv:
          recv(step);
          break;
        case Op::kRecvReduce:
          recv_reduce(step);
          break;
      }
    }
    return true;
  }

  Plan finish() {
    const auto n = plan_.nodes.size();
    plan_.pending.assign(n, 0);
    std::vector<std::vector<std::uint32_t>> after(n), members(n);
    for (const auto& [from, to] : edges_) {
      after[static_cast<std::size_t>(from)].push_back(static_cast<std::uint32_t>(to));
      ++plan_.pending[static_cast<std::size_t>(to)];
    }
    for (std::size_t i = 0; i < n; ++i)
      if (plan_.nodes[i].kind == Node::Kind::kArrive)
        members[static_cast<std::size_t>(plan_.nodes[i].result_of)].push_back(
            static_cast<std::uint32_t>(i));
    // Sources are reduced in the order of their ranks, this rank's own value at its place, so that
    // every rank that reduces the same values gets the same bits.
    for (std::size_t i = 0; i < n; ++i) {
      const auto order = [&](std::uint32_t m) { return plan_.nodes[m].order; };
      std::ranges::sort(members[i], {}, order);
      for (const std::uint32_t m : members[i])
        plan_.nodes[i].own_place += order(m) < plan_.schedule.rank;
    }
    for (std::size_t i = 0; i < n; ++i) {
      Node& node = plan_.nodes[i];
      node.first_successor = static_cast<std::uint32_t>(plan_.successors.size());
      node.successors = static_cast<std::uint32_t>(after[i].size());
      plan_.successors.insert(plan_.successors.end(), after[i].begin(), after[i].end());
      node.first_member = static_cast<std::uint32_t>(plan_.members.size());
      node.members = static_cast<std::uint32_t>(members[i].size());
      plan_.members.insert(plan_.members.end(), members[i].begin(), members[i].end());
      const bool writes = node.kind == Node::Kind::kRecv || node.kind == Node::Kind::kReduce;
      node.last = writes && !read_.contains(static_cast<int>(i));
    }
    for (int c = 0; c < plan_.schedule.nchunks; ++c)
      if (where_[static_cast<std::size_t>(c)] == Where::kIn && in_result(c))
        plan_.copy_last.push_back(c);
    return std::move(plan_);
  }

 private:
  int owner(int chunk) const {
    const auto& block = plan_.schedule.block;
    return block.empty() ? chunk : block[static_cast<std::size_t>(chunk)];
  }
  bool mine(int chunk) const { return owner(chunk) == plan_.schedule.rank; }

  Where initial(int chunk) const {
    const bool moved =
        plan_.copy_first || request_.in_place || plan_.layout == Plan::Layout::kPacked;
    const Where input = moved ? Where::kOut : Where::kIn;
    switch (request_.collective) {
      case Collective::kAllGather:
        return mine(chunk) ? input : Where::kNowhere;
      case Collective::kReduceScatter:
        return plan_.layout == Plan::Layout::kPacked ? Where::kOut : Where::kIn;
      default:
        return input;
    }
  }
  Where destination(int chunk) const {
    if (request_.collective == Collective::kReduceScatter &&
        plan_.layout == Plan::Layout::kBlocks && !mine(chunk))
      return Where::kScratch;
    return Where::kOut;
  }
  bool in_result(int chunk) const {
    return request_.collective != Collective::kReduceScatter || mine(chunk);
  }

  bool uniform(Chunks at) const {
    for (int c = at.first; c < at.end(); ++c)
      if (where_[static_cast<std::size_t>(c)] != where_[static_cast<std::size_t>(at.first)])
        return false;
    return true;
  }

  int add(Node node, const Step& step) {
    node.order = step.peer;
    node.peer = request_.world[static_cast<std::size_t>(step.peer)];
    node.link = static_cast<std::uint8_t>(request_.link_of(step.peer, step.channel));
    node.at = step.at;
    plan_.nodes.push_back(node);
    return static_cast<int>(plan_.nodes.size()) - 1;
  }
  void edge(int from, int to) {
    if (from >= 0 && from != to) edges_.insert({from, to});
  }
  // The channel is part of what tells messages apart; 8 channels of 2048 messages each before a
  // number comes again, in order.
  static std::uint32_t ordinal(int channel, std::size_t index) {
    return (static_cast<std::uint32_t>(channel) & 7u) << kChannelShift |
           (index & ((1u << kChannelShift) - 1));
  }

  void send(const Step& step) {
    const auto first = static_cast<std::size_t>(step.at.first);
    if (where_[first] == Where::kNowhere)
      throw Error(fmt::format("schedule of rank {} sends chunk {} that it does not have",
                              plan_.schedule.rank, step.at.first));
    Node node{.kind = Node::Kind::kSend, .from = where_[first]};
    node.ordinal = ordinal(step.channel, sent_[{step.peer, step.channel}]++);
    const int writer = writer_[first];
    if (writer >= 0 && plan_.nodes[static_cast<std::size_t>(writer)].kind == Node::Kind::kReduce &&
        plan_.nodes[static_cast<std::size_t>(writer)].at == step.at)
      node.result_of = writer;
    const int me = add(node, step);
    for (int c = step.at.first; c < step.at.end(); ++c) {
      const auto i = static_cast<std::size_t>(c);
      edge(writer_[i], me);
      if (writer_[i] >= 0) read_.insert(writer_[i]);
      readers_[i].push_back(me);
    }
  }

  // `me` writes the chunks: after the last write, and after reads of the place it writes to.
  void write(int me, Chunks at) {
    for (int c = at.first; c < at.end(); ++c) {
      const auto i = static_cast<std::size_t>(c);
      edge(writer_[i], me);
      const Where to = destination(c);
      for (const int reader : readers_[i])
        if (plan_.nodes[static_cast<std::size_t>(reader)].from == to || request_.in_place) {
          edge(reader, me);
          // Two ranks that exchange a value and each reduce into it: were both lent, each would
          // wait for the other's reduction to let go of its own.
          if (plan_.nodes[static_cast<std::size_t>(me)].kind == Node::Kind::kReduce)
            plan_.nodes[static_cast<std::size_t>(reader)].buffered = true;
        }
      readers_[i].clear();
      writer_[i] = me;
      where_[i] = to;
      if (to == Where::kScratch && plan_.scratch_of[i] < 0)
        plan_.scratch_of[i] = plan_.scratch_chunks++;
    }
  }

  void recv(const Step& step) {
    auto& fifo = received_[{step.peer, step.channel}];
    Node node{.kind = Node::Kind::kRecv, .to = destination(step.at.first)};
    node.ordinal = ordinal(step.channel, fifo.size());
    const int me = add(node, step);
    write(me, step.at);
    ahead(fifo, me, me);
  }

  void recv_reduce(const Step& step) {
    auto& fifo = received_[{step.peer, step.channel}];
    const auto first = static_cast<std::size_t>(step.at.first);
    const int arrive_ordinal = static_cast<int>(ordinal(step.channel, fifo.size()));
    int group = writer_[first];
    // Only steps that follow each other are reduced together: a group that waited for a later
    // step of another peer could hold up the credits which that peer waits for.
    const bool joins = group >= 0 && open_ == group &&
                       plan_.nodes[static_cast<std::size_t>(group)].at == step.at &&
                       !in_group(group, step);
    const Where from = where_[first];
    Node arrive{.kind = Node::Kind::kArrive};
    arrive.ordinal = static_cast<std::uint32_t>(arrive_ordinal);
    const int me = add(arrive, step);
    if (!joins) {
      Node reduce{.kind = Node::Kind::kReduce, .from = from, .to = destination(step.at.first)};
      group = add(reduce, step);
      for (int c = step.at.first; c < step.at.end(); ++c) {
        const int before = writer_[static_cast<std::size_t>(c)];
        if (before >= 0) read_.insert(before);
      }
      write(group, step.at);
      open_ = group;
    }
    group_peers_.insert({group, step.peer, step.channel});
    plan_.nodes[static_cast<std::size_t>(me)].result_of = group;
    edge(me, group);
    const bool views = request_.links[plan_.nodes[static_cast<std::size_t>(me)].link].views;
    if (!views) {
      const std::size_t slot = fifo.size() % kAhead;
      auto& credits = credits_[{step.peer, step.channel}];
      if (credits.size() <= slot) credits.push_back(plan_.credits++);
      plan_.nodes[static_cast<std::size_t>(me)].credit = credits[slot];
    }
    ahead(fifo, me, views ? me : group);
  }

  // Receives of one channel are posted at most kAhead before the first unfinished one.
  void ahead(std::vector<int>& fifo, int me, int finished_by) {
    if (fifo.size() >= kAhead) edge(fifo[fifo.size() - kAhead], me);
    fifo.push_back(finished_by);
  }

  bool in_group(int group, const Step& step) const {
    return group_peers_.contains({group, step.peer, step.channel});
  }

  const PlanRequest& request_;
  Plan plan_;
  std::vector<Where> where_;
  std::vector<int> writer_;
  std::vector<std::vector<int>> readers_;
  std::set<std::pair<int, int>> edges_;
  std::set<int> read_;
  int open_ = -1;  // the reduce that the next step may join
  std::set<std::tuple<int, Rank, int>> group_peers_;
  std::map<std::pair<Rank, int>, std::size_t> sent_;
  std::map<std::pair<Rank, int>, std::vector<int>> received_, credits_;
};

}  // namespace

Plan compile(const Schedule& schedule, const PlanRequest& request, bool packed) {
  const bool blocks = request.collective == Collective::kAllGather ||
                      request.collective == Collective::kReduceScatter;
  const auto layout = !blocks  ? Plan::Layout::kMessage
                      : packed ? Plan::Layout::kPacked
                               : Plan::Layout::kBlocks;
  const Schedule ready = layout == Plan::Layout::kBlocks ? split_chunks(schedule) : schedule;
  for (const bool copied : {false, true}) {
    Compiler compiler(ready, request, layout, copied);
    if (compiler.run()) return compiler.finish();
  }
  throw Error("a schedule mixes chunks that lie in different places");
}

}  // namespace weft
