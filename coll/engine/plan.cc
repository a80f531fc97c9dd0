// Compiles a schedule: determines where each value lies and which step waits for which. A plan does
// not depend on sizes, addresses or transports.
#include "coll/engine/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <set>
#include <utility>

#include "coll/footprint.h"
#include "coll/schedule/block_ownership.h"

namespace weft {
namespace {

constexpr std::size_t kAhead = kArrivalsAhead;

class Compiler {
 public:
  // `ends`: see split_chunks(). `moved`: the input is first copied to the memory in which steps
  // change its values.
  Compiler(Schedule schedule, const std::vector<std::size_t>& ends, const PlanRequest& request,
           Plan::Layout layout, bool moved)
      : request_(request),
        ownership_{request.collective, schedule.nranks, request.root},
        ends_(ends),
        moved_(moved) {
    plan_.nchunks = schedule.nchunks;
    if (request.collective == Collective::kAllToAll)
      keep_touched(schedule, plan_.pieces, ownership_);
    else if (by_blocks(request.collective))
      plan_.pieces = pieces_of(schedule, ownership_.blocks());
    plan_.schedule = std::move(schedule);
    plan_.collective = request.collective;
    plan_.layout = layout;
    plan_.network = request.network;
    plan_.own_rail = !plan_.schedule.weight.empty();
    plan_.premultiplied = request.premultiplied;
    const auto n = static_cast<std::size_t>(plan_.schedule.nchunks);
    where_.assign(n, Where::kNowhere);
    writer_.assign(n, -1);
    readers_.resize(n);
    plan_.scratch_of.assign(n, -1);
    for (int c = 0; c < plan_.schedule.nchunks; ++c) begin(c);
  }

