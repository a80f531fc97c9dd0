// The checker's own test: it must reject every wrong mutant of every algorithm, and no right one.
//
// Which mutants are right is decided by an interpreter that shares no code with the checker: it
// runs all ranks in a random order, step by step, with queues for channels and the values written
// out as text, "((0+1)+(2+3))". It follows the rules at the top of coll/check_graph.h, FIFO and
// credits included; so there is no class of mutants in which the two may differ.
// labels: sim
// ctest: whole
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <deque>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "coll/check.h"
#include "tests/coll/schedules.h"

namespace weft {
namespace {

using Random = std::mt19937;

struct Case {
  Collective collective;
  Rank root;
  int credits;
};

class Interpreter {
 public:
  Interpreter(const std::vector<Schedule>& all, const Case& c, Random& random)
      : all_(all), case_(c), random_(random) {
    for (const Schedule& s : all) {
      auto& state = ranks_.emplace_back();
      state.values.resize(s.nchunks);
      state.posted.resize(s.steps.size());
      state.done.resize(s.steps.size());
      state.messages.resize(s.steps.size());
      for (int c2 = 0; c2 < s.nchunks; ++c2)
        if (starts_with_value(s, c2)) state.values[c2] = {leaf(s.rank)};
    }
  }

  bool right() {
    std::vector<std::pair<int, int>> left;
    for (const Schedule& s : all_)
      for (int i = 0; i < static_cast<int>(s.steps.size()); ++i) left.push_back({s.rank, i});
    for (bool moved = true; moved && !wrong_;) {
      moved = false;
      std::shuffle(left.begin(), left.end(), random_);
      for (auto [rank, i] : left) moved |= advance(rank, i);
      std::erase_if(left, [&](auto at) { return ranks_[at.first].done[at.second]; });
    }
    if (wrong_ || !left.empty()) return false;  // something is unmatched, or a deadlock
    for (const auto& [key, channel] : channels_)
      if (channel.sent != channel.taken) return false;
    return result_right();
  }

 private:
  // Parts of a sum that is being added up; one part once it is complete. Empty: unwritten.
  using Value = std::vector<std::string>;
  struct RankState {
    std::vector<Value> values;
    std::vector<bool> posted, done;
    std::vector<std::vector<std::string>> messages;  // taken, not yet used
  };
  struct Message {
    Chunks at;
    std::vector<std::string> values;
    bool joined = false;
  };
  struct Channel {
    std::deque<Message> queue;
    int sent = 0, taken = 0;
  };

  static std::string leaf(Rank r) { return fmt::format("<{}>", r); }

  int block(const Schedule& s, int c) const { return s.block.empty() ? c : s.block[c]; }

  bool starts_with_value(const Schedule& s, int c) const {
    switch (case_.collective) {
      case Collective::kAllGather:
      case Collective::kGather:
        return block(s, c) == s.rank;
      case Collective::kBroadcast:
      case Collective::kScatter:
        return s.rank == case_.root;
      case Collective::kAllToAll:
        return block(s, c) / s.nranks == s.rank;
      default:
        return true;
    }
  }

  // Whose value chunk c must be on rank s.rank in the end; -1: any.
  int must_be(const Schedule& s, int c) const {
    const int b = block(s, c);
    switch (case_.collective) {
      case Collective::kAllGather:
        return b;
      case Collective::kGather:
        return s.rank == case_.root ? b : -1;
      case Collective::kBroadcast:
        return case_.root;
      case Collective::kScatter:
        return b == s.rank ? case_.root : -1;
      case Collective::kAllToAll:
        return b % s.nranks == s.rank ? b / s.nranks : -1;
      default:
        return -1;
    }
  }
  bool must_be_reduced(const Schedule& s, int c) const {
    return case_.collective == Collective::kAllReduce ||
           (case_.collective == Collective::kReduce && s.rank == case_.root) ||
           (case_.collective == Collective::kReduceScatter && block(s, c) == s.rank);
  }

  static bool overlap(Chunks a, Chunks b) { return a.first < b.end() && b.first < a.end(); }

  // Step `later` travels in one message with step `earlier`.
  bool same_message(int rank, int earlier, int later) const {
    for (int i = earlier + 1; i <= later; ++i)
      if (!all_[rank].steps[i].joined) return false;
    return earlier < later;
  }

  // All of a message can be sent or taken, for the first of its steps.
  bool message_ready(int rank, int i) const {
    const auto& steps = all_[rank].steps;
    if (steps[i].joined) return true;  // the first one was
    for (int k = i; k < static_cast<int>(steps.size()) && (k == i || steps[k].joined); ++k)
      if (!data_ready(rank, k)) return false;
    return true;
  }

