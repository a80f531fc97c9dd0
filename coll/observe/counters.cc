// Updates the counters of a rank and builds Metrics from them. This file is independent of the
// users of the metrics.
#include "coll/observe/counters.h"

#include <algorithm>
#include <utility>

namespace weft {

Counters::Counters(Rank me, int ranks, std::vector<std::string> names, int link_of_boards)
    : rank(me),
      size(ranks),
      links(std::move(names)),
      board_link(link_of_boards),
      traffic_(links.size() * static_cast<std::size_t>(ranks)) {}

Counters::BoardTraffic& Counters::board(const std::vector<Rank>& ranks) {
  const MutexLock lock(mutex_);
  return boards_[ranks];
}

void Counters::rail_out(int rail, Rank peer, const std::string& cause) {
  rails_taken_out.add();
  const MutexLock lock(mutex_);
  outages_[{rail, peer}] = {rail, peer, cause};
}

void Counters::rail_back(int rail, Rank peer) {
  rails_taken_back.add();
  const MutexLock lock(mutex_);
  if (const auto it = outages_.find({rail, peer}); it != outages_.end()) it->second.back = true;
}

void Counters::unheard(Rank peer, bool is) {
  const MutexLock lock(mutex_);
  if (is)
    unheard_.insert(peer);
  else
    unheard_.erase(peer);
}

void Counters::picked(Collective c, int size_class, int ranks,
                      const std::vector<Candidate>& candidates) {
  const MutexLock lock(mutex_);
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
  const MutexLock lock(mutex_);
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
  const auto n = static_cast<std::size_t>(size);
  std::vector<Metrics::Traffic> all(traffic_.size());
  for (std::size_t i = 0; i < traffic_.size(); ++i) {
    const Traffic& t = traffic_[i];
    all[i] = {static_cast<Rank>(i % n), links[i / n],          t.bytes_sent.get(),
              t.bytes_received.get(),   t.messages_sent.get(), t.messages_received.get()};
  }
  const MutexLock lock(mutex_);
  for (const auto& [ranks, board] : boards_)
    for (const Rank peer : ranks) {
      if (peer == rank || board_link < 0) continue;
      Metrics::Traffic& t =
          all[static_cast<std::size_t>(board_link) * n + static_cast<std::size_t>(peer)];
      t.bytes_sent += board.bytes.get();
      t.bytes_received += board.bytes.get();
      t.messages_sent += board.messages.get();
      t.messages_received += board.messages.get();
    }
  for (Metrics::Traffic& t : all)
    if (t.messages_sent + t.messages_received != 0) m.traffic.push_back(std::move(t));
  m.stalls = stalls.get();
  m.stalled_s = static_cast<double>(stalled_ns.get()) * 1e-9;
  m.naps = naps.get();
  m.retries = retries.get();
  m.rails_taken_out = rails_taken_out.get();
  m.rails_taken_back = rails_taken_back.get();
  m.replayed = replayed.get();
  m.replayed_bytes = replayed_bytes.get();
  m.unheard.assign(unheard_.begin(), unheard_.end());
  for (const auto& [lane, outage] : outages_) m.outages.push_back(outage);
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
