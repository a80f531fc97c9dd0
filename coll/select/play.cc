// Prepares the steps of some ranks for the simulation: the dependencies between tasks.
#include "coll/select/play.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <tuple>

#include "coll/engine/plan.h"

namespace weft {
namespace {

// The bytes of a range of chunks in a round of `bytes`.
class ChunkBytes {
 public:
  ChunkBytes(const Schedule& s, double bytes) : each_(bytes / s.nchunks) {
    if (s.weight.empty() && s.block.empty()) return;
    const auto weight = [&](int c) { return s.weight.empty() ? 1.0 : s.weight[as_index(c)]; };
    const auto group = [&](int c) { return s.block.empty() ? 0 : s.block[as_index(c)]; };
    std::vector<double> sum(s.block.empty() ? 1 : as_index(std::ranges::max(s.block)) + 1, 0);
    for (int c = 0; c < s.nchunks; ++c) sum[as_index(group(c))] += weight(c);
    before_.push_back(0);
    for (int c = 0; c < s.nchunks; ++c)
      before_.push_back(before_.back() + bytes / static_cast<double>(sum.size()) * weight(c) /
                                             sum[as_index(group(c))]);
  }
  double of(Chunks c) const {
    return before_.empty() ? each_ * c.count
                           : before_[as_index(c.end())] - before_[as_index(c.first)];
  }

 private:
  double each_;
  std::vector<double> before_;
};

bool one_reduction(const Step& a, const Step& b) {
  return a.op == Op::kRecvReduce && b.op == Op::kRecvReduce && a.channel == b.channel &&
         a.at == b.at;
}

}  // namespace

Ports::Ports(const Shape& shape, const Layout& layout, const CostModel& model) {
  int most = 1;
  for (const auto& ranks : layout.hosts()) most = std::max(most, static_cast<int>(ranks.size()));
  nrails_ = model.rails_per_host > 0 ? model.rails_per_host : most;
  const int nhosts = layout.nhosts();
  port_of_.resize(as_index(shape.nranks));
  users_.assign(as_index(nhosts * nrails_), 0);
  us_per_byte_.assign(as_index(nhosts * nrails_), model.rail.us_per_byte);
  const bool uniform = uniform_hosts(shape);
  const bool known = !uniform && shape.rail.size() == as_index(shape.nranks);
  for (int h = 0; h < nhosts; ++h) {
    const int local = static_cast<int>(layout.hosts()[as_index(h)].size());
    for (int l = 0; l < local; ++l) {
      const Rank r = layout.hosts()[as_index(h)][as_index(l)];
      // If hosts have different numbers of ranks, the local index does not determine the rail.
      const int rail =
          known ? shape.rail[as_index(r)] % nrails_ : by_index(l, local, nrails_, uniform);
      port_of_[as_index(layout.hosts()[as_index(h)][as_index(l)])] = h * nrails_ + rail;
      ++users_[as_index(h * nrails_ + rail)];
    }
  }
  for (const SlowPort& p : shape.slow_ports)  // a schedule for a dead port does not use the port
    if (p.rate > 0)
      us_per_byte_[as_index(of(layout.hosts()[as_index(p.host)][as_index(p.local)]))] /= p.rate;
  // Weights are per rank of a host; they are rail weights if each rank has its own rail.
  const auto& weight = shape.rail_weight;
  if (static_cast<int>(weight.size()) != nrails_) return;
  double sum = 0;
  for (double w : weight) sum += w;
  for (std::size_t p = 0; p < us_per_byte_.size(); ++p)
    us_per_byte_[p] *= sum / nrails_ / std::max(weight[p % as_index(nrails_)], 1e-9);
}

Play::Play(std::span<const Schedule> some, const Shape& shape, double bytes, const CostModel& model,
           Order order)
    : model_(model),
      order_(order),
      layout_(shape),
      ports_(shape, layout_, model),
      played_(as_index(shape.nranks), false),
      out_(as_index(ports_.count())),
      in_(as_index(ports_.count())),
      share_(as_index(ports_.count()), 1) {
  std::vector<int> seen(as_index(ports_.count()), 0);
  int here = 0;
  for (const Schedule& s : some) {
    played_[as_index(s.rank)] = true;
    ++seen[as_index(ports_.of(s.rank))];
    here += layout_.host_of(s.rank) == layout_.host_of(some[0].rank);
  }
  for (int p = 0; p < ports_.count(); ++p)
    if (seen[as_index(p)] > 0)
      share_[as_index(p)] = static_cast<double>(ports_.users(p)) / seen[as_index(p)];
  spine_share_ = static_cast<double>(layout_.per_host()) / here;
  if (model.uplink_us_per_byte > 0) leaf_ = shape.leaf;
  for (const Schedule& s : some) ranks_.emplace_back().schedule = &s;
  for (std::size_t k = 0; k < ranks_.size(); ++k) add_tasks(static_cast<int>(k), bytes);
  match_messages();
  if (order_ == Order::kAsEngine) take_as_own();
  std::ranges::sort(edges_);
  for (const auto& [from, to] : edges_) {
    Task& t = tasks_[as_index(from)];
    if (t.afters++ == 0) t.after = static_cast<int>(after_.size());
    after_.push_back(to);
    ++tasks_[as_index(to)].missing;
  }
}

void Play::add_tasks(int rank, double bytes) {
  Member& m = ranks_[as_index(rank)];
  m.first = static_cast<int>(tasks_.size());
  const auto& steps = m.schedule->steps;
  m.nodes = static_cast<int>(steps.size());
  const ChunkBytes size(*m.schedule, bytes);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    Task& t = tasks_.emplace_back();
    t.rank = rank;
    t.near = layout_.host_of(steps[i].peer) == layout_.host_of(m.schedule->rank);
    t.bytes = size.of(steps[i].at);
    t.missing += steps[i].op != Op::kSend;
    // Sources that can be read in place are reduced in one pass.
    t.reduces = steps[i].op == Op::kRecvReduce &&
                (model_.host_ports || !(t.near && i > 0 && one_reduction(steps[i - 1], steps[i])));
  }
  if (order_ == Order::kAsEngine) order_by_chunks(m);
  if (model_.fan_in_penalty > 0) count_fan_in(m);
}