  bool data_ready(int rank, int i) const {
    const auto& steps = all_[rank].steps;
    for (int e = 0; e < i; ++e)
      if (!ranks_[rank].done[e] && !same_message(rank, e, i) && overlap(steps[e].at, steps[i].at) &&
          (steps[e].op != Op::kSend || steps[i].op != Op::kSend))
        return false;
    return true;
  }

  // The position of a step among those of its channel and direction; whether those before it are
  // as far as they must be.
  bool in_turn(int rank, int i, int* position) const {
    const auto& steps = all_[rank].steps;
    const bool sends = steps[i].op == Op::kSend;
    *position = 0;
    for (int e = 0; e < i; ++e) {
      if (steps[e].peer != steps[i].peer || steps[e].channel != steps[i].channel ||
          (steps[e].op == Op::kSend) != sends)
        continue;
      ++*position;
      if (sends ? !ranks_[rank].posted[e] : !ranks_[rank].done[e]) return false;
    }
    return true;
  }

  bool advance(int rank, int i) {
    RankState& me = ranks_[rank];
    const Step& step = all_[rank].steps[i];
    if (me.done[i] || wrong_) return false;
    const bool sends = step.op == Op::kSend;
    Channel& channel = sends ? channels_[{rank, step.peer, step.channel}]
                             : channels_[{step.peer, rank, step.channel}];
    int position = 0;
    const bool turn = in_turn(rank, i, &position);
    if (sends) {
      if (!me.posted[i]) {
        if (!turn || !data_ready(rank, i) || !message_ready(rank, i)) return false;
        Message message{step.at, {}, step.joined};
        for (int c = step.at.first; c < step.at.end(); ++c)
          message.values.push_back(complete(me.values[c]));
        channel.queue.push_back(message);
        ++channel.sent;
        me.posted[i] = true;
        return true;
      }
      if (channel.taken <= position - case_.credits) return false;
      me.done[i] = true;
      return true;
    }
    if (!me.posted[i]) {
      if (!turn || channel.queue.empty()) return false;
      if (step.op == Op::kRecv && (!data_ready(rank, i) || !message_ready(rank, i))) return false;
      if (channel.queue.front().at != step.at || channel.queue.front().joined != step.joined) {
        wrong_ = true;
        return false;
      }
      me.messages[i] = channel.queue.front().values;
      channel.queue.pop_front();
      ++channel.taken;
      me.posted[i] = true;
      return true;
    }
    if (!data_ready(rank, i)) return false;
    use(rank, i);
    me.done[i] = true;
    return true;
  }

  void use(int rank, int i) {
    const auto& steps = all_[rank].steps;
    for (int k = 0; k < steps[i].at.count; ++k) {
      Value& value = ranks_[rank].values[steps[i].at.first + k];
      const std::string& in = ranks_[rank].messages[i][k];
      if (case_.collective == Collective::kBarrier) {
        value.push_back(in);
      } else if (steps[i].op == Op::kRecv) {
        value = {in};
      } else {
        const bool goes_on =
            i > 0 && steps[i - 1].op == Op::kRecvReduce && steps[i - 1].at == steps[i].at;
        if (value.empty()) wrong_ = true;
        if (!goes_on) value = {complete(value)};
        value.push_back(in);
      }
    }
  }

  std::string complete(Value parts) {
    if (parts.empty()) wrong_ = true;  // read, but never written
    if (parts.size() == 1) return parts[0];
    std::sort(parts.begin(), parts.end());
    return fmt::format("({})", fmt::join(parts, "+"));
  }

  static int times(const std::string& text, const std::string& what) {
    int n = 0;
    for (auto at = text.find(what); at != text.npos; at = text.find(what, at + 1)) ++n;
    return n;
  }

  bool result_right() {
    for (const Schedule& s : all_) {
      std::string everything;
      for (int c = 0; c < s.nchunks; ++c) {
        const bool sum = must_be_reduced(s, c), barrier = case_.collective == Collective::kBarrier;
        const int whose = must_be(s, c);
        if (!sum && !barrier && whose < 0) continue;
        if (ranks_[s.rank].values[c].empty()) return false;
        const std::string got = complete(ranks_[s.rank].values[c]);
        everything += got;
        if (whose >= 0 && got != leaf(whose)) return false;
        if (!sum) continue;
        for (Rank r = 0; r < s.nranks; ++r)
          if (times(got, leaf(r)) != 1) return false;
        if (case_.collective == Collective::kAllReduce && got != complete(ranks_[0].values[c]))
          return false;
      }
      if (case_.collective == Collective::kBarrier)
        for (Rank r = 0; r < s.nranks; ++r)
          if (times(everything, leaf(r)) == 0) return false;
    }
    return !wrong_;
  }

