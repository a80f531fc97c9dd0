// Simulates all ranks of a schedule on a virtual clock. Constructs no schedules.
#include "train/pipeline/simulator.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

namespace weft::train {
namespace {

// Visits the actions of all ranks in a topological order: `visit` returns false if an input of the
// action is not available yet. Throws Error on deadlock.
template <class Visit>
void in_order(const PipelineSchedule& s, Visit visit) {
  std::vector<std::size_t> at(s.of_rank.size(), 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t r = 0; r < s.of_rank.size(); ++r)
      while (at[r] < s.of_rank[r].size() && visit(static_cast<Rank>(r), at[r])) {
        ++at[r];
        moved = true;
      }
  }
  for (std::size_t r = 0; r < s.of_rank.size(); ++r)
    if (at[r] < s.of_rank[r].size())
      throw Error(fmt::format("{}: rank {}, action {} ({}): waits for ever", s.name, r, at[r],
                              describe(s.of_rank[r][at[r]], s.shape)));
}

struct Message {
  Rank from, to;
  auto operator<=>(const Message&) const = default;
};

}  // namespace

PipelineTime simulate(const PipelineSchedule& s, const PipelineCosts& costs) {
  const std::size_t p = s.of_rank.size();
  PipelineTime result;
  result.busy.assign(p, 0);
  std::vector<double> now(p, 0);
  struct Channel {
    std::vector<double> arrives;
    std::size_t taken = 0;
    double free = 0;
  };
  std::map<Message, Channel> channels;
  in_order(s, [&](Rank r, std::size_t i) {
    const auto me = static_cast<std::size_t>(r);
    const PipelineAction& a = s.of_rank[me][i];
    if (sends(a.op)) {
      Channel& c = channels[{r, s.peer(a)}];
      c.free = std::max(c.free, now[me]) + costs.transfer;
      c.arrives.push_back(c.free);
    } else if (receives(a.op)) {
      Channel& c = channels[{s.peer(a), r}];
      if (c.taken == c.arrives.size()) return false;
      now[me] = std::max(now[me], c.arrives[c.taken++]);
    } else {
      const double weight = costs.weight_of_stage.empty()
                                ? 1
                                : costs.weight_of_stage.at(static_cast<std::size_t>(a.stage));
      const double length = weight * (a.op == PipeOp::kForward         ? costs.forward
                                      : a.op == PipeOp::kBackwardInput ? costs.backward_input
                                                                       : costs.backward_weight);
      now[me] += length;
      result.time = std::max(result.time, now[me]);
      result.busy[me] += length;
    }
    return true;
  });
  const double busy = std::accumulate(result.busy.begin(), result.busy.end(), 0.0);
  if (result.time > 0) result.bubble = 1 - busy / (static_cast<double>(p) * result.time);
  return result;
}

std::vector<PipelineStep> steps_of(const PipelineSchedule& s) {
  const std::size_t p = s.of_rank.size();
  struct Clock {
    int last[3] = {-1, -1, -1};  // step of the last F, B, W
    int needs = 0;               // first step that its received inputs permit
  };
  std::vector<Clock> clocks(p);
  std::map<Message, std::pair<std::vector<int>, std::size_t>> channels;
  std::map<std::pair<int, int>, int> forwarded;  // step of F, by stage and micro-batch
  std::vector<PipelineStep> steps;
  in_order(s, [&](Rank r, std::size_t i) {
    const auto me = static_cast<std::size_t>(r);
    const PipelineAction& a = s.of_rank[me][i];
    Clock& c = clocks[me];
    if (sends(a.op)) {
      channels[{r, s.peer(a)}].first.push_back(c.last[a.op == PipeOp::kSendActivation ? 0 : 1]);
      return true;
    }
    if (receives(a.op)) {
      auto& [sent, taken] = channels[{s.peer(a), r}];
      if (taken == sent.size()) return false;
      c.needs = std::max(c.needs, sent[taken++] + 1);
      return true;
    }
    const int kind = static_cast<int>(a.op);
    const bool joins =
        a.op == PipeOp::kBackwardWeight && i > 0 &&
        s.of_rank[me][i - 1] == PipelineAction{PipeOp::kBackwardInput, a.microbatch, a.stage};
    const int latest = *std::max_element(std::begin(c.last), std::end(c.last));
    int step = std::max(c.last[kind] + 1, s.dataflow_steps ? latest : latest + 1);
    step = joins ? c.last[1] : std::max(step, c.needs);
    if (a.op == PipeOp::kForward) forwarded[{a.stage, a.microbatch}] = step;
    if (a.op == PipeOp::kBackwardInput)
      step = std::max(step, forwarded[{a.stage, a.microbatch}] + 1);
    c.needs = 0;
    c.last[kind] = step;
    if (steps.size() <= static_cast<std::size_t>(step))
      steps.resize(static_cast<std::size_t>(step) + 1,
                   {std::vector<std::vector<PipelineAction>>(p), 0});
    if (!joins) steps[static_cast<std::size_t>(step)].of_rank[me].push_back(a);
    return true;
  });
  for (PipelineStep& step : steps) {
    const auto active = std::count_if(step.of_rank.begin(), step.of_rank.end(),
                                      [](const auto& list) { return !list.empty(); });
    step.active = static_cast<double>(active) / static_cast<double>(p);
  }
  return steps;
}

}  // namespace weft::train
