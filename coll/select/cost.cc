// Plays schedules through on the links of a cost model, to predict their time.
// Does not know which algorithm `auto` picks: cost_pick.cc does.
#include "coll/select/cost.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <unordered_map>

#include "coll/schedule/building_blocks.h"

namespace weft {
namespace {

// All ranks are played through up to this many steps in all, beyond that only one host's. In a
// broadcast, ranks do different things, and few: it is always played by all (up to 100,000 ranks).
// More would be all pairs of many ranks, which do alike, and take half a second.
constexpr std::int64_t kAllRanksSteps = 4096;
constexpr std::int64_t kBroadcastSteps = 200'000;
constexpr int kSomeRanks = 16;

// A point in time, and how much of the way to it was latency.
struct Moment {
  double us = 0, alpha_us = 0;
  Moment plus(double bytes_us, double latency_us) const {
    return {us + bytes_us + latency_us, alpha_us + latency_us};
  }
};

Moment later(const Moment& a, const Moment& b) { return b.us > a.us ? b : a; }

// Bytes before each chunk, for a message of `bytes`.
std::vector<double> chunk_offsets(const Schedule& s, double bytes) {
  const auto weight = [&](int c) { return s.weight.empty() ? 1.0 : s.weight[c]; };
  // Of an all_to_all a block is one of n * n.
  std::vector<double> sum(s.block.empty() ? 1 : std::ranges::max(s.block) + 1, 0);
  const auto group = [&](int c) { return s.block.empty() ? 0 : s.block[c]; };
  for (int c = 0; c < s.nchunks; ++c) sum[group(c)] += weight(c);
  std::vector<double> offset;
  offset.reserve(s.nchunks + 1);
  offset.push_back(0);
  for (int c = 0; c < s.nchunks; ++c)
    offset.push_back(offset.back() +
                     bytes / static_cast<double>(sum.size()) * weight(c) / sum[group(c)]);
  return offset;
}

// Ports of rails, and which rank uses which.
class Ports {
 public:
  Ports(const Shape& shape, const Layout& layout, const CostModel& model) {
    int most = 1;
    for (const auto& ranks : layout.hosts()) most = std::max(most, static_cast<int>(ranks.size()));
    nrails_ = model.rails_per_host > 0 ? model.rails_per_host : most;
    const int nhosts = layout.nhosts();
    port_of_.resize(shape.nranks);
    users_.assign(nhosts * nrails_, 0);
    us_per_byte_.assign(nhosts * nrails_, model.rail.us_per_byte);
    for (int h = 0; h < nhosts; ++h) {
      const int local = static_cast<int>(layout.hosts()[h].size());
      for (int l = 0; l < local; ++l) {
        const int rail = static_cast<int>(static_cast<std::int64_t>(l) * nrails_ / local);
        port_of_[layout.hosts()[h][l]] = h * nrails_ + rail;
        ++users_[h * nrails_ + rail];
      }
    }
    // Weights are per rank of a host; they are those of rails where each rank has its own.
    const auto& weight = shape.rail_weight;
    if (static_cast<int>(weight.size()) != nrails_) return;
    double sum = 0;
    for (double w : weight) sum += w;
    for (std::size_t p = 0; p < us_per_byte_.size(); ++p)
      us_per_byte_[p] *= sum / nrails_ / std::max(weight[p % nrails_], 1e-9);
  }

  int count() const { return static_cast<int>(users_.size()); }
  int rails() const { return nrails_; }
  int of(Rank r) const { return port_of_[r]; }
  int users(int port) const { return users_[port]; }
  double us_per_byte(int port) const { return us_per_byte_[port]; }