  const std::vector<Schedule>& all_;
  Case case_;
  Random& random_;
  std::vector<RankState> ranks_;
  std::map<std::tuple<int, int, int>, Channel> channels_;
  bool wrong_ = false;
};

// One random change to one step of one rank, or the same change on all ranks. Empty where it
// changes nothing.
std::optional<std::string> mutate(std::vector<Schedule>& all, Random& random) {
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  const int chosen = below(static_cast<int>(all.size()));
  const int length = static_cast<int>(all[chosen].steps.size());
  if (length == 0) return std::nullopt;
  const int i = below(length), to = below(length), kind = below(10);
  const int sign = below(2) == 0 ? 1 : -1;
  const auto op = static_cast<Op>(below(3));
  const Rank peer = below(static_cast<int>(all.size()));
  const bool everywhere = below(3) == 0;
  constexpr const char* kKinds[] = {"drop",  "duplicate", "swap with the next", "peer", "chunk",
                                    "count", "channel",   "operation",          "move", "joined"};
  bool changed = false;
  for (Schedule& s : all) {
    if ((!everywhere && s.rank != chosen) || i >= static_cast<int>(s.steps.size())) continue;
    const std::vector<Step> before = s.steps;
    const auto at = s.steps.begin() + i;
    switch (kind) {
      case 0:
        s.steps.erase(at);
        break;
      case 1:
        s.steps.insert(at, Step(*at));
        break;
      case 2:
        if (at + 1 != s.steps.end()) std::swap(*at, *(at + 1));
        break;
      case 3:
        at->peer = everywhere ? (at->peer + 1) % s.nranks : peer;
        break;
      case 4:
        at->at.first += sign;
        break;
      case 5:
        at->at.count += sign;
        break;
      case 6:
        at->channel = 1 - at->channel;
        break;
      case 7:
        // On all ranks, sends stay sends: the transfers still match.
        if (!everywhere)
          at->op = op;
        else if (at->op != Op::kSend)
          at->op = at->op == Op::kRecv ? Op::kRecvReduce : Op::kRecv;
        break;
      case 9:
        at->joined = !at->joined;
        break;
      case 8: {
        const Step step = *at;
        s.steps.erase(at);
        s.steps.insert(s.steps.begin() + std::min<int>(to, s.steps.size()), step);
        break;
      }
    }
    changed |= s.steps != before;
  }
  if (!changed) return std::nullopt;
  return fmt::format("{} at step {} of {}", kKinds[kind], i,
                     everywhere ? "all ranks" : fmt::format("rank {}", chosen));
}

// Each chunk becomes two and each step one step per half: runs of recv_reduce are torn apart.
void refine(std::vector<Schedule>& all) {
  for (Schedule& s : all) {
    const std::vector<Step> steps = std::exchange(s.steps, {});
    for (const Step& step : steps)
      for (int half : {0, 1})
        s.steps.push_back({step.op,
                           step.peer,
                           step.channel,
                           {2 * step.at.first + half * step.at.count, step.at.count},
                           step.joined});
    std::vector<int> block(2 * s.nchunks);
    for (int c = 0; c < 2 * s.nchunks; ++c) block[c] = s.block.empty() ? c / 2 : s.block[c / 2];
    s.block = block;
    s.nchunks *= 2;
  }
}

// A barrier (made of one by all pairs) among random transfers, a little out of order.
std::vector<Schedule> random_barrier(Random& random) {
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  const int n = 2 + below(3);
  auto all =
      testing::build_all(*find_algorithm(Collective::kBarrier, "direct"), testing::on_one_host(n));
  const int nchunks = 1 + below(3);
  for (Schedule& s : all) s.nchunks = nchunks;
  const int transfers = 1 + below(10);
  for (int k = 0; k < transfers; ++k) {
    const Rank from = below(n), to = (from + 1 + below(n - 1)) % n;
    const int channel = below(2), first = below(nchunks);
    const Chunks at{first, 1 + below(nchunks - first)};
    all[from].send(to, at, channel);
    below(2) == 0 ? all[to].recv(from, at, channel) : all[to].recv_reduce(from, at, channel);
  }
  for (Schedule& s : all)
    for (int swaps = below(4); swaps > 0; --swaps) {
      const int i = below(static_cast<int>(s.steps.size()) - 1);
      const Step &a = s.steps[i], &b = s.steps[i + 1];
      const bool same_channel =
          a.peer == b.peer && a.channel == b.channel && (a.op == Op::kSend) == (b.op == Op::kSend);
      if (!same_channel) std::swap(s.steps[i], s.steps[i + 1]);
    }
  return all;
}

// What no interpreter needs to run.
bool well_formed(const std::vector<Schedule>& all) {
  for (const Schedule& s : all)
    for (std::size_t i = 0; i < s.steps.size(); ++i) {
      const Step& step = s.steps[i];
      if (step.peer == s.rank || step.at.first < 0 || step.at.count < 1 ||
          step.at.end() > s.nchunks)
        return false;
      if (step.joined &&
          (i == 0 || step.op == Op::kRecvReduce || s.steps[i - 1].op != step.op ||
           s.steps[i - 1].peer != step.peer || s.steps[i - 1].channel != step.channel))
        return false;
    }
  return true;
}

struct Counts {
  int rejected = 0, accepted = 0, deadlocks = 0, orders = 0;
};

// The checker and the interpreter must agree.
void compare(const Case& c, const std::vector<Schedule>& all, const std::string& what,
             Random& random, Counts& counts) {
  const std::string fault = check(c.collective, all, {.credits = c.credits, .root = c.root});
  bool right = well_formed(all);
  for (int run = 0; right && run < 2; ++run) right = Interpreter(all, c, random).right();
  if (fault.empty() != right)
    for (const Schedule& s : all) std::fputs(to_string(s).c_str(), stderr);
  ASSERT_EQ(fault.empty(), right) << name(c.collective) << ", " << c.credits << " credits, " << what
                                  << "\nthe checker says: " << fault;
  ++(right ? counts.accepted : counts.rejected);
  counts.deadlocks += fault.starts_with("deadlock");
  counts.orders += fault.find("another order") != fault.npos;
}

void try_mutants(const Algorithm& algorithm, const Shape& shape, Random& random, Counts& counts) {
  constexpr int kMutants = 40;
  const auto original = testing::build_all(algorithm, shape);
  for (int m = 0; m < kMutants; ++m) {
    auto all = original;
    std::string what = testing::full_name(algorithm);
    if (m % 4 == 0) {
      refine(all);
      what += ", refined";
    }
    if (m != 0) {  // the first is the refined one as it is
      const auto mutation = mutate(all, random);
      if (!mutation) continue;
      what += ", " + *mutation;
    }
    for (int credits : {0, 1, 2, 1000})
      ASSERT_NO_FATAL_FAILURE(
          compare({algorithm.collective, shape.root, credits}, all, what, random, counts));
  }
}

TEST(CheckMutation, RejectsExactlyTheWrongMutants) {
  Random random(20261121);
  Counts counts;
  for (const Algorithm& a : algorithms()) {
    for (int n : {2, 3, 4, 5, 6, 7, 8}) {
      Shape shape = testing::on_one_host(n);
      shape.root = n / 2;
      ASSERT_NO_FATAL_FAILURE(try_mutants(a, shape, random, counts));
    }
    for (auto [hosts, per_host] : {std::pair{2, 2}, {3, 2}, {2, 3}, {4, 2}}) {
      for (Shape shape :
           {testing::uniform(hosts, per_host), testing::round_robin(hosts, per_host)}) {
        shape.root = shape.nranks - 1;
        ASSERT_NO_FATAL_FAILURE(try_mutants(a, shape, random, counts));
      }
    }
  }
  // A mutation that never bites, or never spares, would prove nothing.
  EXPECT_GT(counts.rejected, 10000);
  EXPECT_GT(counts.accepted, 1000);
  EXPECT_GT(counts.orders, 100);
}

TEST(CheckMutation, RejectsExactlyTheRandomSchedulesThatHang) {
  Random random(20261122);
  Counts counts;
  for (int k = 0; k < 8000; ++k) {
    const auto all = random_barrier(random);
    for (int credits : {0, 1, 2, 1000})
      ASSERT_NO_FATAL_FAILURE(
          compare({Collective::kBarrier, 0, credits}, all, "random", random, counts));
  }
  EXPECT_GT(counts.deadlocks, 1000);
  EXPECT_GT(counts.accepted, 1000);
}

TEST(CheckMutation, TheInterpreterItselfAcceptsTheOriginals) {
  Random random(1);
  for (const Algorithm& a : algorithms())
    for (int credits : {0, 1, 2, 1000})
      for (const Shape& shape : {testing::on_one_host(5), testing::uniform(3, 2)})
        EXPECT_TRUE(
            Interpreter(testing::build_all(a, shape), {a.collective, shape.root, credits}, random)
                .right())
            << testing::full_name(a) << ", " << credits << " credits";
}

}  // namespace
}  // namespace weft
