// Follows the edges between waiting ranks to the root cause of a hang, and formats it as text and
// JSON. This file is independent of how the snapshots are gathered.
#include "coll/observe/diagnosis.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "coll/observe/diagnosis_words.h"

namespace weft {
namespace {

// If a rank has waited for kLongS, calls that began less than kMomentS ago are ignored: another
// thread of their rank makes short calls one after the other.
constexpr double kLongS = 1, kMomentS = 0.1;

// The arguments that must be equal on all ranks of a call.
std::string signature(const OperationReport& o) {
  OperationReport alike = o;
  if (by_pairs(o)) alike.count = 0;
  return fmt::format("{}{}: {}{}", name(o.collective), o.is_vector ? "_v" : "", arguments(alike),
                     o.lane ? ", by a lane" : "");
}

struct Finding {
  Cause cause;
  Rank rank, other = kNoRank;
  std::string text;
  std::set<Rank> witnesses;  // ranks that wait for it
  // A link through shared memory loses no bytes: snapshots are read one after the other, and bytes
  // that seem lost arrived in between. Such a finding is reported only if there is no other.
  bool memory = false;
};

class Judge {
 public:
  explicit Judge(const Evidence& evidence) : evidence_(evidence) {
    for (const RankSnapshot& t : evidence.ranks) {
      const RankSnapshot*& known = of_[t.rank];
      if (!known || (!known->own && t.own)) known = &t;
    }
    double longest = 0;
    std::vector<const OperationReport*> lasting;
    for (const auto& [rank, t] : of_)
      for (const OperationReport* o : stuck(*t)) {
        longest = std::max(longest, o->started_s);
        if (o->started_s >= kMomentS) lasting.push_back(o);
      }
    if (longest >= kLongS) lasting_ = std::move(lasting);
  }

  Diagnosis judge() {
    for (const auto& [rank, t] : of_) {
      diagnosis_.waited_s = std::max(diagnosis_.waited_s, t->waits_s);
      if (t->dead()) find({Cause::kDead, rank, kNoRank, words::dead(*t), {rank}});
    }
    for (const auto& [rank, t] : of_)
      if (!stuck(*t).empty() && !t->stopped() && !t->dead()) visit(*t);
    if (findings_.empty() && circle_.empty()) {
      diagnosis_.text =
          diagnosis_.waited_s > 0 ? "ranks wait, but no rank is late" : "no rank waits";
      return std::move(diagnosis_);
    }
    if (findings_.empty()) silent_circle();
    if (findings_.empty()) find_circle(circle_);
    const Finding& root = *std::ranges::min_element(findings_, [](const auto& a, const auto& b) {
      if (a.memory != b.memory) return b.memory;
      if (a.cause != b.cause) return a.cause < b.cause;
      if (a.witnesses.size() != b.witnesses.size()) return a.witnesses.size() > b.witnesses.size();
      return a.rank < b.rank;
    });
    diagnosis_.cause = root.cause;
    diagnosis_.rank = root.rank;
    diagnosis_.other = root.other;
    diagnosis_.text = root.text;
    return std::move(diagnosis_);
  }

 private:
  using Step = std::pair<const RankSnapshot*, const OperationReport*>;

  const RankSnapshot* of(Rank r) const {
    const auto found = of_.find(r);
    return found == of_.end() ? nullptr : found->second;
  }
  bool silent(Rank r) const { return std::ranges::count(evidence_.silent, r) != 0; }

  // The operations in which a rank waits for a peer.
  std::vector<const OperationReport*> stuck(const RankSnapshot& t) const {
    std::vector<const OperationReport*> ops;
    if (t.waits_s <= 0) return ops;
    for (const OperationReport& o : t.operations)
      if (o.state == OpState::kStarted && !o.peers.empty() &&
          (o.peers.front().receives() || o.peers.front().sends()) && !passing(o))
        ops.push_back(&o);
    return ops;
  }
  bool passing(const OperationReport& o) const {
    return !lasting_.empty() && o.started_s < kMomentS &&
           std::ranges::none_of(lasting_, [&](const auto* l) { return l->same_call(o); });
  }