 private:
  int nrails_;
  std::vector<int> port_of_, users_;
  std::vector<double> us_per_byte_;
};

// One round of some ranks' schedules in time.
class Play {
 public:
  Play(std::span<const Schedule> some, const Shape& shape, double bytes, const CostModel& model)
      : some_(some),
        model_(model),
        layout_(shape),
        ports_(shape, layout_, model),
        offset_(chunk_offsets(some[0], bytes)),
        played_(shape.nranks, false),
        out_(ports_.count()),
        in_(ports_.count()),
        share_(ports_.count(), 1) {
    std::vector<int> seen(ports_.count(), 0);
    for (const Schedule& s : some_) {
      played_[s.rank] = true;
      ++seen[ports_.of(s.rank)];
    }
    for (int p = 0; p < ports_.count(); ++p)
      if (seen[p] > 0) share_[p] = static_cast<double>(ports_.users(p)) / seen[p];
    for (const Schedule& s : some_) {
      State& state = states_.emplace_back();
      std::vector<int>& touched = state.touched;
      for (const Step& step : s.steps)
        for (int c = step.at.first; c < step.at.end(); ++c) touched.push_back(c);
      std::ranges::sort(touched);
      touched.erase(std::unique(touched.begin(), touched.end()), touched.end());
      state.chunk.resize(touched.size());
    }
  }

  void run() {
    for (bool moved = true, left = true; left;) {
      const bool stuck = !moved;  // waits in a circle in list order: take the peer to be ready
      moved = left = false;
      for (std::size_t k = 0; k < some_.size(); ++k) {
        const auto& steps = some_[k].steps;
        State& state = states_[k];
        while (state.next < steps.size() && step(some_[k], state, stuck && !moved)) moved = true;
        left |= state.next < steps.size();
      }
    }
  }

  Moment end() const {
    Moment end;
    for (const State& s : states_) end = later(end, s.end);
    return end;
  }
  double rail_us() const {
    double most = 0;
    for (const auto* side : {&out_, &in_})
      for (const Port& p : *side) most = std::max(most, p.busy_us);
    return most;
  }
  // The work of all ranks, also of the ranks that are not played.
  double work_us() const {
    double sum = 0;
    for (const State& s : states_) sum += s.work_us;
    return sum * static_cast<double>(played_.size()) / static_cast<double>(some_.size());
  }
  double host_us() const {
    double most = 0, bytes = 0;
    for (const State& s : states_) {
      most = std::max(most, s.busy_us);
      bytes += s.bytes;
    }
    const double per_host = bytes / static_cast<double>(some_.size()) * layout_.per_host();
    return std::max(most, per_host * model_.memory_us_per_byte);
  }

 private:
  struct Port {
    Moment free;
    double busy_us = 0;
  };
  struct Queue {
    std::vector<Moment> left;  // when the messages leave
    std::size_t next = 0;
  };
  struct State {
    std::size_t next = 0;
    std::vector<int> touched;   // chunks of its steps, ascending; few of the n * n of an all_to_all
    std::vector<Moment> chunk;  // when each of these was last written
    Moment cpu;                 // when the rank is free
    Moment end;
    double busy_us = 0, bytes = 0;
    double work_us = 0;        // on messages from and to other hosts
    std::vector<Moment> sent;  // when its messages leave
    std::size_t received = 0;
    std::size_t run_end = 0;  // of the receives in a row
    int run = 1;
  };

  double size(Chunks at) const { return offset_[at.end()] - offset_[at.first]; }

  // The rank is busy with a message for `us`, and with handling it; once where steps are joined.
  void work(State& state, double us, bool near, bool joined) {
    const double step_us = joined ? 0 : model_.step_us + (near ? model_.host : model_.rail).step_us;
    state.cpu = state.cpu.plus(us, step_us);
    state.busy_us += us + step_us;
    if (!near) state.work_us += step_us;
  }

  Moment through(Port& port, int index, Moment from, double bytes, double factor) {
    const double us = bytes * ports_.us_per_byte(index) * share_[index] * factor;
    port.free = later(from, port.free).plus(us, 0);
    port.busy_us += us;
    return port.free;
  }

