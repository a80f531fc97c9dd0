// Adds up the times of calls. This file reads no clock: callers pass the time.
#include "perf/replay/ledger.h"

#include <algorithm>

namespace weft::replay {

void Ledger::move(double now_us) {
  const double passed = now_us - at_us_;
  at_us_ = now_us;
  if (computes_) {
    compute_us_ += passed;
    return;
  }
  idle_us_ += passed;
  if (!open_.empty()) share_us_ += passed / static_cast<double>(open_.size());
}

void Ledger::compute(bool computes, double now_us) {
  move(now_us);
  computes_ = computes;
}

int Ledger::post(const CallKey& key, double now_us) {
  move(now_us);
  const auto index =
      static_cast<std::size_t>(std::ranges::lower_bound(*keys_, key) - keys_->begin());
  open_[next_] = {index, now_us, idle_us_, share_us_};
  return next_++;
}

void Ledger::done(int call, double now_us) {
  move(now_us);
  const Posted& p = open_.at(call);
  Tally& tally = tallies_[p.key];
  ++tally.calls;
  tally.time_us += now_us - p.at_us;
  tally.exposed_us += idle_us_ - p.idle_us;
  tally.alone_us += share_us_ - p.share_us;
  open_.erase(call);
}

std::vector<double> calls_of(const JobTrace& trace, const std::vector<CallKey>& keys) {
  std::vector<double> calls(keys.size(), 0);
  std::vector<double> users(trace.programs.size(), 0);
  for (const int p : trace.program_of) ++users[static_cast<std::size_t>(p)];
  for (std::size_t p = 0; p < trace.programs.size(); ++p)
    for (const TraceNode& node : trace.programs[p]) {
      if (node.kind == NodeKind::kCompute) continue;
      const CallKey key = key_of(node);
      const auto k = static_cast<std::size_t>(std::ranges::lower_bound(keys, key) - keys.begin());
      const auto& lists = trace.groups[static_cast<std::size_t>(node.group)].lists;
      const double size =
          node.kind == NodeKind::kCollective ? static_cast<double>(lists[0].size()) : 1;
      calls[k] += users[p] / size;
    }
  return calls;
}

Played summarize(const std::vector<CallKey>& keys, const std::vector<Tally>& sums, int ranks,
                 double compute_us, double step_us, const std::vector<double>& calls_of_job) {
  Played played;
  played.step_us = step_us;
  played.compute_us = compute_us / ranks;
  for (std::size_t k = 0; k < keys.size(); ++k) {
    const double calls = std::max(sums[k].calls, 1.0);
    played.rows.push_back({keys[k], calls_of_job[k], sums[k].time_us / calls,
                           sums[k].exposed_us / calls,
                           step_us > 0 ? sums[k].alone_us / ranks / step_us : 0});
  }
  return played;
}

}  // namespace weft::replay
