// Runs the programs of all ranks concurrently in virtual time. Does not depend on a fabric.
#include "perf/replay/virtual_play.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <list>
#include <map>
#include <optional>
#include <queue>
#include <set>
#include <tuple>
#include <utility>

#include "topo/base/status.h"

namespace weft::replay {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// Constraints on a program's nodes: dependencies, and the issue order of the calls of a group.
struct Order {
  std::vector<std::vector<int>> next;  // nodes that wait for this one to end
  std::vector<int> issued_after;       // the call that must be posted first; -1: none
  std::vector<int> issues;             // the call that may be posted next; -1: none
};

Order order_of(const Program& program) {
  Order order;
  order.next.resize(program.size());
  order.issued_after.assign(program.size(), -1);
  order.issues.assign(program.size(), -1);
  // By kind, group or peer, and tag. Receives of different tags are independent; sends are not,
  // since weft delivers the messages of a pair in order.
  std::map<std::tuple<NodeKind, int, std::int64_t>, int> last;
  for (std::size_t i = 0; i < program.size(); ++i) {
    const TraceNode& node = program[i];
    for (const int a : node.after)
      order.next[static_cast<std::size_t>(a)].push_back(static_cast<int>(i));
    if (node.kind == NodeKind::kCompute) continue;
    const int whom = node.kind == NodeKind::kCollective ? node.group : node.peer;
    const std::int64_t tag = node.kind == NodeKind::kRecv ? node.tag : 0;
    const auto [it, first] = last.try_emplace({node.kind, whom, tag}, static_cast<int>(i));
    if (first) continue;
    order.issued_after[i] = it->second;
    order.issues[static_cast<std::size_t>(it->second)] = static_cast<int>(i);
    it->second = static_cast<int>(i);
  }
  return order;
}

class VirtualPlay {
 public:
  VirtualPlay(const JobTrace& trace, const CostOf& cost, double scale)
      : trace_(trace), cost_(cost), scale_(scale), keys_(keys_of(trace)) {
    for (const Program& program : trace.programs) orders_.push_back(order_of(program));
    const int ranks = trace.alike() ? 1 : trace.ranks;
    for (Rank r = 0; r < ranks; ++r) {
      members_.emplace_back(
          trace.program(r),
          orders_[static_cast<std::size_t>(trace.program_of[static_cast<std::size_t>(r)])], keys_);
      left_ += members_.back().program.size();
    }
  }

  Played run() {
    // Posting a call makes the next one of its group ready, so collect the first nodes beforehand.
    std::vector<std::pair<Rank, int>> first;
    for (std::size_t r = 0; r < members_.size(); ++r)
      for (std::size_t i = 0; i < members_[r].program.size(); ++i)
        if (members_[r].missing[i] == 0)
          first.emplace_back(static_cast<Rank>(r), static_cast<int>(i));
    for (const auto& [r, i] : first) ready(r, i);
    while (left_ > 0) {
      for (; !over_.empty() && left_ > 0; over_.pop())
        ended(over_.front().first, over_.front().second);
      if (left_ == 0) break;
      double next = computing_.empty() ? kNever : computing_.top().at_us;
      share();
      for (const Active& a : active_) next = std::min(next, now_us_ + a.left_us / a.speed);
      if (next == kNever) throw Error(why_stuck());
      step_to(next);
    }
    if (!messages_.empty()) throw Error(why_unmet());
    std::vector<Tally> sums(keys_.size());
    double compute_us = 0;
    for (const Member& m : members_) {
      compute_us += m.ledger.compute_us();
      for (std::size_t k = 0; k < sums.size(); ++k) {
        const Tally& t = m.ledger.tallies()[k];
        sums[k].calls += t.calls;
        sums[k].time_us += t.time_us;
        sums[k].exposed_us += t.exposed_us;
        sums[k].alone_us += t.alone_us;
      }
    }
    return summarize(keys_, sums, static_cast<int>(members_.size()), compute_us, now_us_,
                     calls_of(trace_, keys_));
  }

 private:
  struct Member {
    Member(const Program& p, const Order& o, const std::vector<CallKey>& keys)
        : program(p), order(o), ledger(keys), missing(p.size()), calls(p.size(), -1) {
      for (std::size_t i = 0; i < p.size(); ++i)
        missing[i] = static_cast<int>(p[i].after.size()) + (o.issued_after[i] >= 0 ? 1 : 0);
    }
    const Program& program;
    const Order& order;
    Ledger ledger;
    std::vector<int> missing, calls;
    std::set<int> to_compute;
    bool computes = false;
    int rails = 0, inside = 0;  // active calls
    // Number of calls so far, by group.
    std::map<int, int> issued;
    std::map<std::tuple<bool, Rank, std::int64_t>, int> messages;  // by direction, peer and tag
  };
  struct Computing {
    double at_us;
    Rank rank;
    int node;
    bool operator>(const Computing& o) const {
      return std::tie(at_us, rank) > std::tie(o.at_us, o.rank);
    }
  };
  // Identifies a call: a list of a group, or the sender, receiver and tag of a message; and the
  // index of the call among the calls of the list or message.
  using Place = std::tuple<const void*, Rank, Rank, std::int64_t, int>;
  // A call that only some of its ranks have posted.
  struct Waiting {
    std::vector<std::pair<Rank, int>> posted;  // rank and node
    std::size_t wanted = 0;
  };
  struct Active {
    std::vector<std::pair<Rank, int>> posted;
    double left_us = 0;
    bool rails = false;
    double speed = 1;
    std::optional<Place> eager = {};  // the message, if its send completed at once
  };
  // An eager message: the ranks that have posted it, and whether it has arrived.
  struct Message {
    std::optional<std::pair<Rank, int>> sent, received;
    bool arrived = false;
  };