  static std::uint64_t channel(Rank from, Rank to, int channel) {
    return (static_cast<std::uint64_t>(from) << 36) ^ (static_cast<std::uint64_t>(to) << 12) ^
           static_cast<std::uint64_t>(channel);
  }

  // How many receives in a row, of which the next step is one, come from different other hosts'
  // ranks.
  int fan_in(const Schedule& s, State& state) const {
    if (state.next < state.run_end) return state.run;
    const auto from_afar = [&](const Step& step) {
      return step.op != Op::kSend && layout_.host_of(step.peer) != layout_.host_of(s.rank);
    };
    std::size_t end = state.next + 1;
    while (end < s.steps.size() && from_afar(s.steps[end]) &&
           s.steps[end].peer != s.steps[end - 1].peer)
      ++end;
    state.run = static_cast<int>(end - state.next);
    state.run_end = end;
    return state.run;
  }

  // When the message of a receive leaves its sender; false while that is not known yet.
  bool departure(const Schedule& s, State& state, bool force, Moment* left) {
    const Step& step = s.steps[state.next];
    if (!played_[step.peer]) {
      if (!state.sent.empty()) *left = state.sent[std::min(state.received, state.sent.size() - 1)];
      ++state.received;
      return true;
    }
    Queue& queue = flying_[channel(step.peer, s.rank, step.channel)];
    const bool empty = queue.next == queue.left.size();
    if (empty && !force) return false;
    *left = empty ? state.cpu : queue.left[queue.next++];
    ++state.received;
    return true;
  }

  // Plays the rank's next step; false while its message has not been sent.
  bool step(const Schedule& s, State& state, bool force) {
    const Step& step = s.steps[state.next];
    const double bytes = size(step.at);
    const auto first = std::ranges::lower_bound(state.touched, step.at.first);
    const std::span<Moment> chunks(&state.chunk[first - state.touched.begin()], step.at.count);
    const bool near = layout_.host_of(step.peer) == layout_.host_of(s.rank);
    if (step.op == Op::kSend) {
      Moment ready = state.cpu;
      for (const Moment& written : chunks) ready = later(ready, written);
      state.cpu = ready;
      work(state, 0, near, step.joined);
      Moment leaves = state.cpu;
      if (!near) {
        // The port is busy from when the message begins to leave; the receiver counts its bytes.
        const int port = ports_.of(s.rank);
        const Moment begin = later(leaves, out_[port].free);
        through(out_[port], port, leaves, bytes, 1);
        leaves = begin;
      }
      if (played_[step.peer])
        flying_[channel(s.rank, step.peer, step.channel)].left.push_back(leaves);
      state.sent.push_back(leaves);
    } else {
      Moment left;
      if (!departure(s, state, force, &left)) return false;
      Moment there = left.plus(0, near ? model_.host.alpha_us : model_.rail.alpha_us);
      if (!near) {
        const int port = ports_.of(s.rank);
        const double slower = 1 + model_.fan_in_penalty * (fan_in(s, state) - 1);
        there = through(in_[port], port, there, bytes, slower);
      }
      state.cpu = later(state.cpu, there);
      // Sources that can be read where they lie are reduced in one pass, adjacent steps together.
      const bool goes_on =
          near && state.next > 0 && s.steps[state.next - 1].op == Op::kRecvReduce &&
          s.steps[state.next - 1].channel == step.channel && s.steps[state.next - 1].at == step.at;
      const bool reduces = step.op == Op::kRecvReduce && !goes_on;
      work(state,
           (near ? bytes * model_.host.us_per_byte : 0) +
               (reduces ? bytes * model_.reduce_us_per_byte : 0),
           near, step.joined);
      if (near || step.op == Op::kRecvReduce) state.bytes += bytes;
      std::ranges::fill(chunks, state.cpu);
    }
    state.end = later(state.end, state.cpu);
    ++state.next;
    return true;
  }

