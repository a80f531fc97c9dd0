// Turns each message to another host into the one that a rank of this host gets from there.
#include "coll/sim/one_host.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "coll/engine/engine.h"

namespace weft {
namespace {

constexpr std::uint64_t kOrdinals = (std::uint64_t{1} << kOrdinalBits) - 1;

bool sends(const Node& n) {
  return n.kind == Node::Kind::kSend || n.kind == Node::Kind::kSendJoined;
}

// A rank of the first host. Its messages to other hosts leave as those of the rank whose message it
// stands for; ports, cores and completions of that rank are its own (SimFabricOptions::same_as).
class OneHostLink final : public Transport {
 public:
  struct Message {
    Transport* from = nullptr;
    Rank to = kNoRank;
    std::uint32_t ordinal = 0;
  };
  using Messages = std::unordered_map<std::uint64_t, Message>;  // by peer and ordinal

  explicit OneHostLink(std::unique_ptr<Transport> own) : own_(std::move(own)) {}
  static std::uint64_t key(Rank peer, std::uint64_t ordinal) {
    return static_cast<std::uint64_t>(peer) << kOrdinalBits | ordinal;
  }
  void add(const Node& send, const Message& as) { as_.emplace(key(send.peer, send.ordinal), as); }

  void post(std::span<const Transfer> transfers) noexcept override {
    for (Transfer t : transfers) {
      t.head = nullptr;  // messages of different ranks have different heads
      const auto as =
          t.kind == Transfer::Kind::kSend ? as_.find(key(t.peer, t.tag & kOrdinals)) : as_.end();
      if (as == as_.end()) {
        own_->post({&t, 1});
        continue;
      }
      t.peer = as->second.to;
      t.tag = (t.tag & ~kOrdinals) | as->second.ordinal;
      as->second.from->post({&t, 1});
    }
  }
  std::size_t poll(std::span<Completion> out) noexcept override { return own_->poll(out); }
  bool release(std::uint64_t token) noexcept override { return own_->release(token); }
  void cancel(std::uint32_t id_high) noexcept override { own_->cancel(id_high); }
  Caps caps() const override { return own_->caps(); }
  Status cause(Rank peer) const override { return own_->cause(peer); }

 private:
  const std::unique_ptr<Transport> own_;
  Messages as_;
};

// Messages from the l-th ranks of hosts to the k-th of others, by l and k.
struct Ends {
  std::vector<const Node*> sent, received;
};
using Far = std::map<std::pair<Rank, Rank>, Ends>;

void add_far(const Plan& plan, int per_host, Far& far) {
  const Rank me = plan.schedule.rank;
  for (const Node& node : plan.nodes) {
    if (node.kind == Node::Kind::kReduce || node.peer / per_host == me / per_host) continue;
    if (sends(node))
      far[{me % per_host, node.peer % per_host}].sent.push_back(&node);
    else
      far[{node.peer % per_host, me % per_host}].received.push_back(&node);
  }
}

}  // namespace

std::vector<Rank> ranks_of_one_host(const Shape& shape) {
  std::vector<Rank> same;
  const std::size_t per_host = shape.hosts.empty() ? 0 : shape.hosts[0].size();
  for (const auto& ranks : shape.hosts)
    for (std::size_t l = 0; l < ranks.size(); ++l) {
      if (ranks.size() != per_host || ranks[l] != static_cast<Rank>(same.size())) return {};
      same.push_back(static_cast<Rank>(l));
    }
  return same;
}

bool does_alike(std::span<const Plan* const> plans, const Plan& plan) {
  const auto per_host = static_cast<int>(plans.size());
  const Rank me = plan.schedule.rank;
  const Plan& first = *plans[static_cast<std::size_t>(me % per_host)];
  const auto alike = [&](const Node& a, const Node& b) {
    return a.kind == b.kind && a.from == b.from && a.to == b.to && a.link == b.link &&
           a.buffered == b.buffered && a.at.count == b.at.count && a.credit == b.credit &&
           a.result_of == b.result_of && a.first_member == b.first_member &&
           a.members == b.members && a.first_successor == b.first_successor &&
           a.successors == b.successors &&
           (a.kind == Node::Kind::kReduce || a.peer % per_host == b.peer % per_host);
  };
  if (!std::ranges::equal(first.nodes, plan.nodes, alike) || first.successors != plan.successors ||
      first.members != plan.members || first.pending != plan.pending || first.first != plan.first)
    return false;
  Far sent, received;
  for (const Plan* p : plans) add_far(*p, per_host, sent);
  add_far(plan, per_host, received);
  for (const auto& [ends, messages] : received)
    for (std::size_t i = 0; i < messages.received.size(); ++i) {
      const Node& receive = *messages.received[i];
      if (receive.peer >= per_host) continue;
      const auto& from = sent[ends].sent;
      if (i >= from.size() || from[i]->peer != me || from[i]->ordinal != receive.ordinal)
        return false;
    }
  return true;
}

std::vector<std::unique_ptr<Transport>> links_of_one_host(SimFabric& fabric,
                                                          std::span<const Plan* const> plans) {
  const auto per_host = static_cast<int>(plans.size());
  Far far;
  std::vector<std::unique_ptr<OneHostLink>> links;
  for (const Plan* p : plans) {
    add_far(*p, per_host, far);
    links.push_back(std::make_unique<OneHostLink>(fabric.endpoint(p->schedule.rank)));
  }
  std::map<Rank, Transport*> others;
  std::vector<std::unique_ptr<Transport>> all;
  for (const auto& [ends, messages] : far)
    for (std::size_t i = 0; i < messages.sent.size(); ++i) {
      const Node& receive = *messages.received.at(i);
      auto [other, added] = others.try_emplace(receive.peer);
      if (added) other->second = all.emplace_back(fabric.endpoint(receive.peer)).get();
      links[static_cast<std::size_t>(ends.first)]->add(
          *messages.sent[i], {other->second, ends.second, receive.ordinal});
    }
  std::ranges::move(links, std::inserter(all, all.begin()));
  return all;
}

}  // namespace weft
