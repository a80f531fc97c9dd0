// Constructs the order of F, B and W for each schedule, and the messages between stages. Does not
// depend on the time of an action.
#include "train/pipeline/schedule.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <utility>

namespace weft::train {
namespace {

using Actions = std::vector<PipelineAction>;

// The actions of one rank in order; without `split`, W directly follows B.
class Order {
 public:
  explicit Order(bool split) : split_(split) {}
  void f(int microbatch, int stage) { out.push_back({PipeOp::kForward, microbatch, stage}); }
  void b(int microbatch, int stage) {
    out.push_back({PipeOp::kBackwardInput, microbatch, stage});
    if (!split_) w(microbatch, stage);
  }
  void w(int microbatch, int stage) { out.push_back({PipeOp::kBackwardWeight, microbatch, stage}); }
  Actions out;

 private:
  bool split_;
};

Actions sequential(const PipelineShape& x, Rank r) {
  Order o(false);
  for (int i = 0; i < x.microbatches; ++i) {
    o.f(i, r);
    o.b(i, r);
  }
  return o.out;
}

// Step t: F of micro-batch t - r, then B of micro-batch t - (2p - 1 - r).
Actions dataflow(const PipelineShape& x, Rank r) {
  Order o(false);
  const int p = x.ranks, m = x.microbatches;
  for (int t = 0; t < m + 2 * p - 1; ++t) {
    if (t - r >= 0 && t - r < m) o.f(t - r, r);
    const int back = t - (2 * p - 1 - r);
    if (back >= 0 && back < m) o.b(back, r);
  }
  return o.out;
}

Actions gpipe(const PipelineShape& x, Rank r) {
  Order o(false);
  for (int i = 0; i < x.microbatches; ++i) o.f(i, r);
  for (int i = 0; i < x.microbatches; ++i) o.b(i, r);
  return o.out;
}

Actions one_f_one_b(const PipelineShape& x, Rank r, bool puts_off) {
  Order o(puts_off);
  const int m = x.microbatches, warm_up = std::min(m, x.ranks - 1 - r);
  for (int i = 0; i < warm_up; ++i) o.f(i, r);
  for (int i = 0; i < m; ++i) {
    if (i + warm_up < m) o.f(i + warm_up, r);
    o.b(i, r);
    if (puts_off && i >= r) o.w(i - r, r);
  }
  for (int i = std::max(0, m - r); puts_off && i < m; ++i) o.w(i, r);
  return o.out;
}
Actions one_f_one_b(const PipelineShape& x, Rank r) { return one_f_one_b(x, r, false); }
// Rank r delays each W by r micro-batches: 1f1b holds p - r micro-batches, so no rank holds more
// than p, and the previous ranks receive gradients sooner.
Actions zero_bubble(const PipelineShape& x, Rank r) { return one_f_one_b(x, r, true); }

// The k-th forward pass of a rank: p micro-batches pass its first stage, then the same p
// micro-batches its second stage, and so on; the backward pass starts at the last stage.
Actions interleaved(const PipelineShape& x, Rank r) {
  Order o(false);
  const int p = x.ranks, v = x.chunks, total = x.microbatches * v;
  const auto microbatch = [&](int k) { return k / (p * v) * p + k % p; };
  const auto chunk = [&](int k) { return k % (p * v) / p; };
  int warm_up = 2 * (p - 1 - r) + (v - 1) * p;
  if (x.microbatches == p) warm_up = total;
  warm_up = std::min(warm_up, total);
  const auto f = [&](int k) { o.f(microbatch(k), chunk(k) * p + r); };
  const auto b = [&](int k) { o.b(microbatch(k), (v - 1 - chunk(k)) * p + r); };
  for (int k = 0; k < warm_up; ++k) f(k);
  for (int k = 0; k < total; ++k) {
    if (k + warm_up < total) f(k + warm_up);
    b(k);
  }
  return o.out;
}

struct Entry {
  const char* name;
  Actions (*order)(const PipelineShape&, Rank);
};
constexpr Entry kEntries[] = {
    {"sequential", sequential}, {"dataflow", dataflow},       {"gpipe", gpipe},
    {"1f1b", one_f_one_b},      {"interleaved", interleaved}, {"zero-bubble", zero_bubble}};

bool follows(const Actions& all, std::size_t i, PipeOp op) {
  return i + 1 < all.size() && all[i + 1].op == op && all[i + 1].stage == all[i].stage &&
         all[i + 1].microbatch == all[i].microbatch;
}

// Adds a send after the action that computes a message (after W if it directly follows B: one
// pass), then a receive before the action that needs it. Receives from a rank must be in the order
// of its sends, so receives that rank's earlier messages first.
void add_messages(PipelineSchedule& s) {
  const PipelineShape& x = s.shape;
  if (x.ranks == 1) return;  // stages pass tensors in memory
  const int last = x.stages() - 1;
  for (Actions& mine : s.of_rank) {
    Actions out;
    for (std::size_t i = 0; i < mine.size(); ++i) {
      const PipelineAction a = mine[i];
      out.push_back(a);
      if (a.op == PipeOp::kForward && a.stage < last)
        out.push_back({PipeOp::kSendActivation, a.microbatch, a.stage});
      if (a.op == PipeOp::kBackwardInput && a.stage > 0) {
        if (follows(mine, i, PipeOp::kBackwardWeight)) out.push_back(mine[++i]);
        out.push_back({PipeOp::kSendGradient, a.microbatch, a.stage});
      }
    }
    mine = std::move(out);
  }
  std::map<std::pair<Rank, Rank>, Actions> sent;  // by (from, to), as receive actions
  for (Rank r = 0; r < x.ranks; ++r)
    for (const PipelineAction& a : s.of_rank[static_cast<std::size_t>(r)])
      if (sends(a.op)) sent[{r, s.peer(a)}].push_back(receive_of(a));
  for (Rank r = 0; r < x.ranks; ++r) {
    Actions& mine = s.of_rank[static_cast<std::size_t>(r)];
    Actions out;
    std::map<Rank, std::size_t> taken;
    for (const PipelineAction& a : mine) {
      const bool forward = a.op == PipeOp::kForward;
      if (forward ? a.stage > 0 : a.op == PipeOp::kBackwardInput && a.stage < last) {
        PipelineAction need = a;
        need.op = forward ? PipeOp::kRecvActivation : PipeOp::kRecvGradient;
        const Rank from = s.peer(need);
        const Actions& channel = sent[{from, r}];
        const auto at = static_cast<std::size_t>(std::find(channel.begin(), channel.end(), need) -
                                                 channel.begin());
        for (; taken[from] <= at && taken[from] < channel.size(); ++taken[from])
          out.push_back(channel[taken[from]]);
      }
      out.push_back(a);
    }
    mine = std::move(out);
  }
}

template <class MakeOrder>
PipelineSchedule make(std::string_view name, const PipelineShape& shape, MakeOrder order) {
  PipelineSchedule s;
  s.name = name;
  s.shape = shape;
  for (Rank r = 0; r < shape.ranks; ++r) s.of_rank.push_back(order(shape, r));
  add_messages(s);
  return s;
}

}  // namespace

Rank PipelineSchedule::peer(const PipelineAction& a) const {
  switch (a.op) {
    case PipeOp::kSendActivation:
    case PipeOp::kRecvGradient:
      return shape.rank_of(a.stage + 1);
    case PipeOp::kSendGradient:
    case PipeOp::kRecvActivation:
      return shape.rank_of(a.stage + shape.stages() - 1);
    default:
      return kNoRank;
  }
}

PipelineAction receive_of(const PipelineAction& send) {
  return send.op == PipeOp::kSendActivation
             ? PipelineAction{PipeOp::kRecvActivation, send.microbatch, send.stage + 1}
             : PipelineAction{PipeOp::kRecvGradient, send.microbatch, send.stage - 1};
}

std::string describe(const PipelineAction& a, const PipelineShape& shape) {
  static constexpr const char* kText[] = {"F", "B", "W", "send F", "recv F", "send B", "recv B"};
  std::string text = fmt::format("{}{}", kText[static_cast<int>(a.op)], a.microbatch);
  if (shape.chunks > 1) text += fmt::format(".{}", a.stage);
  return text;
}

const std::vector<std::string>& pipeline_schedule_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Entry& e : kEntries) all.emplace_back(e.name);
    return all;
  }();
  return names;
}

