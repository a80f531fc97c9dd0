// Verifies schedules by symbolic execution. check_graph.h orders the steps; this file defines how a
// step changes the values, and which values a rank must hold at the end.
//
// The value of a chunk on a rank is a few 64-bit words:
//   sum         contributions: rank r contributes token(r, chunk), a random word; a reduction adds.
//               A chunk holds each rank's contribution once iff (with an error probability of
//               2^-64) it is the sum of all tokens: duplicates do not cancel.
//   expression  how the sum was formed, up to commutativity: (a + b) + c differs from a + (b + c),
//               since floats do not associate and all ranks must end with the same bits. Steps that
//               are one reduction (reduction_end()) add up in the order of their source ranks, as
//               the engine runs them. 0: no step has written the chunk.
// In a barrier the value is the set of ranks known to have started, and a receive unites two sets.
#include "coll/schedule/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <numeric>
#include <utility>

#include "coll/schedule/block_ownership.h"
#include "coll/schedule/check_graph.h"

namespace weft {
namespace {

using Word = std::uint64_t;

Word mix(Word x) {  // splitmix64
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

// Never returns 0, which marks an unwritten chunk.
Word token(Rank rank, int chunk) {
  return mix(mix(static_cast<Word>(rank) << 32 | static_cast<std::uint32_t>(chunk))) | 1;
}

// added() is commutative; rounded() marks where a reduction rounds its result.
Word added(Word a, Word b) { return mix(mix(a) + mix(b)); }
Word rounded(Word sum) { return mix(~sum) | 1; }

class Checker {
 public:
  Checker(Collective collective, std::span<const Schedule> schedules, const CheckOptions& options)
      : collective_(collective),
        all_(schedules),
        options_(options),
        nranks_(static_cast<int>(schedules.size())),
        ownership_{collective, nranks_, options.root} {}

  std::string run();

 private:
  std::string malformed() const;
  std::string malformed_layout() const;
  std::string misplaced(const Schedule& s) const;
  void start();
  std::string post(const StepGraph& graph, int step);
  void finish(const StepGraph& graph, int step);
  void reduce(const StepGraph& graph, int step);
  std::string postcondition() const;
  std::string barrier_passed() const;
  std::string reduced(Rank rank, int chunk, Word expected) const;

  bool barrier() const { return collective_ == Collective::kBarrier; }
  bool blocks() const { return by_blocks(collective_); }
  int block_of(int chunk) const { return all_[0].block.empty() ? chunk : all_[0].block[chunk]; }
  std::size_t index(Rank rank, int chunk) const {
    return (static_cast<std::size_t>(rank) * nchunks_ + chunk) * words_;
  }
  const Word* at(Rank rank, int chunk) const { return &values_[index(rank, chunk)]; }
  Word* at(Rank rank, int chunk) { return &values_[index(rank, chunk)]; }
  Word& sum(Rank rank, int chunk) { return at(rank, chunk)[0]; }
  Word& expression(Rank rank, int chunk) { return at(rank, chunk)[1]; }
  bool written(Rank rank, int chunk) const { return barrier() || at(rank, chunk)[1] != 0; }

  Collective collective_;
  std::span<const Schedule> all_;
  CheckOptions options_;
  int nranks_;
  BlockOwnership ownership_;
  int nchunks_ = 0, words_ = 2;
  std::vector<Word> values_;                 // by rank and chunk
  std::vector<std::vector<Word>> messages_;  // by send: in flight
  std::vector<int> reduction_;  // by step that ends a reduction: its first step; otherwise -1
};

std::string Checker::run() {
  if (collective_ == Collective::kSendRecv) return "send and recv have no schedule to check";
  if (all_.empty()) return "there are no schedules to check";
  if (options_.credits < 0)
    return fmt::format("credits are {}, expected 0 or more", options_.credits);
  if (rooted(collective_) && (options_.root < 0 || options_.root >= nranks_))
    return fmt::format("the root is rank {} of {}", options_.root, nranks_);
  nchunks_ = all_[0].nchunks;
  if (std::string fault = malformed(); !fault.empty()) return fault;
  StepGraph graph(all_);
  if (std::string fault = graph.match(); !fault.empty()) return fault;
  start();
  messages_.resize(graph.nsteps());
  reduction_.assign(graph.nsteps(), -1);
  for (const Schedule& s : all_)
    for (std::size_t i = 0; i < s.steps.size(); ++i) {
      if (s.steps[i].op != Op::kRecvReduce) continue;
      const int first = graph.global(s.rank, static_cast<int>(i));
      i = reduction_end(s, i) - 1;
      reduction_[graph.global(s.rank, static_cast<int>(i))] = first;
    }
  const auto visit = [&](int step, StepGraph::Event event) -> std::string {
    const bool sends = graph.step(step).op == Op::kSend;
    if (sends && event == StepGraph::kPosted) return post(graph, step);
    if (!sends && event == StepGraph::kDone) {
      if (graph.step(step).op == Op::kRecvReduce)
        for (int c = graph.step(step).at.first; c < graph.step(step).at.end(); ++c)
          if (!written(graph.owner(step), c))
            return fmt::format("{} reduces into chunk {}, which has no value", graph.describe(step),
                               c);
      finish(graph, step);
    }
    return {};
  };
  if (std::string fault = graph.run(options_.credits, visit); !fault.empty()) return fault;
  return postcondition();
}

std::string Checker::malformed() const {
  for (int r = 0; r < nranks_; ++r) {
    const Schedule& s = all_[r];
    if (s.rank != r) return fmt::format("schedules[{}] is for rank {}", r, s.rank);
    if (s.nranks != nranks_)
      return fmt::format("rank {} has a schedule for {} ranks, expected {}", r, s.nranks, nranks_);
    if (s.nchunks < 1 || s.nchunks != nchunks_)
      return fmt::format("rank {} cuts the message into {} chunks, rank 0 into {}", r, s.nchunks,
                         nchunks_);
    if (s.block != all_[0].block)
      return fmt::format("rank {} has a different block layout than rank 0", r);
    if (s.packs != all_[0].packs)
      return fmt::format("rank {} and rank 0 differ in Schedule::packs", r);
    if (s.weight != all_[0].weight)
      return fmt::format("rank {} has different chunk weights than rank 0", r);
    for (std::size_t i = 0; i < s.steps.size(); ++i) {
      const Step& step = s.steps[i];
      if (step.peer < 0 || step.peer >= nranks_ || step.peer == r)
        return fmt::format("step {} of rank {} has peer {}, expected another rank below {}", i, r,
                           step.peer, nranks_);
      if (step.at.first < 0 || step.at.count < 1 || step.at.first > nchunks_ - step.at.count)
        return fmt::format(
            "step {} of rank {} has {} chunks from chunk {} on, expected some of [0,{})", i, r,
            step.at.count, step.at.first, nchunks_);
      const bool alike = i > 0 && s.steps[i - 1].op == step.op &&
                         s.steps[i - 1].peer == step.peer && s.steps[i - 1].channel == step.channel;
      if (step.joined && (!alike || step.op == Op::kRecvReduce))
        return fmt::format(
            "step {} of rank {} cannot be joined to the previous step: it is a recv_reduce, or its "
            "op, peer or channel differs",
            i, r);
      if (step.channel < 0 || step.channel >= kChannels)
        return fmt::format("step {} of rank {} has channel {}, expected 0 to {}", i, r,
                           step.channel, kChannels - 1);
    }
    if (std::string fault = misplaced(s); !fault.empty()) return fault;
  }
  return malformed_layout();
}

// Checks that no step accesses a chunk after another chunk has overwritten its slot.
std::string Checker::misplaced(const Schedule& s) const {
  if (s.place.empty()) return {};
  if (static_cast<int>(s.place.size()) != nchunks_)
    return fmt::format("rank {} has {} places for {} chunks", s.rank, s.place.size(), nchunks_);
  std::map<int, int> there;  // by place: the chunk that occupies it
  std::vector<bool> gone(static_cast<std::size_t>(nchunks_), false);
  for (std::size_t i = 0; i < s.steps.size(); ++i)
    for (int c = s.steps[i].at.first; c < s.steps[i].at.end(); ++c) {
      if (s.place[c] < 0) continue;
      if (gone[c])
        return fmt::format(
            "step {} of rank {} touches chunk {} after another chunk took its place {}", i, s.rank,
            c, s.place[c]);
      if (s.steps[i].op == Op::kSend) continue;
      const auto [it, first] = there.try_emplace(s.place[c], c);
      if (first || it->second == c) continue;
      const int before = std::exchange(it->second, c);
      gone[before] = true;
      if (before >= s.steps[i].at.first && before < c)
        return fmt::format("step {} of rank {} writes chunks {} and {}, which share place {}", i,
                           s.rank, before, c, s.place[c]);
    }
  return {};
}

std::string Checker::malformed_layout() const {
  const auto& weight = all_[0].weight;
  if (!weight.empty() && static_cast<int>(weight.size()) != nchunks_)
    return fmt::format("there are {} weights for {} chunks", weight.size(), nchunks_);
  for (int c = 0; c < static_cast<int>(weight.size()); ++c)
    if (!std::isfinite(weight[c]) || weight[c] < 0)
      return fmt::format("chunk {} has weight {}, expected a number from 0 on", c, weight[c]);
  if (!weight.empty() && !blocks() && std::accumulate(weight.begin(), weight.end(), 0.0) == 0)
    return "all chunks have weight 0";
  if (!blocks()) return {};

  const auto& block = all_[0].block;
  const int given = static_cast<int>(block.size()), blocks = ownership_.blocks();
  if (given != (block.empty() ? 0 : nchunks_) || (block.empty() && nchunks_ != blocks))
    return fmt::format("{} chunks with {} entries in Schedule::block do not fit {} ranks", nchunks_,
                       given, nranks_);
  std::vector<double> size(blocks, 0);
  for (int c = 0; c < nchunks_; ++c) {  // an all_to_all has n * n blocks
    if (block_of(c) < 0 || block_of(c) >= blocks)
      return fmt::format("chunk {} is of the block of rank {}, expected a rank below {}", c,
                         block_of(c), blocks);
    size[block_of(c)] += weight.empty() ? 1 : weight[c];
  }
  for (int b = 0; b < blocks; ++b)
    if (size[b] == 0)
      return collective_ == Collective::kAllToAll
                 ? fmt::format("no chunk holds the block of rank {} for rank {}", b / nranks_,
                               b % nranks_)
                 : fmt::format("no chunk holds the block of rank {}", b);
  return {};
}

void Checker::start() {
  if (barrier()) words_ = (nranks_ + 63) / 64;
  values_.assign(index(nranks_, 0), 0);
  for (int r = 0; r < nranks_; ++r)
    for (int c = 0; c < nchunks_; ++c) {
      if (barrier()) {
        at(r, c)[r / 64] |= Word{1} << (r % 64);
        continue;
      }
      if (!ownership_.starts(r, block_of(c))) continue;
      sum(r, c) = expression(r, c) = token(r, c);
    }
}

std::string Checker::post(const StepGraph& graph, int i) {
  const Chunks chunks = graph.step(i).at;
  const Rank rank = graph.owner(i);
  for (int c = chunks.first; c < chunks.end(); ++c)
    if (!written(rank, c))
      return fmt::format("{} sends chunk {}, which has no value", graph.describe(i), c);
  messages_[i].assign(values_.begin() + index(rank, chunks.first),
                      values_.begin() + index(rank, chunks.end()));
  return {};
}

void Checker::finish(const StepGraph& graph, int i) {
  const Step& step = graph.step(i);
  const Rank rank = graph.owner(i);
  if (step.op == Op::kRecvReduce && !barrier()) {
    if (reduction_[i] >= 0) reduce(graph, i);
    return;
  }
  const std::vector<Word> message = std::move(messages_[graph.partner(i)]);
  const Word* in = message.data();
  for (int c = step.at.first; c < step.at.end(); ++c, in += words_) {
    if (barrier()) {
      for (int w = 0; w < words_; ++w) at(rank, c)[w] |= in[w];
    } else {
      std::copy(in, in + words_, at(rank, c));
    }
  }
}

// Called when the last step of a reduction is done: all sources have arrived, and no other step has
// accessed the chunks since the reduction's first step.
void Checker::reduce(const StepGraph& graph, int last) {
  const Rank rank = graph.owner(last);
  const Chunks chunks = graph.step(last).at;
  std::vector<std::pair<Rank, std::vector<Word>>> sources;
  for (int i = reduction_[last]; i <= last; ++i)
    sources.emplace_back(graph.step(i).peer, std::move(messages_[graph.partner(i)]));
  const Word* own = at(rank, chunks.first);
  sources.emplace_back(rank, std::vector<Word>(own, own + chunks.count * words_));
  std::ranges::sort(sources, {}, &std::pair<Rank, std::vector<Word>>::first);
  for (int c = 0; c < chunks.count; ++c) {
    const auto value = [&](std::size_t k) { return &sources[k].second[c * words_]; };
    Word total = value(0)[0], e = value(0)[1];
    for (std::size_t k = 1; k < sources.size(); ++k) {
      total += value(k)[0];
      e = added(e, value(k)[1]);
    }
    sum(rank, chunks.first + c) = total;
    expression(rank, chunks.first + c) = rounded(e);
  }
}

// Returns why a chunk is not the reduction over all ranks; empty if it is.
std::string Checker::reduced(Rank rank, int chunk, Word expected) const {
  const Word got = at(rank, chunk)[0];
  if (got == expected) return {};
  std::string why = "has an unexpected value";
  for (int r = 0; r < nranks_; ++r) {
    if (expected - got == token(r, chunk))
      why = fmt::format("lacks the contribution of rank {}", r);
    if (got - expected == token(r, chunk))
      why = fmt::format("has the contribution of rank {} twice", r);
    if (got == token(r, chunk)) why = fmt::format("has only the contribution of rank {}", r);
  }
  return fmt::format("at the end chunk {} on rank {} {}, expected each rank's contribution once",
                     chunk, rank, why);
}

std::string Checker::barrier_passed() const {
  for (int r = 0; r < nranks_; ++r)
    for (int other = 0; other < nranks_; ++other) {
      bool heard = false;
      for (int c = 0; c < nchunks_; ++c) heard |= (at(r, c)[other / 64] >> (other % 64) & 1) != 0;
      if (!heard)
        return fmt::format("rank {} may leave the barrier before rank {} has entered", r, other);
    }
  return {};
}

std::string Checker::postcondition() const {
  if (barrier()) return barrier_passed();
  for (int c = 0; c < nchunks_; ++c) {
    const int block = block_of(c);
    const Rank source = ownership_.source(block);
    Word all = 0, at_once = token(0, c);  // the sum; the expression of one reduction over all ranks
    for (int r = 0; r < nranks_; ++r) all += token(r, c);
    for (int r = 1; r < nranks_; ++r) at_once = added(at_once, token(r, c));
    for (int r = 0; r < nranks_; ++r) {
      if (!ownership_.ends(r, block)) continue;
      if (reduces(collective_)) {
        if (std::string fault = reduced(r, c, all); !fault.empty()) return fault;
        if (collective_ == Collective::kAllReduce && at(r, c)[1] != at(0, c)[1])
          return fmt::format(
              "at the end chunk {} was added up in another order on rank {} than on rank 0", c, r);
        if (options_.canonical && nranks_ > 1 && at(r, c)[1] != rounded(at_once))
          return fmt::format(
              "at the end chunk {} on rank {} was not added up in the order of ranks", c, r);
      } else if (!written(r, c)) {
        return fmt::format("at the end chunk {} on rank {} is unwritten, expected rank {}'s", c, r,
                           source);
      } else if (at(r, c)[0] != token(source, c)) {
        return fmt::format("at the end chunk {} on rank {} is not rank {}'s", c, r, source);
      }
    }
  }
  return {};
}

}  // namespace

std::string check(Collective collective, std::span<const Schedule> schedules,
                  const CheckOptions& options) {
  return Checker(collective, schedules, options).run();
}

}  // namespace weft
