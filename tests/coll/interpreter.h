// An interpreter of schedules that shares no code with the checker. It runs all ranks in random
// order, step by step, with queues as channels and values as text, "[([(0+1)]+[(2+3)])]". It
// follows the rules at the top of coll/schedule/check_graph.h, FIFO and credits included, so the
// two must agree on every schedule.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "coll/schedule/schedule.h"

namespace weft::testing {

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
        if (starts_with_value(s, c2)) state.values[c2] = {{s.rank, leaf(s.rank)}};
    }
  }

  bool right() {
    if (std::any_of(all_.begin(), all_.end(), misplaced)) return false;
    std::vector<std::pair<int, int>> left;
    for (const Schedule& s : all_)
      for (int i = 0; i < static_cast<int>(s.steps.size()); ++i) left.push_back({s.rank, i});
    for (bool moved = true; moved && !wrong_;) {
      moved = false;
      std::shuffle(left.begin(), left.end(), random_);
      for (auto [rank, i] : left) moved |= advance(rank, i);
      std::erase_if(left, [&](auto at) { return ranks_[at.first].done[at.second]; });
    }
    if (wrong_ || !left.empty()) return false;  // unmatched messages, or a deadlock
    for (const auto& [key, channel] : channels_)
      if (channel.sent != channel.taken) return false;
    return result_right();
  }

 private:
  // Parts of a sum in progress, each with its source rank; a complete sum has one part. Empty:
  // unwritten.
  using Value = std::vector<std::pair<Rank, std::string>>;
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

  // The rank whose value chunk c must hold on rank s.rank at the end; -1: any.
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

  // Whether steps `earlier` to `later` travel in one message.
  bool same_message(int rank, int earlier, int later) const {
    for (int i = earlier + 1; i <= later; ++i)
      if (!all_[rank].steps[i].joined) return false;
    return earlier < later;
  }

  // For the first step of a message: whether all of it can be sent or received.
  bool message_ready(int rank, int i) const {
    const auto& steps = all_[rank].steps;
    if (steps[i].joined) return true;  // checked with the first step
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
    // Whether the previous content of the chunk's place has been sent.
    for (int e = 0; steps[i].op != Op::kSend && e < i; ++e)
      for (int c = steps[i].at.first; c < steps[i].at.end(); ++c)
        for (int o = steps[e].at.first; o < steps[e].at.end(); ++o)
          if (!ranks_[rank].done[e] && share(all_[rank], c, o) && written_before(rank, o, i))
            return false;
    return true;
  }

  static bool share(const Schedule& s, int a, int b) {
    return !s.place.empty() && a != b && s.place[a] >= 0 && s.place[a] == s.place[b];
  }
  static bool has(const Step& step, int c) { return step.at.first <= c && c < step.at.end(); }
  bool written_before(int rank, int c, int i) const {
    const auto& steps = all_[rank].steps;
    return std::any_of(steps.begin(), steps.begin() + i,
                       [&](const Step& e) { return e.op != Op::kSend && has(e, c); });
  }
  // Whether a chunk is accessed after another one overwrote its place.
  static bool misplaced(const Schedule& s) {
    for (int c = 0; !s.place.empty() && c < s.nchunks; ++c)
      for (int o = 0; o < s.nchunks; ++o) {
        if (!share(s, c, o)) continue;
        bool there = false, gone = false;
        for (const Step& step : s.steps) {
          if (gone && has(step, c)) return true;
          if (step.op == Op::kSend) continue;
          if (has(step, c) && has(step, o)) return true;
          there = there || has(step, c);
          gone = gone || (there && has(step, o));
        }
      }
    return false;
  }

  // The position of a step in its channel and direction; returns whether earlier steps have
  // progressed far enough.
  bool in_turn(int rank, int i, int* position) const {
    const auto& steps = all_[rank].steps;
    const bool sends = steps[i].op == Op::kSend;
    *position = 0;
    for (int e = 0; e < i; ++e) {
      if (steps[e].peer != steps[i].peer || steps[e].channel != steps[i].channel ||
          (steps[e].op == Op::kSend) != sends)
        continue;
      ++*position;
      if (sends && !ranks_[rank].posted[e]) return false;
      for (int k = e; !sends && k < i && (k == e || goes_on(rank, k)); ++k)  // its reduction
        if (!ranks_[rank].done[k]) return false;
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
        value.push_back({steps[i].peer, in});
      } else if (steps[i].op == Op::kRecv) {
        value = {{rank, in}};
      } else {
        if (value.empty()) wrong_ = true;
        if (!goes_on(rank, i)) value = {{rank, complete(value)}};
        value.push_back({steps[i].peer, in});
      }
    }
  }

  // Whether the step continues the reduction of the step before it.
  bool goes_on(int rank, int i) const {
    const auto& steps = all_[rank].steps;
    if (i == 0 || steps[i].op != Op::kRecvReduce || steps[i - 1].op != Op::kRecvReduce ||
        steps[i - 1].at != steps[i].at || steps[i - 1].channel != steps[i].channel)
      return false;
    for (int e = i - 1;; --e) {
      if (steps[e].peer == steps[i].peer) return false;
      if (!goes_on(rank, e)) return true;
    }
  }

  // Sorts by rank, since a + b equals b + a.
  std::string complete(Value parts) {
    if (parts.empty()) {  // read, but never written
      wrong_ = true;
      return {};
    }
    std::ranges::stable_sort(parts, {}, &std::pair<Rank, std::string>::first);
    std::string sum = parts[0].second;
    for (std::size_t k = 1; k < parts.size(); ++k) {
      const std::string& next = parts[k].second;
      sum = sum < next ? fmt::format("({}+{})", sum, next) : fmt::format("({}+{})", next, sum);
    }
    return parts.size() == 1 ? sum : "[" + sum + "]";  // rounded
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

}  // namespace weft::testing