PipelineSchedule make_pipeline_schedule(std::string_view name, const PipelineShape& shape) {
  if (shape.ranks < 1 || shape.microbatches < 1 || shape.chunks < 1)
    throw Error(fmt::format(
        "a pipeline of {} ranks, {} micro-batches and {} stages per rank: each must be at least 1",
        shape.ranks, shape.microbatches, shape.chunks));
  const auto* entry = std::find_if(std::begin(kEntries), std::end(kEntries),
                                   [&](const Entry& e) { return name == e.name; });
  if (entry == std::end(kEntries))
    throw Error(fmt::format("no pipeline schedule '{}'; there are: {}", name,
                            fmt::join(pipeline_schedule_names(), ", ")));
  const bool many = name == "interleaved";
  if (!many && shape.chunks > 1)
    throw Error(fmt::format(
        "schedule {} has one stage per rank, not {}: use interleaved, or 1 stage per rank", name,
        shape.chunks));
  if (many && shape.microbatches % shape.ranks != 0)
    throw Error(fmt::format(
        "schedule interleaved needs a multiple of {} micro-batches on {} ranks, not {}: take {}",
        shape.ranks, shape.ranks, shape.microbatches,
        (shape.microbatches / shape.ranks + 1) * shape.ranks));
  PipelineSchedule s = make(name, shape, entry->order);
  s.dataflow_steps = name == "dataflow";
  return s;
}

PipelineSchedule make_forward_schedule(const PipelineShape& shape) {
  PipelineSchedule s = make("forward", shape, [](const PipelineShape& x, Rank r) {
    Order o(false);
    for (int i = 0; i < x.microbatches; ++i)
      for (int stage = r; stage < x.stages(); stage += x.ranks) o.f(i, stage);
    return o.out;
  });
  s.forward_only = true;
  return s;
}

double bubble_formula(const PipelineSchedule& s) {
  const double p = s.shape.ranks, m = s.shape.microbatches, v = s.shape.chunks;
  if (s.name == "sequential") return 1 - 1 / p;
  if (s.name == "gpipe" || s.name == "1f1b") return (p - 1) / (m + p - 1);
  if (s.name == "interleaved") return (p - 1) / (v * m + p - 1);
  if (s.name == "zero-bubble" && m >= p) return (p - 1) / (3 * m + p - 1);
  return -1;
}

}  // namespace weft::train
