#include "coll/counters.h"

#include <algorithm>
#include <utility>

namespace weft {

Counters::Counters(Rank me, int ranks, std::vector<std::string> names)
    : rank(me),
      size(ranks),
      links(std::move(names)),
      traffic_(links.size() * static_cast<std::size_t>(ranks)) {}

void Counters::picked(Collective c, int size_class, int ranks,
                      const std::vector<Candidate>& candidates) {
  const std::lock_guard lock(mutex_);
  const auto us = [](const Candidate& of) {
    return of.measured_us > 0 ? of.measured_us : of.prediction.time_us;
  };
  Metrics::Pick& p = picks_[{c, size_class, ranks, candidates[0].algorithm->name}];
  p.predicted_us = us(candidates[0]);
  if (candidates.size() < 2) return;
  p.runner_up = candidates[1].algorithm->name;
  p.runner_up_us = us(candidates[1]);
}

void Counters::measured(Collective c, int size_class, int ranks, std::string_view algorithm,
                        double us) {
  const std::lock_guard lock(mutex_);
  Metrics::Pick& p = picks_[{c, size_class, ranks, algorithm}];
  p.min_us = p.measured ? std::min(p.min_us, us) : us;
  ++p.measured;
  p.mean_us += (us - p.mean_us) / static_cast<double>(p.measured);
}

Metrics Counters::read() const {
  Metrics m;
  m.rank = rank;
  m.size = size;
  for (std::size_t i = 0; i < calls.size(); ++i)
    if (calls[i].calls.get())
      m.calls.push_back({static_cast<Collective>(i), calls[i].calls.get(), calls[i].failures.get(),
                         calls[i].bytes.get()});
  for (std::size_t i = 0; i < traffic_.size(); ++i) {
    const Traffic& t = traffic_[i];
    if (t.messages_sent.get() + t.messages_received.get() == 0) continue;
    const auto n = static_cast<std::size_t>(size);
    m.traffic.push_back({static_cast<Rank>(i % n), links[i / n], t.bytes_sent.get(),
                         t.bytes_received.get(), t.messages_sent.get(), t.messages_received.get()});
  }
  m.stalls = stalls.get();
  m.stalled_s = static_cast<double>(stalled_ns.get()) * 1e-9;
  m.naps = naps.get();
  m.retries = retries.get();
  m.rails_taken_out = rails_taken_out.get();
  m.rails_taken_back = rails_taken_back.get();
  m.replayed = replayed.get();
  m.replayed_bytes = replayed_bytes.get();
  const std::lock_guard lock(mutex_);
  for (const auto& [key, pick] : picks_) {
    const auto& [collective, size_class, ranks, algorithm] = key;
    Metrics::Pick p = pick;
    p.collective = collective;
    p.bytes = std::size_t{1} << size_class;
    p.ranks = ranks;
    p.algorithm = algorithm;
    m.picks.push_back(std::move(p));
  }
  return m;
}

}  // namespace weft
