// Formats the sentences of a diagnosis. diagnosis.cc determines the cause.
#include "coll/observe/diagnosis_words.h"

#include <fmt/format.h>

#include <cstddef>

#include "coll/observe/diagnosis.h"

namespace weft::words {
namespace {

std::string last_call(const RankSnapshot& t, const OperationReport& op, Rank waiter) {
  if (const OperationReport* before = last_alike(t, op, waiter)) {
    const bool under_way = before->state == OpState::kStarted;
    return fmt::format("last: #{}, {} ago", before->sequence,
                       seconds(under_way ? before->started_s : before->ended_s));
  }
  if (t.operations.empty()) return "no calls yet";
  const OperationReport& o = t.operations.back();
  return fmt::format("last: {}, {} ago", full_title(o), seconds(o.started_s));
}

}  // namespace

const OperationReport* last_alike(const RankSnapshot& on, const OperationReport& o, Rank from) {
  const OperationReport* newest = nullptr;
  for (const OperationReport& c : on.operations)
    if (c.comm == o.comm && c.leader == o.leader && c.members == o.members &&
        c.message == o.message && c.replay == o.replay &&
        (!o.message || (c.sends != o.sends && c.root == from)))
      newest = &c;
  return newest;
}

std::string counted(const std::string& link, const RankSnapshot& a, const RankSnapshot& b) {
  const std::string rail = link.substr(0, link.find(" (")) + " host ";
  std::string text;
  for (const RankSnapshot* t : {&a, &b})
    for (const std::string& line : t->counters)
      if (line.starts_with(rail)) text += fmt::format("; {}", line);
  return text;
}

std::string link_name(const RankSnapshot& t, const PeerProgress& p) {
  const auto l = static_cast<std::size_t>(p.link);
  return p.link >= 0 && l < t.links.size() ? t.links[l] : std::string("shared memory");
}

std::vector<std::string> link_names(const RankSnapshot& t, const PeerProgress& p,
                                    std::uint32_t on) {
  std::vector<std::string> names;
  for (std::size_t l = 0; l < t.links.size() && l < 32; ++l)
    if (on >> l & 1) names.push_back(t.links[l]);
  if (names.empty()) names.push_back(link_name(t, p));
  return names;
}

std::string dead(const RankSnapshot& t) {
  std::string text = fmt::format("rank {} (host {}, pid {}) is dead", t.rank, t.host, t.pid);
  if (t.operations.empty()) return text;
  const OperationReport& o = t.operations.back();
  return text + fmt::format("; its last call: {}, {}", full_title(o), name(o.state));
}

std::string stopped(const RankSnapshot& t, const OperationReport& op, const OperationReport* theirs,
                    Rank waiter) {
  const std::string where = fmt::format("host {}, pid {}", t.host, t.pid);
  if (theirs)
    return fmt::format("rank {} is stopped in state {} in {}, which it began {} ago ({})", t.rank,
                       t.state, full_title(op), seconds(theirs->started_s), where);
  return fmt::format("rank {} never called {} ({}; stopped in state {}; {})", t.rank,
                     full_title(op), last_call(t, op, waiter), t.state, where);
}

std::string not_called(const RankSnapshot& t, const OperationReport& op, Rank waiter) {
  const char* state = t.state == 'R'   ? "running"
                      : t.state == 'S' ? "sleeping"
                      : t.state == 'D' ? "in the kernel"
                                       : "alive";
  const std::string doing =
      t.state == 'L' ? "it has left the job" : fmt::format("{} in its own code", state);
  std::string call = full_title(op);
  if (op.message) {
    OperationReport other = op;
    other.sends = !op.sends;
    other.root = waiter;
    call = full_title(other);
  }
  return fmt::format("rank {} never called {} ({}; {}, host {}, pid {})", t.rank, call,
                     last_call(t, op, waiter), doing, t.host, t.pid);
}

std::string not_waiting(const RankSnapshot& t, const OperationReport& op) {
  return fmt::format("rank {} began {} {} ago and {} (state {})", t.rank, full_title(op),
                     seconds(op.started_s),
                     op.lane ? "its stream has not reached it, or its GPU is busy"
                             : "does not wait for it: it is in its own code",
                     t.state);
}

std::string memory(const OperationReport& op, bool device) {
  if (device) return op.lane ? ", in device memory" : ", in host memory";
  return op.lane ? ", on a stream" : ", on no stream";
}

}  // namespace weft::words
