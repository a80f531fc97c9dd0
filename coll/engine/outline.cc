// Walks the schedule of one rank once, and counts. This file is independent of how the engine uses
// the counts.
#include "coll/engine/outline.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "coll/engine/plan.h"
#include "coll/footprint.h"
#include "coll/schedule/block_ownership.h"
#include "coll/schedule/building_blocks.h"

namespace weft {
namespace {

// Compared by hops along rails first: they are the long ones.
using Hops = std::pair<int, int>;

Hops further(Hops h, bool near) {
  return near ? Hops{h.first, h.second + 1} : Hops{h.first + 1, h.second};
}

}  // namespace

Rank outlined_rank(Collective collective, const Shape& shape) {
  if (!rooted(collective)) return 0;
  if (by_blocks(collective)) return shape.root;
  for (const auto& ranks : shape.hosts)
    if (std::ranges::find(ranks, shape.root) == ranks.end()) return ranks.front();
  return 0;
}

Outline outline_of(const Schedule& s, Collective collective, const Shape& shape, bool split) {
  Outline o;
  const Layout layout(shape);
  for (const auto& ranks : layout.hosts())
    o.per_host = std::max(o.per_host, static_cast<int>(ranks.size()));
  const bool blocks = by_blocks(collective);
  const BlockOwnership ownership{collective, s.nranks, shape.root};
  const auto passes_on = [&](int c) {
    const auto i = static_cast<std::size_t>(c);
    return (blocks || collective == Collective::kReduce) &&
           !ownership.ends(s.rank, s.block.empty() ? c : s.block[i]);
  };
  // A chunk's place in scratch.
  const auto place_of = [&](int c) {
    const int shared = s.place.empty() ? -1 : s.place[static_cast<std::size_t>(c)];
    return shared < 0 ? c : -1 - shared;
  };
  const double weights = std::accumulate(s.weight.begin(), s.weight.end(), 0.0);
  const bool weighted = weights > 0 && !blocks;
  const auto size_of = [&](Chunks at) {  // in chunks of average length
    if (!weighted) return static_cast<double>(at.count);
    return std::accumulate(s.weight.begin() + at.first, s.weight.begin() + at.end(), 0.0) /
           weights * s.nchunks;
  };
  const auto whole = [](double chunks) { return static_cast<int>(std::ceil(chunks - 1e-6)); };
  std::map<int, Hops> value;  // by chunk written so far: the hops that its value has taken
  std::vector<Hops> left[2];  // the same for the messages sent, to other hosts and inside the host
  std::size_t arrived[2] = {0, 0};
  std::map<std::pair<Rank, int>, std::pair<int, double[kArrivalsAhead]>> arrivals;  // by channel
  std::map<int, bool> kept;
  double chunks[2][2] = {};            // [near][sent]
  double between = 0, since_rail = 0;  // chunks sent inside the host between messages along rails
  double reduced = 0;
  Hops longest{0, 0};
  for (std::size_t i = 0; i < s.steps.size(); ++i) {
    const Step& step = s.steps[i];
    const bool near = layout.host_of(step.peer) == layout.host_of(s.rank);
    const bool sends = step.op == Op::kSend;
    (near ? o.host_messages : o.rail_messages) += split ? step.at.count : step.joined ? 0 : 1;
    chunks[near][sends] += size_of(step.at);
    o.direct = o.direct || (!near && step.channel == kDirectChannel);
    if (near && sends && chunks[0][0] + chunks[0][1] > 0) since_rail += size_of(step.at);
    if (!near) between += std::exchange(since_rail, 0.0);
    if (sends) {
      Hops far{0, 0};
      for (int c = step.at.first; c < step.at.end(); ++c)
        if (const auto it = value.find(c); it != value.end()) far = std::max(far, it->second);
      left[near].push_back(far);
      continue;
    }
    // Peers act like this rank: what it receives has taken as many hops as what it sends.
    Hops far{0, 0};
    if (!left[near].empty()) far = left[near][std::min(arrived[near], left[near].size() - 1)];
    ++arrived[near];
    far = further(far, near);
    for (int c = step.at.first; c < step.at.end(); ++c) {
      Hops& h = value[c];
      h = std::max(h, far);
      if (passes_on(c)) kept[place_of(c)] = true;
    }
    longest = std::max(longest, far);
    if (step.op == Op::kRecvReduce) reduced += size_of(step.at);
    if (step.op == Op::kRecvReduce && !near) {
      auto& [count, most] = arrivals[{step.peer, step.channel}];
      const double size = split ? 1 : size_of(step.at);
      int times = split ? step.at.count : 1;
      while (times-- > 0) {
        double& slot = most[count++ % kArrivalsAhead];
        slot = std::max(slot, size);
      }
    }
  }
  std::tie(o.rail_hops, o.host_hops) = longest;
  o.hops_known = !rooted(collective) || s.rail_hops > 0;
  o.crossing = s.rail_hops > 1;
  o.rail_hops = std::max(o.rail_hops, s.rail_hops);
  o.rail_chunks = whole(std::max(chunks[0][0], chunks[0][1]));
  o.host_chunks = whole(std::max(chunks[1][0], chunks[1][1]));
  o.reduced_chunks = whole(reduced);
  o.together = 2 * between > o.host_chunks;
  o.scratch_chunks = static_cast<int>(kept.size());
  if (blocks && !split) {
    const Footprint f = footprint(collective);
    const auto chunks_of = [&](Part part) {
      const auto n = static_cast<std::size_t>(s.nranks);
      return static_cast<int>(blocks_in(part, n)) * (s.nchunks / ownership.blocks());
    };
    o.copied_first = chunks_of(f.in);
    o.copied_chunks = o.copied_first + chunks_of(f.out);
    o.scratch_chunks = s.nchunks;
  }
  // Ranks other than the root forward blocks.
  if (blocks && rooted(collective) && !s.place.empty())
    o.scratch_chunks = 1 + std::ranges::max(s.place);
  double arriving = 0;
  for (const auto& [channel, of] : arrivals)
    for (const double most : of.second) arriving += most;
  o.scratch_chunks += whole(arriving);
  o.least_scratch = o.scratch_chunks;
  return o;
}

Outline outline_of(Collective collective, const Shape& shape, bool split,
                   const std::function<Schedule(Rank)>& build) {
  Outline o = outline_of(build(outlined_rank(collective, shape)), collective, shape, split);
  if (collective != Collective::kAllReduce) return o;
  const std::vector<int> hosts = slow_hosts(shape);
  if (hosts.empty()) return o;
  // All ranks of slow hosts, and the first rank of the first and the last other host.
  std::vector<Rank> ranks;
  for (const int host : hosts)
    for (const Rank r : shape.hosts[static_cast<std::size_t>(host)]) ranks.push_back(r);
  const auto fast = [&](const auto& host) {
    return std::ranges::find(ranks, host[0]) == ranks.end();
  };
  const auto first = std::find_if(shape.hosts.begin(), shape.hosts.end(), fast);
  const auto last = std::find_if(shape.hosts.rbegin(), shape.hosts.rend(), fast);
  ranks.insert(ranks.end(), {(*first)[0], (*last)[0]});
  for (const Rank r : ranks) {
    const Outline other = outline_of(build(r), collective, shape, split);
    for (int Outline::*count :
         {&Outline::rail_hops, &Outline::host_hops, &Outline::rail_messages,
          &Outline::host_messages, &Outline::rail_chunks, &Outline::host_chunks,
          &Outline::reduced_chunks, &Outline::scratch_chunks})
      o.*count = std::max(o.*count, other.*count);
    o.direct = o.direct || other.direct;
    o.least_scratch = std::min(o.least_scratch, other.least_scratch);
  }
  return o;
}

}  // namespace weft