  // Returns false if a step reads chunks whose values lie in different places: the caller then
  // tries again with `moved`.
  bool run() {
    const auto& steps = plan_.schedule.steps;
    for (std::size_t i = 0, next; i < steps.size(); i = next) {
      const Step& step = steps[i];
      next = i + 1;
      if (plan_.layout == Plan::Layout::kPacked)
        while (next < steps.size() && steps[next].joined) ++next;
      for (std::size_t k = i; k < next; ++k)
        if (step.op != Op::kRecv && !uniform(steps[k].at)) return false;
      const std::span<const Step> together(&step, next - i);
      switch (step.op) {
        case Op::kSend:
          send(together);
          break;
        case Op::kRecv:
          recv(together);
          break;
        case Op::kRecvReduce:
          if (i >= reduced_) {
            reduced_ = ends_.empty() ? reduction_end(plan_.schedule, i) : ends_[i];
            open_ = -1;
          }
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
    // Sources are reduced in rank order, with this rank's own value in its place, so that every
    // rank that reduces the same values gets the same bits.
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
      if (node.kind == Node::Kind::kReduce) {
        node.first_member = static_cast<std::uint32_t>(plan_.members.size());
        node.members = static_cast<std::uint32_t>(members[i].size());
        plan_.members.insert(plan_.members.end(), members[i].begin(), members[i].end());
      }
      node.stages = node.kind == Node::Kind::kReduce;
      const bool writes = node.kind == Node::Kind::kRecv || node.kind == Node::Kind::kReduce;
      node.last = writes && !read_.contains(static_cast<int>(i));
    }
    for (const Node& node : plan_.nodes) {
      if (node.kind != Node::Kind::kSend || node.result_of < 0) continue;
      Node& reduce = plan_.nodes[static_cast<std::size_t>(node.result_of)];
      reduce.stages = reduce.stages && node.link == reduce.link;
    }
    for (const int c : plan_.results)
      if (where_[static_cast<std::size_t>(c)] == Where::kIn) plan_.copy_last.push_back(c);
    return std::move(plan_);
  }

 private:
  int block(int chunk) const {
    return plan_.pieces.empty() ? chunk : plan_.pieces[static_cast<std::size_t>(chunk)].block;
  }
  bool ends(int chunk) const { return ownership_.ends(plan_.schedule.rank, block(chunk)); }

  // Determines where a chunk's value is before the first step.
  void begin(int chunk) {
    if (ends(chunk)) plan_.results.push_back(chunk);
    if (!ownership_.starts(plan_.schedule.rank, block(chunk))) return;
    plan_.inputs.push_back(chunk);
    Where& where = where_[static_cast<std::size_t>(chunk)];
    where = initial(chunk);
    if (plan_.layout == Plan::Layout::kPacked || where == Where::kIn) return;
    const bool exchanged = request_.collective == Collective::kAllToAll && !ends(chunk);
    if (moved_ || request_.premultiplied || exchanged) plan_.stage_in.push_back(chunk);
    // Chunks that are in scratch from the start do not share places.
    if (where == Where::kScratch)
      plan_.scratch_of[static_cast<std::size_t>(chunk)] = plan_.scratch_chunks++;
  }

  Where initial(int chunk) const {
    if (plan_.layout == Plan::Layout::kPacked) return Where::kOut;
    if (moved_ || request_.premultiplied) return destination(chunk);
    if (!request_.in_place) return Where::kIn;
    const Footprint use = footprint(request_.collective);
    if (use.in == Part::kAll && use.out == Part::kOne) return Where::kIn;  // the output is a part
    if (ends(chunk)) return Where::kOut;
    // In place, an all_to_all receives blocks where those to be sent lie, so these move to scratch.
    // A rank without output ignores in_place.
    return use.in == Part::kAll ? Where::kScratch : Where::kIn;
  }
  Where destination(int chunk) const {
    return plan_.layout == Plan::Layout::kPacked || ends(chunk) ? Where::kOut : Where::kScratch;
  }
  // Returns the chunk that had this one's place before, or -1.
  int scratch(int chunk) {
    std::int32_t& piece = plan_.scratch_of[static_cast<std::size_t>(chunk)];
    if (piece >= 0) return -1;
    const auto& place = plan_.schedule.place;
    const int shared = place.empty() ? -1 : place[static_cast<std::size_t>(chunk)];
    if (shared < 0 || plan_.layout != Plan::Layout::kBlocks) {
      piece = plan_.scratch_chunks++;
      return -1;
    }
    const auto [it, first] = places_.try_emplace(shared, chunk);
    const int before = first ? -1 : std::exchange(it->second, chunk);
    piece = first ? plan_.scratch_chunks++ : plan_.scratch_of[static_cast<std::size_t>(before)];
    return before;
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
    if (node.at.count == 0) node.at = step.at;
    plan_.nodes.push_back(node);
    return static_cast<int>(plan_.nodes.size()) - 1;
  }
  void edge(int from, int to) {
    if (from >= 0 && from != to) edges_.insert({from, to});
  }
  // Identifies a message between two ranks within a round.
  std::uint32_t ordinal(int channel, std::size_t index) const {
    if (index >> kChannelShift != 0)
      throw Error(fmt::format(
          "schedule of rank {} has more than {} messages to or from one rank on a channel",
          plan_.schedule.rank, 1 << kChannelShift));
    return static_cast<std::uint32_t>(channel) << kChannelShift | static_cast<std::uint32_t>(index);
  }

  // Records the ranges of steps that share one message, in the order of their chunks. If they are
  // adjacent, the message needs no copy.
  void joined(Node& node, std::span<const Step> steps) {
    std::vector<Chunks> ranges;
    for (const Step& step : steps) ranges.push_back(step.at);
    std::ranges::sort(ranges, {}, &Chunks::first);
    node.at = ranges[0];
    std::size_t adjacent = 1;
    for (; adjacent < ranges.size() && ranges[adjacent].first == node.at.end(); ++adjacent)
      node.at.count += ranges[adjacent].count;
    if (adjacent == ranges.size()) return;
    node.at = steps[0].at;
    node.kind = node.kind == Node::Kind::kSend ? Node::Kind::kSendJoined : Node::Kind::kRecvJoined;
    node.first_member = static_cast<std::uint32_t>(plan_.ranges.size());
    node.members = static_cast<std::uint32_t>(steps.size());
    plan_.ranges.insert(plan_.ranges.end(), ranges.begin(), ranges.end());
  }

  void send(std::span<const Step> steps) {
    const Step& step = steps[0];
    const auto first = static_cast<std::size_t>(step.at.first);
    for (const Step& s : steps)
      if (where_[static_cast<std::size_t>(s.at.first)] == Where::kNowhere)
        throw Error(fmt::format("schedule of rank {} sends chunk {} that it does not have",
                                plan_.schedule.rank, s.at.first));
    Node node{.kind = Node::Kind::kSend, .from = where_[first]};
    node.ordinal = ordinal(step.channel, sent_[{step.peer, step.channel}]++);
    const int writer = writer_[first];
    if (steps.size() == 1 && writer >= 0 &&
        plan_.nodes[static_cast<std::size_t>(writer)].kind == Node::Kind::kReduce &&
        plan_.nodes[static_cast<std::size_t>(writer)].at == step.at)
      node.result_of = writer;
    joined(node, steps);
    const int me = add(node, step);
    // If chunks share places, sends are throttled: a receiver takes them in this order, one after
    // the other, and earlier sends would only occupy cores that other work needs.
    if (!plan_.schedule.place.empty() && request_.network) {
      auto& fifo = sends_[{step.peer, step.channel}];
      if (fifo.size() >= kAhead) edge(fifo[fifo.size() - kAhead], me);
      fifo.push_back(me);
    }
    for (const Step& s : steps)
      for (int c = s.at.first; c < s.at.end(); ++c) {
        const auto i = static_cast<std::size_t>(c);
        edge(writer_[i], me);
        if (writer_[i] >= 0) read_.insert(writer_[i]);
        readers_[i].push_back(me);
      }
  }

  // Node `me` writes the chunks: after the last write, and after reads of the memory it writes to.
  void write(int me, Chunks at) {
    for (int c = at.first; c < at.end(); ++c) {
      const auto i = static_cast<std::size_t>(c);
      edge(writer_[i], me);
      const Where to = destination(c);
      for (const int reader : readers_[i])
        if (plan_.nodes[static_cast<std::size_t>(reader)].from == to || request_.in_place) {
          edge(reader, me);
          // Two ranks may exchange a value and each reduce into it: if both values were lent, each
          // reduction would wait for the other to release its view.
          if (plan_.nodes[static_cast<std::size_t>(me)].kind == Node::Kind::kReduce)
            plan_.nodes[static_cast<std::size_t>(reader)].buffered = true;
        }
      readers_[i].clear();
      writer_[i] = me;
      where_[i] = to;
      if (to != Where::kScratch) continue;
      const int before = scratch(c);
      if (before < 0) continue;
      edge(writer_[static_cast<std::size_t>(before)], me);
      for (const int reader : readers_[static_cast<std::size_t>(before)]) edge(reader, me);
    }
  }

  void recv(std::span<const Step> steps) {
    const Step& step = steps[0];
    auto& fifo = received_[{step.peer, step.channel}];
    Node node{.kind = Node::Kind::kRecv, .to = destination(step.at.first)};
    node.ordinal = ordinal(step.channel, fifo.size());
    joined(node, steps);
    const int me = add(node, step);
    for (const Step& s : steps) write(me, s.at);
    ahead(fifo, me, me);
  }

  void recv_reduce(const Step& step) {
    auto& fifo = received_[{step.peer, step.channel}];
    const auto first = static_cast<std::size_t>(step.at.first);
    const int arrive_ordinal = static_cast<int>(ordinal(step.channel, fifo.size()));
    // Only adjacent steps are reduced together: a group that waited for a later step of another
    // peer could hold up the credits that this peer waits for.
    int group = open_;
    const Where from = where_[first];
    Node arrive{.kind = Node::Kind::kArrive};
    arrive.ordinal = static_cast<std::uint32_t>(arrive_ordinal);
    const int me = add(arrive, step);
    if (group < 0) {
      Node reduce{.kind = Node::Kind::kReduce, .from = from, .to = destination(step.at.first)};
      group = add(reduce, step);
      for (int c = step.at.first; c < step.at.end(); ++c) {
        const int before = writer_[static_cast<std::size_t>(c)];
        if (before >= 0) read_.insert(before);
      }
      write(group, step.at);
      open_ = group;
    }
    plan_.nodes[static_cast<std::size_t>(me)].result_of = group;
    edge(me, group);
    const bool views = request_.links[plan_.nodes[static_cast<std::size_t>(me)].link].views;
    if (!views) {
      const std::size_t slot = fifo.size() % kAhead;
      auto& credits = credits_[{step.peer, step.channel}];
      while (credits.size() <= slot) credits.push_back(plan_.credits++);  // plain receives: none
      plan_.nodes[static_cast<std::size_t>(me)].credit = credits[slot];
    }
    ahead(fifo, me, views ? me : group);
  }

  // Posts receives of one channel at most kAhead before the first unfinished one.
  void ahead(std::vector<int>& fifo, int me, int finished_by) {
    if (fifo.size() >= kAhead) edge(fifo[fifo.size() - kAhead], me);
    fifo.push_back(finished_by);
  }

  const PlanRequest& request_;
  const BlockOwnership ownership_;
  const std::vector<std::size_t>& ends_;
  const bool moved_;
  Plan plan_;
  std::vector<Where> where_;
  std::vector<int> writer_;
  std::vector<std::vector<int>> readers_;
  std::set<std::pair<int, int>> edges_;
  std::set<int> read_;
  std::map<int, int> places_;  // by place: the chunk that occupies it
  int open_ = -1;              // the reduce that the next step may join
  std::size_t reduced_ = 0;    // the end of that reduction's steps
  std::map<std::pair<Rank, int>, std::size_t> sent_;
  std::map<std::pair<Rank, int>, std::vector<int>> received_, credits_, sends_;
};

}  // namespace

Plan compile(const Schedule& schedule, const PlanRequest& request, bool packed) {
  const auto layout = !by_blocks(request.collective) ? Plan::Layout::kMessage
                      : packed                       ? Plan::Layout::kPacked
                                                     : Plan::Layout::kBlocks;
  std::vector<std::size_t> ends;
  const Schedule ready = layout == Plan::Layout::kBlocks ? split_chunks(schedule, ends) : schedule;
  for (const bool moved : {false, true}) {
    Compiler compiler(ready, ends, request, layout, moved);
    if (!compiler.run()) continue;
    Plan plan = compiler.finish();
    static std::atomic<std::uint64_t> serial{0};
    plan.serial = ++serial;
    std::set<std::uint8_t> links;
    for (std::uint32_t node = 0; node < plan.nodes.size(); ++node) {
      if (plan.pending[node] == 0) plan.first.push_back(node);
      links.insert(plan.nodes[node].link);
    }
    plan.links.assign(links.begin(), links.end());
    return plan;
  }
  throw Error("a step of the schedule mixes chunks in different buffers");
}

}  // namespace weft
