// Executes one rank's actions and keeps messages in flight. Does not depend on a model.
#include "train/pipeline/runtime.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <thread>

#include "train/pipeline/checker.h"

namespace weft::train {
namespace {

// Number of receives posted at once: the next message is in flight while the stage uses the last
// one. More would need memory without a gain if stages take equally long.
constexpr std::size_t kReceivesAhead = 2;

// Interval between checks of the device during a wait for a peer.
constexpr std::chrono::microseconds kLook{20};

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// FNV-1a over all data that must be equal on all ranks.
std::uint64_t fingerprint(const PipelineSchedule& s) {
  std::uint64_t hash = 14695981039346656037u;
  const auto add = [&](std::uint64_t value) { hash = (hash ^ value) * 1099511628211u; };
  for (const auto& actions : s.of_rank) {
    add(actions.size());
    for (const PipelineAction& a : actions) {
      add(static_cast<std::uint64_t>(a.op));
      add(static_cast<std::uint64_t>(a.microbatch));
      add(static_cast<std::uint64_t>(a.stage));
    }
  }
  return hash;
}

// During its lifetime, DeviceContext::settle() calls `what`.
template <class T>
class Meanwhile {
 public:
  explicit Meanwhile(std::function<void()> what) {
    if constexpr (kOnDevice<T>) rank_device().meanwhile = std::move(what);
  }
  ~Meanwhile() {
    if constexpr (kOnDevice<T>) rank_device().meanwhile = nullptr;
  }
  Meanwhile(const Meanwhile&) = delete;
  Meanwhile& operator=(const Meanwhile&) = delete;
};

template <class T>
Tensor<T> take(std::map<std::pair<int, int>, Tensor<T>>& from, int stage, int microbatch) {
  auto node = from.extract({stage, microbatch});
  return node.empty() ? Tensor<T>() : std::move(node.mapped());
}

}  // namespace

template <class T>
PipelineRuntime<T>::PipelineRuntime(PipelineSchedule schedule, Communicator comm,
                                    std::vector<Stage<T>*> stages)
    : schedule_(std::move(schedule)), comm_(std::move(comm)), stages_(std::move(stages)) {
  agree();
}

// All-gathers the facts of each rank; all ranks check all facts, so that all throw the same error.
template <class T>
void PipelineRuntime<T>::agree() const {
  const PipelineShape& x = schedule_.shape;
  constexpr std::size_t kFacts = 4;
  const auto n = static_cast<std::size_t>(comm_.size());
  Communicator comm = comm_;
  std::vector<std::uint64_t> mine{fingerprint(schedule_), static_cast<std::uint64_t>(x.ranks),
                                  static_cast<std::uint64_t>(x.chunks), stages_.size()};
  std::vector<std::uint64_t> all(n * kFacts);
  comm.all_gather(mine.data(), all.data(), kFacts, DType::kUInt64).check();
  for (std::size_t r = 0; r < n; ++r) {
    const std::uint64_t* facts = &all[r * kFacts];
    if (facts[0] != all[0] || facts[1] != all[1] || facts[2] != all[2])
      throw Error(
          fmt::format("pipeline: rank {} has another schedule than rank 0 ({} stages per "
                      "rank, not {}, or other micro-batches): give all ranks the same",
                      r, facts[2], all[2]));
    if (facts[1] != n || facts[3] != facts[2])
      throw Error(
          fmt::format("pipeline: schedule {} is for {} ranks with {} stages each, but there "
                      "are {} ranks, and rank {} has {}",
                      schedule_.name, facts[1], facts[2], n, r, facts[3]));
  }
  if (const std::string fault = check(schedule_); !fault.empty())
    throw Error("pipeline: the schedule cannot work: " + fault);
  std::vector<std::uint64_t> counts;
  for (const Stage<T>* s : stages_) {
    counts.push_back(s->input_count());
    counts.push_back(s->output_count());
  }
  std::vector<std::uint64_t> sizes(n * counts.size());
  comm.all_gather(counts.data(), sizes.data(), counts.size(), DType::kUInt64).check();
  const auto size_of_stage = [&](int s, std::size_t which) {
    const auto rank = static_cast<std::size_t>(x.rank_of(s));
    return sizes[rank * counts.size() + 2 * static_cast<std::size_t>(s / x.ranks) + which];
  };
  for (int s = 0; s + 1 < x.stages(); ++s)
    if (size_of_stage(s, 1) != size_of_stage(s + 1, 0) || size_of_stage(s, 1) == 0)
      throw Error(fmt::format(
          "pipeline: stage {} (rank {}) makes {} elements per micro-batch, stage "
          "{} (rank {}) takes {}: do all ranks have the same batch and model?",
          s, x.rank_of(s), size_of_stage(s, 1), s + 1, x.rank_of(s + 1), size_of_stage(s + 1, 0)));
}

template <class T>
std::size_t PipelineRuntime<T>::message_count(const PipelineAction& a) {
  return a.op == PipeOp::kSendActivation || a.op == PipeOp::kRecvGradient
             ? stage(a.stage).output_count()
             : stage(a.stage).input_count();
}

// Posts receives in schedule order, so that the i-th receive matches the i-th send. Early posts
// cannot deadlock, since receives stay in order.
template <class T>
void PipelineRuntime<T>::post_receives(std::size_t from) {
  const auto& mine = schedule_.of_rank[static_cast<std::size_t>(comm_.rank())];
  next_receive_ = std::max(next_receive_, from);
  for (; next_receive_ < mine.size() && posted_.size() < kReceivesAhead; ++next_receive_) {
    const PipelineAction& a = mine[next_receive_];
    if (!receives(a.op)) continue;
    const Use use = a.op == PipeOp::kRecvActivation ? Use::kActivations : Use::kErrors;
    posted_.push_back({a, StageMessage<T>(Tensor<T>(message_count(a), use))});
  }
  call_receives();
}

// Receives keep their order.
template <class T>
void PipelineRuntime<T>::call_receives() {
  for (Receive& r : posted_) {
    if (r.called) continue;
    if (!r.data.ready()) break;
    r.handle = comm_.recv_async(r.data.data(), r.data.count(), kDType<T>, schedule_.peer(r.action));
    r.called = true;
  }
}

template <class T>
void PipelineRuntime<T>::receive(const PipelineAction& a) {
  for (; !posted_.front().called; poll()) std::this_thread::sleep_for(kLook);
  Receive r = std::move(posted_.front());
  posted_.pop_front();
  while (device_owes() && !r.handle.wait_for(kLook)) poll();
  r.handle.wait().check();
  auto& to = a.op == PipeOp::kRecvActivation ? activations_in_ : gradients_in_;
  to.emplace(Key{a.stage, a.microbatch}, r.data.open());
}

template <class T>
void PipelineRuntime<T>::send(const PipelineAction& a) {
  auto& from = a.op == PipeOp::kSendActivation ? activations_out_ : gradients_out_;
  sending_.push_back({StageMessage<T>(take(from, a.stage, a.microbatch)), schedule_.peer(a)});
  run_.bytes_sent += sending_.back().data.bytes();
  ++run_.messages_sent;
  poll();
}

// The device executes in order: an action starts when the previous one ends.
template <class T>
void PipelineRuntime<T>::see_ends() {
  while (!computing_.empty() && computing_.front().end.passed()) {
    const std::size_t first = computing_.front().first;
    computing_.pop_front();
    const std::size_t last = computing_.empty() ? run_.records.size() : computing_.front().first;
    const std::int64_t end = now_ns();
    PipelineRecord& record = run_.records[first];
    record.begin_ns = std::max(record.begin_ns, device_end_ns_);
    run_.compute_ns += end - record.begin_ns;
    record.end_ns = device_end_ns_ = end;
    for (std::size_t i = first + 1; i < last; ++i)
      run_.records[i].begin_ns = run_.records[i].end_ns = end;
  }
}

// Makes progress on messages in flight, and frees completed ones. Sends keep their order.
template <class T>
void PipelineRuntime<T>::poll() {
  see_ends();
  call_receives();
  for (Receive& r : posted_) r.handle.test();
  for (Send& s : sending_) {
    if (s.called) continue;
    if (!s.data.ready()) break;
    see_ends();  // record the end of an action before its message is sent
    s.handle = comm_.send_async(s.data.data(), s.data.count(), kDType<T>, s.to);
    s.called = true;
  }
  while (!sending_.empty() && sending_.front().called && sending_.front().handle.test()) {
    sending_.front().handle.wait().check();
    sending_.pop_front();
  }
}

// Waits until the device has completed all actions and all messages are delivered.
template <class T>
void PipelineRuntime<T>::finish() {
  for (; device_owes(); poll()) std::this_thread::sleep_for(kLook);
  for (; !sending_.empty(); sending_.pop_front()) sending_.front().handle.wait().check();
}

template <class T>
void PipelineRuntime<T>::compute(const PipelineAction& a, bool with_weights) {
  const PipelineShape& x = schedule_.shape;
  Stage<T>& s = stage(a.stage);
  const bool alone = x.ranks == 1, forward = a.op == PipeOp::kForward;
  if (on_action) on_action(a, true);
  const std::int64_t begin = now_ns();
  if (a.op == PipeOp::kBackwardWeight) {
    s.backward_weight(a.microbatch);
  } else {
    Tensor<T> in = take(forward ? activations_in_ : gradients_in_, a.stage, a.microbatch);
    const bool ends = a.stage == (forward ? x.stages() - 1 : 0);  // the result has no receiver
    Tensor<T> out = forward        ? s.forward(a.microbatch, std::move(in))
                    : with_weights ? s.backward(a.microbatch, std::move(in))
                                   : s.backward_input(a.microbatch, std::move(in));
    // Stages of a single rank pass tensors in memory.
    auto& to = alone ? (forward ? activations_in_ : gradients_in_)
                     : (forward ? activations_out_ : gradients_out_);
    const int next = alone ? (forward ? 1 : -1) : 0;
    if (!ends) to.emplace(Key{a.stage + next, a.microbatch}, std::move(out));
  }
  const std::int64_t end = now_ns();
  if (kOnDevice<T> && !alone)
    computing_.push_back({run_.records.size(), rank_device().mark(rank_device().compute())});
  else
    run_.compute_ns += end - begin;
  run_.records.push_back({a, begin, end});
  if (with_weights)
    run_.records.push_back({{PipeOp::kBackwardWeight, a.microbatch, a.stage}, end, end});
  if (on_action) on_action(a, false);
}

template <class T>
const PipelineRun& PipelineRuntime<T>::run() {
  const auto& mine = schedule_.of_rank[static_cast<std::size_t>(comm_.rank())];
  // The device may wait for ranks that wait for a message from this rank.
  const Meanwhile<T> sends_go_on([this] { poll(); });
  run_ = {};
  run_.begin_ns = now_ns();
  next_receive_ = 0;
  for (std::size_t i = 0; i < mine.size(); ++i) {
    const PipelineAction& a = mine[i];
    post_receives(i);
    if (receives(a.op)) {
      receive(a);
    } else if (sends(a.op)) {
      send(a);
    } else {
      const bool pass =
          a.op == PipeOp::kBackwardInput && i + 1 < mine.size() &&
          mine[i + 1] == PipelineAction{PipeOp::kBackwardWeight, a.microbatch, a.stage};
      compute(a, pass);
      if (pass) ++i;
    }
    poll();
  }
  finish();
  run_.end_ns = now_ns();
  waited_ns_ += run_.end_ns - run_.begin_ns - run_.compute_ns;
  return run_;
}

double measured_bubble(const PipelineRun& run, Communicator comm) {
  std::int64_t most[] = {-run.begin_ns, run.end_ns, run.begin_ns, -run.end_ns,
                         run.end_ns - run.begin_ns};
  std::int64_t busy = run.compute_ns;
  comm.all_reduce(most, most, std::size(most), DType::kInt64, RedOp::kMax).check();
  comm.all_reduce(&busy, &busy, 1, DType::kInt64, RedOp::kSum).check();
  // All ranks begin before the first rank ends, since each needs messages of the others.
  const bool one_clock = most[2] <= -most[3];
  const std::int64_t time = one_clock ? most[0] + most[1] : most[4];
  return 1 -
         static_cast<double>(busy) / (static_cast<double>(comm.size()) * static_cast<double>(time));
}

WEFT_INSTANTIATE(PipelineRuntime);

}  // namespace weft::train
