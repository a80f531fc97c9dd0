// Checks each rank alone, then the channels, then an execution. This file makes no schedules.
#include "train/pipeline/checker.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

namespace weft::train {
namespace {

using Actions = std::vector<PipelineAction>;
using Key = std::pair<int, int>;  // stage, micro-batch

std::string where(const PipelineSchedule& s, Rank r, std::size_t i) {
  return fmt::format("{}: rank {}, action {} ({})", s.name, r, i,
                     describe(s.of_rank[static_cast<std::size_t>(r)][i], s.shape));
}

// One rank on its own: what it has when it does something.
struct RankState {
  std::map<Key, int> times[7];  // of each action
  std::map<int, int> next_weight;
  int held = 0, peak = 0;

  bool has(PipeOp op, int stage, int microbatch) const {
    return times[static_cast<int>(op)].count({stage, microbatch}) != 0;
  }
};

std::string check_action(const PipelineSchedule& s, Rank r, const PipelineAction& a,
                         RankState& now) {
  const PipelineShape& x = s.shape;
  if (a.stage < 0 || a.stage >= x.stages() || x.rank_of(a.stage) != r)
    return fmt::format("stage {} is not on this rank", a.stage);
  if (a.microbatch < 0 || a.microbatch >= x.microbatches)
    return fmt::format("there are {} micro-batches", x.microbatches);
  const auto did = [&](PipeOp op, int stage) { return now.has(op, stage, a.microbatch); };
  const bool first = a.stage == 0, last = a.stage == x.stages() - 1, alone = x.ranks == 1;
  if (did(a.op, a.stage)) return "done before";
  switch (a.op) {
    case PipeOp::kForward:
      if (!first &&
          !(alone ? did(PipeOp::kForward, a.stage - 1) : did(PipeOp::kRecvActivation, a.stage)))
        return "its activation has not arrived";
      now.peak = std::max(now.peak, ++now.held);
      break;
    case PipeOp::kBackwardInput:
      if (!did(PipeOp::kForward, a.stage)) return "its F has not been done";
      if (!last &&
          !(alone ? did(PipeOp::kBackwardInput, a.stage + 1) : did(PipeOp::kRecvGradient, a.stage)))
        return "its gradient has not arrived";
      break;
    case PipeOp::kBackwardWeight:
      if (!did(PipeOp::kBackwardInput, a.stage)) return "its B has not been done";
      if (now.next_weight[a.stage]++ != a.microbatch)
        return fmt::format("W of micro-batch {} comes first", now.next_weight[a.stage] - 1);
      --now.held;
      break;
    case PipeOp::kSendActivation:
      if (last || alone) return "nobody takes it";
      if (!did(PipeOp::kForward, a.stage)) return "its F has not been done";
      break;
    case PipeOp::kSendGradient:
      if (first || alone) return "nobody takes it";
      if (!did(PipeOp::kBackwardInput, a.stage)) return "its B has not been done";
      break;
    case PipeOp::kRecvActivation:
      if (first || alone) return "nobody sends it";
      break;
    case PipeOp::kRecvGradient:
      if (last || alone) return "nobody sends it";
      break;
  }
  ++now.times[static_cast<int>(a.op)][{a.stage, a.microbatch}];
  return "";
}

std::string check_rank(const PipelineSchedule& s, Rank r, int max_held) {
  RankState now;
  const Actions& mine = s.of_rank[static_cast<std::size_t>(r)];
  for (std::size_t i = 0; i < mine.size(); ++i) {
    const std::string fault = check_action(s, r, mine[i], now);
    if (!fault.empty()) return fmt::format("{}: {}", where(s, r, i), fault);
    if (max_held > 0 && now.held > max_held)
      return fmt::format("{}: {} micro-batches are held, {} is the limit", where(s, r, i), now.held,
                         max_held);
  }
  const PipelineShape& x = s.shape;
  for (int stage = r; stage < x.stages(); stage += x.ranks)
    for (int i = 0; i < x.microbatches; ++i) {
      const bool sends_on = x.ranks > 1, backward = !s.forward_only;
      const std::pair<PipeOp, bool> wanted[] = {
          {PipeOp::kForward, true},
          {PipeOp::kBackwardInput, backward},
          {PipeOp::kBackwardWeight, backward},
          {PipeOp::kSendActivation, sends_on && stage < x.stages() - 1},
          {PipeOp::kSendGradient, sends_on && backward && stage > 0}};
      for (const auto& [op, want] : wanted)
        if (want && !now.has(op, stage, i))
          return fmt::format("{}: rank {} never does {} on stage {}", s.name, r,
                             describe({op, i, stage}, x), stage);
    }
  return "";
}

std::string check_channels(const PipelineSchedule& s) {
  std::map<std::pair<Rank, Rank>, std::pair<Actions, Actions>> channels;
  for (Rank r = 0; r < s.shape.ranks; ++r)
    for (const PipelineAction& a : s.of_rank[static_cast<std::size_t>(r)]) {
      if (sends(a.op)) channels[{r, s.peer(a)}].first.push_back(receive_of(a));
      if (receives(a.op)) channels[{s.peer(a), r}].second.push_back(a);
    }
  for (const auto& [ends, lists] : channels) {
    const auto& [sent, received] = lists;
    for (std::size_t i = 0; i < std::max(sent.size(), received.size()); ++i) {
      if (i < sent.size() && i < received.size() && sent[i] == received[i]) continue;
      const auto text = [&](const Actions& all) {
        return i < all.size() ? describe(all[i], s.shape) : std::string("nothing");
      };
      return fmt::format(
          "{}: message {} from rank {} to rank {}: sent is what '{}' takes, but the "
          "receiver does '{}'",
          s.name, i, ends.first, ends.second, text(sent), text(received));
    }
  }
  return "";
}

// Runs all ranks by what they wait for. Messages are counted per channel only: check_channels has
// shown that they are the right ones.
class Execution {
 public:
  Execution(const PipelineSchedule& s, Sends sends) : s_(s), sends_(sends) {
    at_.assign(s.of_rank.size(), 0);
  }