  // The same call on another rank; for a message, the peer's call.
  static const OperationReport* counterpart(const RankSnapshot& on, const OperationReport& o,
                                            Rank from) {
    for (const OperationReport& c : on.operations)
      if (c.same_call(o) && (!o.message || (c.sends != o.sends && c.root == from))) return &c;
    return nullptr;
  }
  void find(Finding finding) {
    for (Finding& known : findings_)
      if (known.cause == finding.cause && known.rank == finding.rank &&
          known.memory == finding.memory) {
        known.witnesses.merge(finding.witnesses);
        return;
      }
    findings_.push_back(std::move(finding));
  }

  void visit(const RankSnapshot& t) {
    if (!visited_.insert(t.rank).second) return;
    for (const OperationReport* op : stuck(t)) {
      path_.push_back({&t, op});
      compare(*op);
      for (const PeerProgress& p : op->peers)
        if (p.receives() || p.sends()) follow(t, *op, p);
      path_.pop_back();
    }
  }

  // The links with outstanding transfers.
  static std::uint32_t outstanding(const PeerProgress& p) {
    return p.receives() ? p.recvs_on : p.sends_on;
  }

  void edge(const RankSnapshot& t, const OperationReport& op, const PeerProgress& p) {
    diagnosis_.edges.push_back(
        fmt::format("rank {} waits for rank {} in {} ({})", t.rank, p.peer, full_title(op),
                    fmt::join(words::link_names(t, p, outstanding(p)), ", ")));
  }

  void follow(const RankSnapshot& t, const OperationReport& op, const PeerProgress& p) {
    edge(t, op, p);
    const Rank r = p.peer;
    const RankSnapshot* peer = of(r);
    if (!peer) {
      const bool known = silent(r);
      // Without rank 0, no rank's heartbeats are available.
      if (!known && silent(0))
        return find({Cause::kSilent, 0, kNoRank, "rank 0 does not respond", {t.rank}});
      return find({known ? Cause::kSilent : Cause::kUnknown,
                   r,
                   kNoRank,
                   fmt::format("rank {} {}", r,
                               known ? "does not respond: stopped, or its host is cut off"
                                     : "has no snapshot"),
                   {t.rank}});
    }
    if (peer->dead()) return find({Cause::kDead, r, kNoRank, words::dead(*peer), {t.rank}});
    const OperationReport* theirs = counterpart(*peer, op, t.rank);
    if (peer->stopped())
      return find(
          {Cause::kStopped, r, kNoRank, words::stopped(*peer, op, theirs, t.rank), {t.rank}});
    const OperationReport* before = words::last_alike(*peer, op, t.rank);
    if (!theirs && before && before->sequence > op.sequence) return lost(t, op, p, *peer);
    if (!theirs) {
      if (!stuck(*peer).empty()) return descend(*peer, nullptr);
      return find({Cause::kNotCalled, r, kNoRank, words::not_called(*peer, op, t.rank), {t.rank}});
    }
    if (signature(*theirs) != signature(op) && !op.message) return;  // compare() reports it
    if (theirs->state == OpState::kDone) {
      if (p.receives()) lost(t, op, p, *peer);
      return;
    }
    if (theirs->state == OpState::kFailed) return;
    if (peer->waits_s <= 0)
      return find({Cause::kNotWaiting, r, kNoRank, words::not_waiting(*peer, *theirs), {t.rank}});
    if (theirs->lane && theirs->surveyed && op.part != theirs->part) {
      // A rank that is at a later step has sent the data that this step needs.
      if (theirs->part > op.part && p.receives()) return lost(t, op, p, *peer);
      if (theirs->part < op.part) descend(*peer, theirs);
      return;
    }
    const auto* back = progress_with(*theirs, t.rank, p.link);
    const bool all_told = theirs->surveyed && theirs->peers.size() < kMostPeers;
    if (by_pairs(op) && !back && all_told) return unequal_pair(t, op, p, *peer);
    if (back && p.receives() && back->sends_posted > p.recvs_done) return lost(t, op, p, *peer);
    if (back && !p.receives() && p.sends_posted > back->recvs_done &&
        back->recvs_posted > back->recvs_done)
      return lost(t, op, p, *peer);
    descend(*peer, theirs);
  }

  static const PeerProgress* progress_with(const OperationReport& op, Rank rank, int link) {
    for (const PeerProgress& p : op.peers)
      if (p.peer == rank && p.link == link) return &p;
    return nullptr;
  }

