#include "coll/engine/pieces.h"

#include <algorithm>
#include <utility>

namespace weft {

std::vector<Piece> pieces_of(const Schedule& s, int blocks) {
  std::vector<Piece> pieces(static_cast<std::size_t>(s.nchunks));
  std::vector<int> seen(static_cast<std::size_t>(blocks), 0);
  std::vector<double> weights(static_cast<std::size_t>(blocks), 0);
  for (int c = 0; c < s.nchunks; ++c) {
    Piece& p = pieces[static_cast<std::size_t>(c)];
    p.block = s.block.empty() ? c : s.block[static_cast<std::size_t>(c)];
    p.index = seen[static_cast<std::size_t>(p.block)]++;
    p.weight = s.weight.empty() ? 0 : s.weight[static_cast<std::size_t>(c)];
    p.before = weights[static_cast<std::size_t>(p.block)];
    weights[static_cast<std::size_t>(p.block)] += p.weight;
  }
  for (Piece& p : pieces) {
    p.of = seen[static_cast<std::size_t>(p.block)];
    p.all = weights[static_cast<std::size_t>(p.block)];
  }
  return pieces;
}

void keep_touched(Schedule& s, std::vector<Piece>& pieces, const BlockOwnership& ownership) {
  const int n = s.nranks;
  std::vector<int> kept;
  if (s.block.empty()) {
    for (int r = 0; r < n; ++r) {
      kept.push_back(s.rank * n + r);
      kept.push_back(r * n + s.rank);
    }
  } else {
    for (int c = 0; c < s.nchunks; ++c)
      if (const int b = s.block[static_cast<std::size_t>(c)];
          ownership.starts(s.rank, b) || ownership.ends(s.rank, b))
        kept.push_back(c);
  }
  for (const Step& step : s.steps)
    for (int c = step.at.first; c < step.at.end(); ++c) kept.push_back(c);
  std::ranges::sort(kept);
  kept.erase(std::unique(kept.begin(), kept.end()), kept.end());
  for (Step& step : s.steps)
    step.at.first = static_cast<int>(std::ranges::lower_bound(kept, step.at.first) - kept.begin());
  if (s.block.empty()) {
    for (const int c : kept) pieces.push_back({c, 0, 1});
  } else {
    const std::vector<Piece> all = pieces_of(s, ownership.blocks());
    for (const int c : kept) pieces.push_back(all[static_cast<std::size_t>(c)]);
  }
  std::vector<int> place;
  if (!s.place.empty())
    for (const int c : kept) place.push_back(s.place[static_cast<std::size_t>(c)]);
  s.place = std::move(place);
  s.nchunks = static_cast<int>(kept.size());
}

Schedule split_chunks(const Schedule& s, std::vector<std::size_t>& ends) {
  Schedule out = s;
  out.steps.clear();
  for (std::size_t i = 0; i < s.steps.size();) {
    const Step& first = s.steps[i];
    const std::size_t end = first.op == Op::kRecvReduce ? reduction_end(s, i) : i + 1;
    for (int c = first.at.first; c < first.at.end(); ++c) {
      ends.resize(ends.size() + end - i, ends.size() + end - i);
      for (std::size_t k = i; k < end; ++k)
        out.steps.push_back({s.steps[k].op, s.steps[k].peer, s.steps[k].channel, {c, 1}});
    }
    i = end;
  }
  return out;
}

}  // namespace weft