  std::string run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (Rank r = 0; r < s_.shape.ranks; ++r)
        while (step(r)) moved = true;
    }
    for (Rank r = 0; r < s_.shape.ranks; ++r) {
      const std::size_t i = at_[static_cast<std::size_t>(r)];
      if (i < actions(r).size())
        return fmt::format("{}: waits for ever for rank {}", where(s_, r, i), s_.peer(at(r, i)));
    }
    return "";
  }

 private:
  const Actions& actions(Rank r) const { return s_.of_rank[static_cast<std::size_t>(r)]; }
  const PipelineAction& at(Rank r, std::size_t i) const { return actions(r)[i]; }

  // Messages that a rank has posted, or taken, on a channel. A batch is posted when its first
  // action is reached, and over when each of its partners is posted too.
  struct Channel {
    int sent = 0, received = 0;
  };
  std::size_t batch_end(Rank r, std::size_t i) const {
    std::size_t end = i + 1;
    if (sends_ != Sends::kCoalesced || computes(at(r, i).op)) return end;
    while (end < actions(r).size() && !computes(at(r, end).op)) ++end;
    return end;
  }
  Channel& channel(Rank r, const PipelineAction& a) {
    return weft::train::sends(a.op) ? channels_[{r, s_.peer(a)}] : channels_[{s_.peer(a), r}];
  }
  bool step(Rank r) {
    std::size_t& i = at_[static_cast<std::size_t>(r)];
    if (i == actions(r).size()) return false;
    if (computes(at(r, i).op)) {
      ++i;
      return true;
    }
    const std::size_t end = batch_end(r, i);
    auto& waits = waits_[r];
    bool posted_now = false;
    if (waits.empty()) {
      for (std::size_t k = i; k < end; ++k) {
        const PipelineAction& a = at(r, k);
        Channel& c = channel(r, a);
        waits.push_back(
            {&c, weft::train::sends(a.op), weft::train::sends(a.op) ? ++c.sent : ++c.received});
      }
      posted_now = true;
    }
    for (const auto& w : waits) {
      if (w.sends && sends_ == Sends::kHeld) continue;
      if ((w.sends ? w.channel->received : w.channel->sent) < w.number) return posted_now;
    }
    waits.clear();
    i = end;
    return true;
  }
  struct Wait {
    Channel* channel;
    bool sends;
    int number;
  };

  const PipelineSchedule& s_;
  Sends sends_;
  std::vector<std::size_t> at_;
  std::map<std::pair<Rank, Rank>, Channel> channels_;
  std::map<Rank, std::vector<Wait>> waits_;
};

}  // namespace

std::string check(const PipelineSchedule& s, const PipelineCheckOptions& options) {
  if (static_cast<int>(s.of_rank.size()) != s.shape.ranks)
    return fmt::format("{}: lists for {} ranks, not {}", s.name, s.of_rank.size(), s.shape.ranks);
  for (Rank r = 0; r < s.shape.ranks; ++r) {
    std::string fault = check_rank(s, r, options.max_held);
    if (!fault.empty()) return fault;
  }
  std::string fault = check_channels(s);
  if (!fault.empty()) return fault;
  return Execution(s, options.sends).run();
}

std::vector<int> peak_held(const PipelineSchedule& s) {
  std::vector<int> peaks;
  for (const Actions& mine : s.of_rank) {
    int held = 0, peak = 0;
    for (const PipelineAction& a : mine) {
      if (a.op == PipeOp::kForward) peak = std::max(peak, ++held);
      if (a.op == PipeOp::kBackwardWeight) --held;
    }
    peaks.push_back(peak);
  }
  return peaks;
}

}  // namespace weft::train