  Member& member(Rank r) { return members_[static_cast<std::size_t>(r)]; }

  void ready(Rank r, int i) {
    const TraceNode& node = member(r).program[static_cast<std::size_t>(i)];
    if (node.kind == NodeKind::kCompute) {
      member(r).to_compute.insert(i);
      compute_next(r);
    } else {
      post(r, i, node);
    }
  }

  void compute_next(Rank r) {
    Member& m = member(r);
    if (m.computes || m.to_compute.empty()) return;
    const int i = *m.to_compute.begin();
    m.to_compute.erase(m.to_compute.begin());
    m.computes = true;
    m.ledger.compute(true, now_us_);
    computing_.push({now_us_ + m.program[static_cast<std::size_t>(i)].compute_us * scale_, r, i});
  }

  void post(Rank r, int i, const TraceNode& node) {
    Member& m = member(r);
    m.calls[static_cast<std::size_t>(i)] = m.ledger.post(key_of(node), now_us_);
    Place place;
    std::vector<Rank> ranks;
    const bool alone = members_.size() == 1 && trace_.ranks > 1;
    std::size_t wanted = 2;
    if (node.kind == NodeKind::kCollective) {
      const std::vector<Rank>* list = trace_.list_of(node.group, r);
      if (list == nullptr)
        throw Error(fmt::format("rank {} calls {} in group '{}' that it is not in", r,
                                name(node.collective),
                                trace_.groups[static_cast<std::size_t>(node.group)].name));
      place = {list, 0, 0, 0, m.issued[node.group]++};
      ranks = *list;
      wanted = alone ? 1 : list->size();
    } else {
      const bool sends = node.kind == NodeKind::kSend;
      const Rank from = sends ? r : node.peer, to = sends ? node.peer : r;
      place = {nullptr, from, to, node.tag, m.messages[{sends, node.peer, node.tag}]++};
      ranks = {from, to};
      if (trace_.sends_are_eager) {
        post_message(r, i, node, place, ranks);
        if (const int next = m.order.issues[static_cast<std::size_t>(i)]; next >= 0) met(r, next);
        return;
      }
    }
    Waiting& w = waiting_[place];
    if (!w.posted.empty()) check_same(r, node, w.posted[0]);
    w.posted.emplace_back(r, i);
    if (w.posted.size() == wanted) {
      const CallCost cost = cost_(node, ranks);
      for (const auto& [rank, n] : w.posted)
        ++(cost.rails ? member(rank).rails : member(rank).inside);
      active_.push_back({std::move(w.posted), cost.us, cost.rails, 1, {}});
      waiting_.erase(place);
    }
    if (const int next = m.order.issues[static_cast<std::size_t>(i)]; next >= 0) met(r, next);
  }

  // The transfer starts when the send is posted, and the receive ends when the message has arrived.
  void post_message(Rank r, int i, const TraceNode& node, const Place& place,
                    const std::vector<Rank>& ranks) {
    Message& message = messages_[place];
    const bool sends = node.kind == NodeKind::kSend;
    (sends ? message.sent : message.received) = {r, i};
    if (const auto& other = sends ? message.received : message.sent) check_same(r, node, *other);
    if (sends) {
      const CallCost cost = cost_(node, ranks);
      for (const Rank rank : ranks) ++(cost.rails ? member(rank).rails : member(rank).inside);
      active_.push_back({{{r, i}}, cost.us, cost.rails, 1, place});
      over_.emplace(r, i);
    } else if (message.arrived) {
      received(place);
    }
  }

  void received(const Place& place) {
    const auto [r, i] = *messages_.at(place).received;
    member(r).ledger.done(member(r).calls[static_cast<std::size_t>(i)], now_us_);
    over_.emplace(r, i);
    messages_.erase(place);
  }

  void check_same(Rank r, const TraceNode& node, const std::pair<Rank, int>& other) {
    const TraceNode& o = member(other.first).program[static_cast<std::size_t>(other.second)];
    const bool pair = node.kind != NodeKind::kCollective;
    if (node.bytes == o.bytes && (pair || (node.collective == o.collective && node.back == o.back &&
                                           node.root == o.root && node.type == o.type)))
      return;
    throw Error(fmt::format(
        "rank {}, node {}: {} of {} bytes meets rank {}'s node {}, {} of {} bytes: the calls of a "
        "group must be the same on its ranks",
        r, node.id, word_of(key_of(node)), node.bytes, other.first, o.id, word_of(key_of(o)),
        o.bytes));
  }