  // theirs: the call of `next` that the rank waits for; null if `next` has not made the call.
  void descend(const RankSnapshot& next, const OperationReport* theirs) {
    const auto begin = std::ranges::find(path_, &next, &Step::first);
    if (begin == path_.end()) return visit(next);
    const std::vector<Step> circle(begin, path_.end());
    // Within one call, ranks wait for each other whatever the cause, so such a cycle is reported
    // only if no other cause is found. The same applies to a cycle in which `next` has made the
    // call and waits in another call.
    if (one_call(circle) || (theirs && theirs != begin->second)) {
      if (circle_.empty()) circle_ = circle;
    } else {
      find_circle(circle);
    }
  }

  // Compares the arguments that all ranks passed to one call.
  void compare(const OperationReport& op) {
    if (op.message) return;
    std::map<std::string, std::vector<Step>> by_signature;
    for (const auto& [rank, t] : of_)
      if (const OperationReport* theirs = counterpart(*t, op, rank))
        by_signature[signature(*theirs)].push_back({t, theirs});
    if (by_signature.size() < 2) return;
    // Blames the smallest group; of groups with the same size, the one with the higher rank.
    const auto [few, many] = std::ranges::minmax_element(by_signature, {}, [](const auto& group) {
      return std::pair(group.second.size(), -group.second[0].first->rank);
    });
    const auto& [wrong, wrong_op] = few->second[0];
    const auto& [right, right_op] = many->second[0];
    const bool same =
        wrong_op->collective == right_op->collective && wrong_op->is_vector == right_op->is_vector;
    const bool memory = same && arguments(*wrong_op) == arguments(*right_op);
    const bool device = wrong_op->on_device || right_op->on_device;
    const auto passed = [&](const Step& s) {
      const std::string where = memory ? words::memory(*s.second, device) : std::string();
      return same ? fmt::format("rank {} passed {}{}", s.first->rank, arguments(*s.second), where)
                  : fmt::format("rank {} called {}{} ({})", s.first->rank,
                                name(s.second->collective), s.second->is_vector ? "_v" : "",
                                arguments(*s.second));
    };
    Step first{right, right_op}, second{wrong, wrong_op};
    if (second.first->rank < first.first->rank) std::swap(first, second);
    find({Cause::kMismatch,
          wrong->rank,
          right->rank,
          fmt::format("{}: {}, {}", same ? full_title(op) : fmt::format("call #{}", op.sequence),
                      passed(first), passed(second)),
          {}});
  }

  void lost(const RankSnapshot& to, const OperationReport& op, const PeerProgress& p,
            const RankSnapshot& from) {
    const bool receives = p.receives();
    // A link through shared memory loses no bytes.
    if (by_pairs(op) && receives && words::link_name(to, p) == "shm")
      return unequal_pair(to, op, p, from);
    const RankSnapshot &a = receives ? from : to, &b = receives ? to : from;
    // A receiver waits on all rails, also for data that was not sent yet: only the sender's links
    // are exact.
    const OperationReport* theirs = counterpart(from, op, to.rank);
    const PeerProgress* back = theirs ? progress_with(*theirs, to.rank, p.link) : nullptr;
    const std::uint32_t here = outstanding(p);
    const std::uint32_t both = !back ? 0 : here & (receives ? back->sends_on : back->recvs_on);
    const auto links = words::link_names(to, p, both ? both : here);
    std::string counted;
    for (const std::string& link : links) counted += words::counted(link, a, b);
    const std::string hosts = a.host == b.host
                                  ? fmt::format("within host {}", a.host)
                                  : fmt::format("between hosts {} and {}", a.host, b.host);
    find({Cause::kLink,
          a.rank,
          b.rank,
          fmt::format("{} {} move{} no bytes: what rank {} sent in {} has not reached rank {}{}{}",
                      fmt::join(links, " and "), hosts, links.size() > 1 ? "" : "s", a.rank,
                      full_title(op), b.rank, counted,
                      by_pairs(op) ? "; or the counts that both passed for it differ" : ""),
          {to.rank},
          links[0] == "shm" || links[0] == "shared memory"});
  }