// A step depends on the writers of its chunks. A reduction into the same chunks is one writer, and
// a message of joined steps leaves when the data of all of them is ready.
void Play::order_by_chunks(Member& m) {
  const auto& steps = m.schedule->steps;
  std::vector<int> touched;  // the chunks in use: few of the n * n chunks of an all_to_all
  for (const Step& s : steps)
    for (int c = s.at.first; c < s.at.end(); ++c) touched.push_back(c);
  std::ranges::sort(touched);
  touched.erase(std::unique(touched.begin(), touched.end()), touched.end());
  std::vector<int> writer(touched.size(), -1);
  std::vector<int> waits;  // writers that the step's reduction follows
  for (std::size_t i = 0, end = 0; i < steps.size(); ++i) {
    const Step& s = steps[i];
    const int me = m.first + static_cast<int>(i);
    const auto writers_of = [&](const Chunks& at) {
      const auto first = std::ranges::lower_bound(touched, at.first) - touched.begin();
      return std::span<int>(&writer[static_cast<std::size_t>(first)], as_index(at.count));
    };
    const bool opens = i >= end;
    if (opens) {
      end = s.op == Op::kRecvReduce ? reduction_end(*m.schedule, i) : i + 1;
      while (s.op == Op::kSend && end < steps.size() && steps[end].joined) ++end;
      waits.clear();
      for (std::size_t k = i; k < (s.op == Op::kSend ? end : i + 1); ++k) {
        const std::span<int> writers = writers_of(steps[k].at);
        waits.insert(waits.end(), writers.begin(), writers.end());
      }
      std::ranges::sort(waits);
      waits.erase(std::unique(waits.begin(), waits.end()), waits.end());
    }
    for (const int w : waits)
      if (w >= 0) edges_.emplace_back(w, me);
    if (s.op == Op::kSend) continue;
    // The last step represents all steps of a reduction.
    const int last = m.first + static_cast<int>(end) - 1;
    if (me != last) edges_.emplace_back(me, last);
    if (opens && s.op == Op::kRecvReduce) {
      tasks_[as_index(last)].reduced = true;
      ++m.nodes;
    }
    if (opens) std::ranges::fill(writers_of(s.at), last);
  }
}