  void met(Rank r, int i) {
    if (--member(r).missing[static_cast<std::size_t>(i)] == 0) ready(r, i);
  }

  void ended(Rank r, int i) {
    --left_;
    for (const int n : member(r).order.next[static_cast<std::size_t>(i)]) met(r, n);
  }

  void share() {
    for (Active& a : active_) {
      int most = 1;
      const auto users = [&](Rank r) { return a.rails ? member(r).rails : member(r).inside; };
      for (const auto& [r, i] : a.posted) most = std::max(most, users(r));
      if (a.eager) most = std::max(most, users(std::get<2>(*a.eager)));
      a.speed = 1.0 / most;
    }
  }

  void step_to(double us) {
    const double passed = us - now_us_;
    now_us_ = us;
    std::vector<Active> over;
    for (auto a = active_.begin(); a != active_.end();) {
      const double rest = a->left_us - passed * a->speed;
      a->left_us = rest;
      // Rounding leaves fractions of a picosecond.
      if (rest > 1e-6) {
        ++a;
        continue;
      }
      over.push_back(std::move(*a));
      a = active_.erase(a);
    }
    for (const Active& a : over) {
      for (const auto& [r, i] : a.posted) {
        --(a.rails ? member(r).rails : member(r).inside);
        member(r).ledger.done(member(r).calls[static_cast<std::size_t>(i)], us);
      }
      if (!a.eager) continue;
      const Rank receiver = std::get<2>(*a.eager);
      --(a.rails ? member(receiver).rails : member(receiver).inside);
      Message& message = messages_.at(*a.eager);
      message.arrived = true;
      if (message.received) received(*a.eager);
    }
    std::vector<std::pair<Rank, int>> computed;
    while (!computing_.empty() && computing_.top().at_us <= us) {
      const auto [at_us, r, i] = computing_.top();
      computing_.pop();
      member(r).computes = false;
      member(r).ledger.compute(false, us);
      computed.emplace_back(r, i);
    }
    for (const Active& a : over)
      if (!a.eager)
        for (const auto& [r, i] : a.posted) ended(r, i);
    for (const auto& [r, i] : computed) {
      ended(r, i);
      compute_next(r);
    }
  }

  // Returns the error for a message that only one of its two ranks has posted at the end or in a
  // deadlock.
  std::string why_unmet() const {
    for (const auto& [place, message] : messages_) {
      if (message.sent && message.received) continue;
      const auto [r, i] = message.sent ? *message.sent : *message.received;
      const Member& m = members_[static_cast<std::size_t>(r)];
      const TraceNode& node = m.program[static_cast<std::size_t>(i)];
      return fmt::format(
          "rank {}, node {}{}: {} of {} bytes{} waits for rank {} for ever: that rank never {}, or "
          "waits for this rank itself",
          r, node.id, node.name.empty() ? "" : " (" + node.name + ")", word_of(key_of(node)),
          node.bytes, node.tag ? fmt::format(" and tag {}", node.tag) : "", node.peer,
          message.sent ? "receives it" : "sends it");
    }
    return "the job does not end";
  }

  std::string why_stuck() const {
    for (const auto& [place, w] : waiting_) {
      const auto [r, i] = w.posted[0];
      const Member& m = members_[static_cast<std::size_t>(r)];
      const TraceNode& node = m.program[static_cast<std::size_t>(i)];
      const std::string whom =
          node.kind == NodeKind::kCollective
              ? fmt::format("the other ranks of group '{}'",
                            trace_.groups[static_cast<std::size_t>(node.group)].name)
              : fmt::format("rank {}", node.peer);
      return fmt::format(
          "rank {}, node {}{}: {} of {} bytes waits for {} for ever: they do not call it, or wait "
          "for this rank themselves",
          r, node.id, node.name.empty() ? "" : " (" + node.name + ")", word_of(key_of(node)),
          node.bytes, whom);
    }
    return why_unmet();
  }

  const JobTrace& trace_;
  const CostOf& cost_;
  const double scale_;
  const std::vector<CallKey> keys_;
  std::vector<Order> orders_;
  std::vector<Member> members_;
  std::size_t left_ = 0;
  double now_us_ = 0;
  std::priority_queue<Computing, std::vector<Computing>, std::greater<>> computing_;
  std::map<Place, Waiting> waiting_;
  std::map<Place, Message> messages_;      // eager
  std::queue<std::pair<Rank, int>> over_;  // nodes whose successors must be updated
  std::list<Active> active_;
};

}  // namespace

Played play_virtually(const JobTrace& trace, const CostOf& cost, double compute_scale) {
  return VirtualPlay(trace, cost, compute_scale).run();
}

void check_that_it_ends(const JobTrace& trace) {
  (void)play_virtually(
      trace, [](const TraceNode&, const std::vector<Rank>&) { return CallCost{}; }, 0);
}

}  // namespace weft::replay
