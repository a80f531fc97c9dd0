// Runs the simulation: sends messages through ports, in the order of virtual time or of the list.
#include <algorithm>

#include "coll/engine/engine.h"
#include "coll/select/play.h"

namespace weft {
void Play::run(int rounds, int lanes, double copy_in_us, double copy_out_us) {
  copy_in_us_ = copy_in_us;
  copy_out_us_ = copy_out_us;
  rounds_ = rounds;
  lanes_ = std::min(rounds, lanes);
  const std::size_t n = tasks_.size();
  turns_.resize(n * as_index(rounds));
  for (std::size_t i = 0; i < turns_.size(); ++i) turns_[i].missing = tasks_[i % n].missing;
  left_ = static_cast<int>(turns_.size());
  end_.assign(as_index(rounds), {});
  if (order_ == Order::kOfList) return run_as_listed();
  for (Member& m : ranks_) {
    m.left.assign(as_index(rounds), m.nodes);
    m.begun.assign(as_index(rounds), false);
    m.next = lanes_;
    // Within one host all lanes start at once, otherwise one after the other (done()).
    m.started = layout_.nhosts() > 1 ? 1 : lanes_;
    for (int round = 0; round < m.started; ++round) begin(m, round, {});
  }
  while (left_ > 0) {
    if (events_.empty()) break;
    const Event e = events_.top();
    events_.pop();
    if (e.what == What::kAtSpine)
      under_way(e.turn, through_spine(e.turn % steps(), e.at));
    else if (e.what == What::kArrives)
      met(e.turn, through_in(e.turn % steps(), e.at));
    else if (step(e.turn % steps()).op == Op::kSend)
      send(e.turn);
    else
      receive(e.turn);
  }
  std::ranges::sort(end_, {}, &Moment::us);
}

Moment Play::copy(Member& m, const Moment& at, double us) {
  if (us == 0) return at;
  m.busy_us += us;
  return m.cpu = later(m.cpu, at).plus(us, 0);
}

void Play::begin(Member& m, int round, const Moment& at) {
  const Moment when = copy(m, at, copy_in_us_);
  const int from = round * steps() + m.first;
  m.begun[as_index(round)] = true;
  for (int i = 0; i < static_cast<int>(m.schedule->steps.size()); ++i) {
    met(from + i, when);
    if (const int held = turns_[as_index(from + i)].held; held >= 0)
      start_turn(held, later(when, turns_[as_index(held)].ready));
  }
  for (const int task : unsent_)
    if (&ranks_[as_index(tasks_[as_index(task)].rank)] == &m)
      push(round * steps() + task, What::kArrives, when);
}

void Play::run_as_listed() {
  for (Member& m : ranks_) {
    m.left.assign(1, m.nodes);
    m.next = 1;
  }
  for (bool moved = true; left_ > 0;) {
    const bool stuck = !moved;  // a cycle in list order: assumes that the peer is ready
    moved = false;
    for (Member& m : ranks_)
      while (m.left[0] > 0 && take(m, stuck && !moved)) moved = true;
  }
}

// Starts the next step of the list; returns false if its message has not been sent yet.
bool Play::take(Member& m, bool force) {
  const int task = m.first + m.taken;
  const Step& s = step(task);
  Turn& turn = turns_[as_index(task)];
  if (s.op == Op::kSend) {
    turn.ready = m.cpu;
    send(task);
  } else {
    const bool arrived = turn.missing == 0;
    if (played_[as_index(s.peer)]) {
      if (!arrived && !force) return false;
      if (!arrived) turn.ready = m.cpu.plus(0, link_of(task).alpha_us);
    } else {
      // A rank that is not simulated sends its i-th message when this rank sends its own i-th
      // message.
      const auto last = std::min(as_index(m.received), std::max<std::size_t>(1, m.sent.size()) - 1);
      turn.ready = (m.sent.empty() ? Moment{} : m.sent[last]).plus(0, link_of(task).alpha_us);
    }
    ++m.received;
    turn.ready = through_in(task, turn.ready);
    receive(task);
  }
  ++m.taken;
  return true;
}

void Play::push(int turn, What what, const Moment& when) {
  events_.push({when.us, numbers_++, turn, what, when});
}

// Called when one of a task's dependencies is ready.
void Play::met(int turn, const Moment& when) {
  Turn& t = turns_[as_index(turn)];
  t.ready = later(t.ready, when);
  if (--t.missing == 0) push(turn, What::kBegins, t.ready);
}

void Play::done(int turn, const Moment& when) {
  --left_;
  const int round = turn / steps();
  end_[as_index(round)] = later(end_[as_index(round)], when);
  const Task& t = tasks_[as_index(turn % steps())];
  for (int i = t.after; i < t.after + t.afters; ++i)
    met(after_[as_index(i)] + round * steps(), when);
  // Lanes start one after the other, as in the engine.
  Member& m = ranks_[as_index(t.rank)];
  const int left = m.left[as_index(round)] -= t.reduced ? 2 : 1;
  if (left <= m.nodes - m.nodes / kStagger && round + 1 == m.started && m.started < lanes_)
    begin(m, m.started++, when);
  if (left > 0) return;
  const Moment ends = copy(m, when, copy_out_us_);
  end_[as_index(round)] = later(end_[as_index(round)], ends);
  if (m.next < rounds_) begin(m, m.next++, ends);
}

// Occupies the rank for `us` with the bytes of a step, and with the work on its message; joined
// steps share one message.
void Play::work(Member& m, int turn, double us) {
  const Task& t = tasks_[as_index(turn % steps())];
  const bool joined = step(turn % steps()).joined;
  const double step_us = joined ? 0 : model_.step_us + (t.near ? model_.host : model_.rail).step_us;
  m.cpu = later(m.cpu, turns_[as_index(turn)].ready).plus(us, step_us);
  m.busy_us += us + step_us;
  if (!t.near) m.work_us += step_us;
}

void Play::pass(Port& port, const Moment& from, double us) {
  port.free = later(from, port.free).plus(us, 0);
  port.busy_us += us;
}

void Play::send(int turn) {
  const Task& t = tasks_[as_index(turn % steps())];
  Member& m = ranks_[as_index(t.rank)];
  work(m, turn, 0);
  turns_[as_index(turn)].ready = m.cpu;
  if (order_ == Order::kAsEngine && t.arrives_at >= 0 && t.bytes >= model_.eager_bytes) {
    const int round = turn / steps(), receive = round * steps() + t.arrives_at;
    if (!ranks_[as_index(tasks_[as_index(t.arrives_at)].rank)].begun[as_index(round)]) {
      turns_[as_index(receive)].held = turn;
      return;
    }
  }
  start_turn(turn, m.cpu);
}

const LinkCost& Play::link_of(int task) const {
  const Task& t = tasks_[as_index(task)];
  if (t.near) return model_.host;
  const bool changes = over_spine(ranks_[as_index(t.rank)].schedule->rank, step(task).peer);
  return changes ? model_.spine : model_.rail;
}

bool Play::changes_leaf(int task) const {
  if (leaf_.empty()) return false;
  const Rank me = ranks_[as_index(tasks_[as_index(task)].rank)].schedule->rank;
  return leaf_[as_index(layout_.host_of(me))] != leaf_[as_index(layout_.host_of(step(task).peer))];
}

std::pair<int, int> Play::uplink_of(Rank r) const {
  return {leaf_[as_index(layout_.host_of(r))], ports_.rail(r)};
}

// Returns when the first byte of a message arrives that crosses the uplink and the spine because it
// changes leaves or rails.
Moment Play::through_spine(int task, const Moment& at) {
  const Task& t = tasks_[as_index(task)];
  const Rank me = ranks_[as_index(t.rank)].schedule->rank, peer = step(task).peer;
  Moment leaves = at;
  if (changes_leaf(task)) {
    Port& up = up_[uplink_of(me)];
    leaves = later(at, up.free);
    pass(up, leaves, t.bytes * model_.uplink_us_per_byte);
  }
  if (!over_spine(me, peer)) return leaves.plus(0, model_.rail.alpha_us);
  Port& spine = spines_[{layout_.host_of(me), layout_.host_of(peer)}];
  leaves = later(leaves, spine.free);
  pass(spine, leaves, t.bytes * model_.spine.us_per_byte * spine_share_);
  return leaves.plus(0, model_.spine.alpha_us);
}

void Play::under_way(int turn, const Moment& there) {
  const int task = turn % steps(), round = turn - task;
  const Task& t = tasks_[as_index(task)];
  if (t.arrives_at >= 0) push(round + t.arrives_at, What::kArrives, there);
  for (auto echo = std::ranges::lower_bound(echoes_, std::pair{task, 0});
       echo != echoes_.end() && echo->first == task; ++echo)
    push(round + echo->second, What::kArrives, there);
}

// Starts to send a message: it occupies its port and, if it changes rails, the spine, in the order
// of arrival there. The receiver accounts for its bytes.
void Play::start_turn(int turn, const Moment& when) {
  const int task = turn % steps();
  const Task& t = tasks_[as_index(task)];
  Member& m = ranks_[as_index(t.rank)];
  Moment leaves = when, left = when;
  if (!t.near) {
    const int port = ports_.of(m.schedule->rank);
    Port& out = out_[as_index(port)];
    leaves = later(when, out.free);
    pass(out, leaves, t.bytes * ports_.us_per_byte(port) * share_[as_index(port)]);
    left = out.free;
  } else if (model_.host_ports) {
    leaves = later(when, m.out.free);
    pass(m.out, leaves, t.bytes * model_.host.us_per_byte);
    left = m.out.free;
  }
  const bool crosses = &link_of(task) == &model_.spine || changes_leaf(task);
  if (order_ == Order::kOfList) {
    const Moment there =
        crosses ? through_spine(task, leaves) : leaves.plus(0, link_of(task).alpha_us);
    if (t.arrives_at >= 0)
      turns_[as_index(t.arrives_at)] = {.missing = 0, .held = -1, .ready = there};
    m.sent.push_back(crosses ? there.plus(0, -link_of(task).alpha_us) : leaves);
    return done(turn, when);
  }
  if (crosses)
    push(turn, What::kAtSpine, leaves);
  else
    under_way(turn, leaves.plus(0, link_of(task).alpha_us));
  done(turn, left);
}

// Returns when the last byte of an arriving message is received.
Moment Play::through_in(int task, const Moment& there) {
  const Task& t = tasks_[as_index(task)];
  Member& m = ranks_[as_index(t.rank)];
  if (t.near && !model_.host_ports) return there;
  const int port = ports_.of(m.schedule->rank);
  Port& in = t.near ? m.in : in_[as_index(port)];
  const double slower = 1 + model_.fan_in_penalty * (t.fan_in - 1);
  Moment first = there, last;
  if (changes_leaf(task)) {
    Port& down = down_[uplink_of(m.schedule->rank)];
    first = later(there, down.free);
    pass(down, first, t.bytes * model_.uplink_us_per_byte);
    last = down.free;
  }
  pass(in, first,
       t.bytes * (t.near ? model_.host.us_per_byte
                         : ports_.us_per_byte(port) * share_[as_index(port)] * slower));
  return later(in.free, last);
}

void Play::receive(int turn) {
  const Task& t = tasks_[as_index(turn % steps())];
  Member& m = ranks_[as_index(t.rank)];
  const bool reads = t.near && !model_.host_ports;
  const double copy = !model_.host_ports ? 0
                      : !t.near          ? model_.rail_copy_us_per_byte
                      : t.reduces        ? 0
                                         : model_.host_copy_us_per_byte;
  work(m, turn,
       t.bytes * ((reads ? model_.host.us_per_byte : 0) +
                  (t.reduces ? model_.reduce_us_per_byte : 0) + copy));
  if (t.near || step(turn % steps()).op == Op::kRecvReduce) m.bytes += t.bytes;
  done(turn, m.cpu);
}

double Play::rail_us() const {
  double most = 0;
  for (const auto* side : {&out_, &in_})
    for (const Port& p : *side) most = std::max(most, p.busy_us);
  for (const auto* shared : {&spines_, &up_, &down_})
    for (const auto& [where, port] : *shared) most = std::max(most, port.busy_us);
  return most / rounds_;
}

double Play::work_us() const {
  double sum = 0;
  for (const Member& m : ranks_) sum += m.work_us;
  return sum * static_cast<double>(played_.size()) / static_cast<double>(ranks_.size()) / rounds_;
}

double Play::host_us() const {
  double most = 0, bytes = 0;
  for (const Member& m : ranks_) {
    most = std::max({most, m.busy_us, m.out.busy_us, m.in.busy_us});
    bytes += m.bytes;
  }
  const double per_host = bytes / static_cast<double>(ranks_.size()) * layout_.per_host();
  return std::max(most, per_host * model_.memory_us_per_byte) / rounds_;
}

}  // namespace weft
