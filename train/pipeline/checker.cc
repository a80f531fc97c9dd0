// Checks each rank, then the channels, then that the simulator completes the schedule.
#include "train/pipeline/checker.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "train/pipeline/simulator.h"

namespace weft::train {
namespace {

using Actions = std::vector<PipelineAction>;
using Key = std::pair<int, int>;  // stage, micro-batch

std::string where(const PipelineSchedule& s, Rank r, std::size_t i) {
  return fmt::format("{}: rank {}, action {} ({})", s.name, r, i,
                     describe(s.of_rank[static_cast<std::size_t>(r)][i], s.shape));
}

// The state of one rank: its completed actions.
struct RankState {
  std::map<Key, int> times[7];  // count of each action
  std::map<int, int> next_weight;

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

std::string check_rank(const PipelineSchedule& s, Rank r) {
  RankState now;
  const Actions& mine = s.of_rank[static_cast<std::size_t>(r)];
  for (std::size_t i = 0; i < mine.size(); ++i) {
    const std::string fault = check_action(s, r, mine[i], now);
    if (!fault.empty()) return fmt::format("{}: {}", where(s, r, i), fault);
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

}  // namespace

std::string check(const PipelineSchedule& s) {
  if (static_cast<int>(s.of_rank.size()) != s.shape.ranks)
    return fmt::format("{}: lists for {} ranks, not {}", s.name, s.of_rank.size(), s.shape.ranks);
  for (Rank r = 0; r < s.shape.ranks; ++r) {
    std::string fault = check_rank(s, r);
    if (!fault.empty()) return fault;
  }
  std::string fault = check_channels(s);
  if (!fault.empty()) return fault;
  try {
    simulate(s, {});
  } catch (const Error& e) {
    return e.what();
  }
  return "";
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