  // In an all_to_all_v a rank whose count is 0 sends no message, so the receiver gets no
  // information about the mismatch.
  void unequal_pair(const RankSnapshot& t, const OperationReport& op, const PeerProgress& p,
                    const RankSnapshot& peer) {
    const RankSnapshot &from = p.receives() ? peer : t, &to = p.receives() ? t : peer;
    find({Cause::kMismatch,
          peer.rank,
          t.rank,
          fmt::format("{}: rank {} expects elements from rank {}, which sends it fewer, or none",
                      full_title(op), to.rank, from.rank),
          {t.rank}});
  }

  static bool one_call(const std::vector<Step>& circle) {
    return std::ranges::all_of(
        circle, [&](const Step& s) { return s.second->same_call(*circle[0].second); });
  }

  // Ranks of one call also wait for each other if a host is cut off: hosts that share a machine can
  // read each other's recorders, although the control plane receives no heartbeat.
  void silent_circle() {
    for (const auto& [t, op] : circle_)
      if (silent(t->rank))
        find({Cause::kSilent,
              t->rank,
              kNoRank,
              fmt::format("rank {} on host {} does not respond: stopped, or its host is cut off",
                          t->rank, t->host),
              {}});
  }

  static std::vector<std::string> links_to(const RankSnapshot& t, const OperationReport& op,
                                           Rank peer) {
    for (const PeerProgress& p : op.peers)
      if (p.peer == peer) return words::link_names(t, p, outstanding(p));
    return {"no link"};
  }

  void find_circle(const std::vector<Step>& circle) {
    std::string text = "ranks wait for each other: ";
    for (std::size_t i = 0; i < circle.size(); ++i) {
      const auto& [t, op] = circle[i];
      const Rank next = circle[(i + 1) % circle.size()].first->rank;
      if (i < 4 || circle.size() < 6)
        text += fmt::format("{}rank {} is in {} and waits for rank {} ({})", i ? ", " : "", t->rank,
                            full_title(*op), next, fmt::join(links_to(*t, *op, next), ", "));
    }
    // Messages with the same number in the same direction are not two ends of one message.
    const bool other_messages =
        circle[0].second->message &&
        (circle.size() != 2 || circle[0].second->sends == circle[1].second->sends);
    diagnosis_.other_order = !one_call(circle) || other_messages;
    text += !diagnosis_.other_order
                ? "; all have made the same call: this is a bug of weft, or bytes were lost"
                : "; call the communicators, and messages, in the same order on all ranks";
    find({Cause::kCircle, circle.front().first->rank, circle.back().first->rank, text, {}});
  }

  const Evidence& evidence_;
  std::map<Rank, const RankSnapshot*> of_;
  std::vector<const OperationReport*> lasting_;  // calls to consider if a rank has waited for long
  std::set<Rank> visited_;
  std::vector<Step> path_, circle_;
  std::vector<Finding> findings_;
  Diagnosis diagnosis_;
};

}  // namespace

const char* name(Cause cause) {
  constexpr const char* kNames[] = {"dead",        "stopped", "silent", "mismatch", "not called",
                                    "not waiting", "circle",  "link",   "unknown",  "none"};
  return kNames[static_cast<std::size_t>(cause)];
}

Code code_of(Cause cause) {
  switch (cause) {
    case Cause::kDead:
    case Cause::kStopped:
    case Cause::kSilent:
      return Code::kPeerFailed;
    case Cause::kMismatch:
      return Code::kMismatch;
    default:
      return Code::kTimeout;
  }
}

std::string seconds(double s) {
  if (s < 0.0995) return fmt::format("{:.0f} ms", s * 1e3);
  return s < 9.95 ? fmt::format("{:.1f} s", s) : fmt::format("{:.0f} s", s);
}

Diagnosis diagnose(const Evidence& evidence) { return Judge(evidence).judge(); }

std::string to_json(const Diagnosis& d, const Evidence& evidence) {
  nlohmann::ordered_json j = {{"schema", "weft.doctor/1"},
                              {"cause", name(d.cause)},
                              {"rank", d.rank},
                              {"other", d.other},
                              {"waited_s", d.waited_s},
                              {"text", d.text},
                              {"edges", d.edges},
                              {"silent", evidence.silent},
                              {"size", evidence.size},
                              {"ranks", nlohmann::ordered_json::array()}};
  for (const RankSnapshot& t : evidence.ranks)
    j["ranks"].push_back(nlohmann::ordered_json::parse(encode(t)));
  return j.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace weft