void Play::count_fan_in(const Member& m) {
  const auto& steps = m.schedule->steps;
  const auto from_afar = [&](std::size_t i) {
    return steps[i].op != Op::kSend && !tasks_[as_index(m.first) + i].near;
  };
  for (std::size_t i = 0, end; i < steps.size(); i = end) {
    end = i + 1;
    if (!from_afar(i)) continue;
    while (end < steps.size() && from_afar(end) && steps[end].peer != steps[end - 1].peer) ++end;
    for (std::size_t k = i; k < end; ++k)
      tasks_[as_index(m.first) + k].fan_in = static_cast<int>(end - i);
  }
}

// The i-th send on a channel matches the i-th receive. A long message waits for a credit; joined
// steps are one message.
void Play::match_messages() {
  using Channel = std::tuple<Rank, Rank, int>;
  std::vector<std::pair<Channel, int>> sends, receives;
  for (std::size_t i = 0; i < tasks_.size(); ++i) {
    const int task = static_cast<int>(i);
    const Step& s = step(task);
    if (!played_[as_index(s.peer)]) continue;
    const Rank me = ranks_[as_index(tasks_[i].rank)].schedule->rank;
    if (s.op == Op::kSend)
      sends.push_back({{me, s.peer, s.channel}, task});
    else
      receives.push_back({{s.peer, me, s.channel}, task});
  }
  std::ranges::sort(sends);
  std::ranges::sort(receives);
  std::vector<int> lasts;  // the last receives of the channel's messages
  Channel channel;
  for (std::size_t i = 0, k = 0; i < sends.size() && k < receives.size();) {
    if (sends[i].first == receives[k].first) {
      const int receive = receives[k].second;
      tasks_[as_index(sends[i].second)].arrives_at = receive;
      if (lasts.empty() || channel != receives[k].first) {
        lasts = {receive};
        channel = receives[k].first;
      } else if (step(receive).joined) {
        lasts.back() = receive;
      } else {
        lasts.push_back(receive);
      }
      if (lasts.size() > kArrivalsAhead && !step(receive).joined)
        needs_credit(sends[i].second, lasts[lasts.size() - 1 - kArrivalsAhead]);
      ++i, ++k;
    } else if (sends[i].first < receives[k].first)
      ++i;
    else
      ++k;
  }
}

// A rank that is not simulated sends its n-th chunk when the receiver itself has sent n chunks on
// the same channel. The unit is chunks, since similar ranks may cut them into messages differently.
void Play::take_as_own() {
  for (const Member& m : ranks_) {
    std::map<std::pair<bool, int>, std::array<std::vector<int>, 2>> channels;  // receives, sends
    const int end = m.first + static_cast<int>(m.schedule->steps.size());
    for (int t = m.first; t < end; ++t)
      channels[{tasks_[as_index(t)].near, step(t).channel}][step(t).op == Op::kSend].push_back(t);
    for (const auto& [channel, of] : channels) take_as_own(of[0], of[1]);
  }
  std::ranges::sort(echoes_);
}

void Play::take_as_own(const std::vector<int>& receives, const std::vector<int>& sends) {
  // Credits count per channel of the peer that the receive specifies.
  std::vector<std::tuple<Rank, int, int, int>> channels;  // then receive, and its send
  int sent = sends.empty() ? 0 : step(sends[0]).at.count, received = 0;
  std::size_t i = 0;  // the send of the chunks up to `sent`
  for (const int receive : receives) {
    received += step(receive).at.count;
    while (sent < received && i + 1 < sends.size()) sent += step(sends[++i]).at.count;
    if (played_[as_index(step(receive).peer)]) continue;
    if (sends.empty()) {
      unsent_.push_back(receive);
      continue;
    }
    Task& send = tasks_[as_index(sends[i])];
    if (send.arrives_at >= 0) {
      echoes_.emplace_back(sends[i], receive);
      continue;
    }
    send.arrives_at = receive;
    channels.emplace_back(step(receive).peer, step(receive).channel, receive, sends[i]);
  }
  std::ranges::sort(channels);
  for (std::size_t k = kArrivalsAhead; k < channels.size(); ++k) {
    const auto& [peer, channel, receive, send] = channels[k];
    const auto& [before_peer, before_channel, before, before_send] = channels[k - kArrivalsAhead];
    if (peer == before_peer && channel == before_channel) needs_credit(send, before);
  }
}

void Play::needs_credit(int send, int receive) {
  if (order_ == Order::kAsEngine && tasks_[as_index(send)].bytes >= model_.eager_bytes)
    edges_.emplace_back(receive, send);
}

}  // namespace weft
