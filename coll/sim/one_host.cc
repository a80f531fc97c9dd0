// Replaces each message to a rank that is not simulated by a message from such a rank.
#include "coll/sim/one_host.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "coll/engine/engine.h"

namespace weft {
namespace {

constexpr std::uint64_t kOrdinals = (std::uint64_t{1} << kOrdinalBits) - 1;

std::uint64_t key(Rank peer, std::uint64_t ordinal) {
  return static_cast<std::uint64_t>(peer) << kOrdinalBits | ordinal;
}

bool sends(const Node& n) {
  return n.kind == Node::Kind::kSend || n.kind == Node::Kind::kSendJoined;
}

// The members of each reduction, sorted, since the engine reduces in rank order in any case.
std::vector<std::uint32_t> members_of(const Plan& plan) {
  std::vector<std::uint32_t> all = plan.members;
  for (const Node& n : plan.nodes)
    if (n.kind == Node::Kind::kReduce)
      std::ranges::sort(std::span(all).subspan(n.first_member, n.members));
  return all;
}

// The link of a simulated rank. A message to another rank is sent by the rank that sends the
// message it is mapped to; that rank shares this rank's ports, core and completions
// (SimFabricOptions::same_as).
class OneHostLink final : public Transport {
 public:
  using Messages = std::unordered_map<std::uint64_t, OneHost::Message>;
  using Others = std::map<Rank, Transport*>;
  OneHostLink(std::unique_ptr<Transport> own, const Messages& as, const Others& others)
      : own_(std::move(own)), as_(as), others_(others) {}

  void post(std::span<const Transfer> transfers) noexcept override {
    for (Transfer t : transfers) {
      t.head = nullptr;  // messages of different ranks have different heads
      const auto as =
          t.kind == Transfer::Kind::kSend ? as_.find(key(t.peer, t.tag & kOrdinals)) : as_.end();
      Transport* link = own_.get();
      if (as != as_.end()) {
        t.peer = as->second.to;
        t.tag = (t.tag & ~kOrdinals) | as->second.ordinal;
        link = others_.at(as->second.from);
      }
      link->post({&t, 1});
    }
  }
  std::size_t poll(std::span<Completion> out) noexcept override { return own_->poll(out); }
  Views* views() noexcept override { return own_->views(); }
  void cancel(std::uint32_t id_high) noexcept override { own_->cancel(id_high); }
  Caps caps() const override { return own_->caps(); }
  Status cause(Rank peer) const override { return own_->cause(peer); }

 private:
  const std::unique_ptr<Transport> own_;
  const Messages& as_;
  const Others others_;
};

}  // namespace

bool OneHost::applies(const Shape& shape) {
  Rank next = 0;
  for (const auto& ranks : shape.hosts)
    for (const Rank r : ranks)
      if (ranks.size() != shape.hosts[0].size() || r != next++) return false;
  return next > 0;
}

std::vector<Rank> OneHost::ranks() const {
  std::vector<Rank> all;
  for (std::size_t i = 0; i < as_.size(); ++i)
    all.push_back(static_cast<Rank>(i) * (alike_ == Alike::kHosts ? 1 : per_host_));
  return all;
}

std::vector<Rank> OneHost::peers() const {
  std::set<Rank> all;
  for (const Plan* p : first_)
    for (const Node& n : p->nodes)
      if (n.kind != Node::Kind::kReduce && other(n.peer)) all.insert(n.peer);
  return {all.begin(), all.end()};
}

bool OneHost::add(const Plan& plan) {
  const Rank me = as(plan.schedule.rank);
  const Plan& first = *first_[place(me)];
  const auto alike = [&](const Node& a, const Node& b) {
    const auto is = [](const Node& n) {
      return std::tuple{
          n.kind,   n.from,      n.to,           n.link,    n.buffered,        n.at.count,
          n.credit, n.result_of, n.first_member, n.members, n.first_successor, n.successors};
    };
    return is(a) == is(b) && (a.kind == Node::Kind::kReduce || as(a.peer) == as(b.peer));
  };
  if (!std::ranges::equal(first.nodes, plan.nodes, alike) || first.successors != plan.successors ||
      members_of(first) != members_of(plan) || first.pending != plan.pending ||
      first.first != plan.first)
    return false;
  for (std::size_t i = 0; i < plan.nodes.size(); ++i) {
    const Node &node = plan.nodes[i], &own = first.nodes[i];
    if (node.kind == Node::Kind::kReduce || sends(node) || other(node.peer)) continue;
    as_[place(node.peer)][key(plan.schedule.rank, node.ordinal)] = {own.peer, me, own.ordinal};
  }
  return true;
}

bool OneHost::finish() {
  std::set<std::tuple<Rank, Rank, std::uint32_t>> come;
  const auto first = std::exchange(first_, {});
  for (std::size_t i = 0; i < first.size(); ++i)
    for (const Node& n : first[i]->nodes) {
      if (n.kind == Node::Kind::kReduce || !sends(n) || !other(n.peer)) continue;
      const auto as = as_[i].find(key(n.peer, n.ordinal));
      if (as == as_[i].end() || !other(as->second.from)) return false;
      const Message& m = as->second;
      if (!come.emplace(m.from, m.to, m.ordinal).second) return false;
    }
  return true;
}

std::vector<std::unique_ptr<Transport>> OneHost::links(SimFabric& fabric) const {
  OneHostLink::Others others;
  std::vector<std::unique_ptr<Transport>> all;
  for (const auto& messages : as_)
    for (const auto& [sent, m] : messages)
      if (Transport*& another = others[m.from]; another == nullptr)
        another = all.emplace_back(fabric.endpoint(m.from)).get();
  std::vector<std::unique_ptr<Transport>> links;
  for (const Rank r : ranks())
    links.push_back(std::make_unique<OneHostLink>(fabric.endpoint(r), as_[place(r)], others));
  std::ranges::move(all, std::back_inserter(links));
  return links;
}

}  // namespace weft