  std::span<const Schedule> some_;
  const CostModel& model_;
  Layout layout_;
  Ports ports_;
  std::vector<double> offset_;
  std::vector<bool> played_;
  std::vector<Port> out_, in_;
  std::vector<double> share_;  // ranks on a port for each one of them that is played
  std::vector<State> states_;
  std::unordered_map<std::uint64_t, Queue> flying_;  // by channel
};

int useful_rounds(std::size_t bytes, std::size_t element_size, int nchunks, int rounds) {
  const double elements = static_cast<double>(bytes) / static_cast<double>(element_size);
  const double most = std::max(1.0, std::ceil(elements / nchunks));
  return static_cast<int>(std::clamp<double>(rounds, 1.0, most));
}

}  // namespace

Prediction predict(std::span<const Schedule> some, const Shape& shape, std::size_t bytes,
                   std::size_t element_size, int rounds, const CostModel& model) {
  const int k = useful_rounds(bytes, element_size, some[0].nchunks, rounds);
  Play play(some, shape, static_cast<double>(bytes) / k, model);
  play.run();
  Prediction p;
  p.alpha_us = play.end().alpha_us;
  p.rail_us = k * play.rail_us();
  p.host_us = k * play.host_us();
  p.work_us = k * play.work_us();
  double first = play.end().us, stage = std::max(play.rail_us(), play.host_us());
  if (model.oversubscription > 1) {
    // What the chain does not do itself is shared by the cores (Graham's bound for list schedules),
    // while bytes are on their way.
    const double cores = shape.nranks / model.oversubscription;
    first = std::max(first, p.alpha_us + (play.work_us() - p.alpha_us) / cores);
    stage = std::max(stage, play.work_us() / cores);
  }
  p.time_us = std::max(first, stage) + (k - 1) * stage;
  p.limiting = "latency";
  if (std::max(p.rail_us, p.host_us) > p.alpha_us)
    p.limiting = p.rail_us > p.host_us ? "rail" : "host";
  return p;
}

Prediction predict(const Schedule& own, const Shape& shape, std::size_t bytes,
                   std::size_t element_size, int rounds, const CostModel& model) {
  return predict(std::span(&own, 1), shape, bytes, element_size, rounds, model);
}

Prediction predict(const Algorithm& algorithm, const Shape& any, std::size_t bytes,
                   std::size_t element_size, const CostModel& model) {
  Shape shape = any;
  std::vector<Schedule> some;
  const auto build = [&](Rank r) -> const Schedule& {
    shape.rank = r;
    return some.emplace_back(algorithm.build(shape));
  };
  // The root may do more than the others, and these are about alike.
  const bool broadcast = rooted(algorithm.collective);
  const Rank root = broadcast ? shape.root : 0;
  const std::size_t message = bytes;
  if (algorithm.collective == Collective::kAllToAll)  // every rank has blocks of its own
    bytes *= static_cast<std::size_t>(shape.nranks);
  std::int64_t steps = static_cast<std::int64_t>(build(root).steps.size());
  if (shape.nranks > 1)
    steps += static_cast<std::int64_t>(build((root + 1) % shape.nranks).steps.size()) *
             (shape.nranks - 1);
  some.clear();
  if (steps <= (broadcast ? kBroadcastSteps : kAllRanksSteps)) {
    for (Rank r = 0; r < shape.nranks; ++r) build(r);
  } else {
    shape.rank = root;
    const Layout layout(shape);
    build(root);
    for (int i = 1; i < std::min(layout.per_host(), kSomeRanks); ++i)
      build(layout.host().at(layout.my_local() + i));
  }
  const std::size_t round = std::max<std::size_t>(model.round_bytes, 1);
  const int rounds =
      static_cast<int>(std::min<std::size_t>((message + round - 1) / round, 1 << 20));
  return predict(some, shape, bytes, element_size, rounds, model);
}

}  // namespace weft
