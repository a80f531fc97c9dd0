// How the engine cuts a message: rounds, chunks, addresses and scratch, bound once per size.
#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <tuple>

#include "coll/engine.h"

namespace weft {
namespace {

// Scratch of one operation is bounded by this, whatever the message; slices shrink to fit.
constexpr std::size_t kScratchMax = std::size_t{6} << 20;
constexpr std::size_t kScratchAlign = 64;

// Pieces of scratch per round in flight, each as large as a slice.
std::size_t scratch_pieces(const Plan& plan) {
  std::size_t range = 1;  // chunks of the largest arrival in scratch
  for (const Node& node : plan.nodes)
    if (node.credit >= 0) range = std::max(range, static_cast<std::size_t>(node.at.count));
  return static_cast<std::size_t>(plan.credits) * range +
         static_cast<std::size_t>(plan.scratch_chunks);
}

std::size_t round_up(std::size_t n, std::size_t to) { return (n + to - 1) / to * to; }

}  // namespace

bool wants_packed(std::size_t total_bytes, const Schedule& schedule) {
  return total_bytes <= kPackedMax && std::any_of(schedule.steps.begin(), schedule.steps.end(),
                                                  [](const Step& s) { return s.at.count > 1; });
}

// Element offsets and lengths of the chunks of a round that has `elements` of the message (or of
// every block).
void Run::lay_out(std::size_t elements, Cut& cut) const {
  const Schedule& s = plan_->schedule;
  const auto n = static_cast<std::size_t>(s.nchunks);
  cut.offset.assign(n, 0);
  cut.length.assign(n, 0);
  if (plan_->layout == Plan::Layout::kMessage) {
    // Chunks begin at cache lines where there is enough to share out.
    const std::size_t line = 64 / element_;
    const std::size_t grain = elements >= n * line * 4 ? line : 1;
    const double total = std::accumulate(s.weight.begin(), s.weight.end(), 0.0);
    double sum = 0;
    std::size_t from = 0;
    for (std::size_t c = 0; c < n; ++c) {
      if (!s.weight.empty()) sum += s.weight[c];
      const auto share =
          s.weight.empty()
              ? elements * (c + 1) / n
              : static_cast<std::size_t>(static_cast<double>(elements) * (sum / total));
      const std::size_t to =
          c + 1 == n ? elements : std::clamp(share / grain * grain, from, elements);
      cut.offset[c] = from;
      cut.length[c] = to - from;
      from = to;
    }
    return;
  }
  // Each block is shared out among its chunks; packed, the chunks follow each other in number.
  std::vector<std::size_t> pieces(static_cast<std::size_t>(s.nranks), 0), seen(pieces);
  const bool packed = plan_->layout == Plan::Layout::kPacked;
  for (int c = 0; c < s.nchunks; ++c) ++pieces[owner(c)];
  std::size_t packed_at = 0;
  for (std::size_t c = 0; c < n; ++c) {
    const std::size_t b = owner(static_cast<int>(c)), i = seen[b]++;
    const std::size_t from = elements * i / pieces[b], to = elements * (i + 1) / pieces[b];
    cut.offset[c] = packed ? packed_at : from;
    cut.length[c] = to - from;
    packed_at += to - from;
  }
}

std::size_t Run::owner(int chunk) const {
  const auto& block = plan_->schedule.block;
  return static_cast<std::size_t>(block.empty() ? chunk : block[static_cast<std::size_t>(chunk)]);
}

// Byte offset of a chunk's round within the buffer `where`, for round 0.
std::size_t Run::offset(Where where, int chunk, const Cut& cut) const {
  const auto c = static_cast<std::size_t>(chunk);
  if (where == Where::kScratch)
    return static_cast<std::size_t>(plan_->scratch_of[c]) * chunk_bytes_;
  std::size_t elements = cut.offset[c];
  if (plan_->layout == Plan::Layout::kBlocks) {
    const bool gathers = plan_->collective == Collective::kAllGather;
    if ((where == Where::kOut) == gathers) elements += owner(chunk) * call_.count;
  }
  return elements * element_;
}

// How many rounds, and how much of the message (or of every block) one of them handles.
void Run::choose_rounds(const Slicing& slicing) {
  const Schedule& s = plan_->schedule;
  const bool blocks = plan_->layout == Plan::Layout::kBlocks;
  const bool packed = plan_->layout == Plan::Layout::kPacked;
  const auto chunks = static_cast<std::size_t>(s.nchunks);
  total_ = call_.count;

  // What follows from the steps of this rank alone must not touch the slice, which all ranks have
  // in common: where there is much scratch, slices shrink by what is the same everywhere, and then
  // this rank has fewer rounds in flight. That is its own affair: the oldest round that any rank
  // has not finished is under way on all of them, so it always gets on.
  std::size_t slice = std::max<std::size_t>(slicing.slice_bytes, 64);
  if (plan_->collective == Collective::kReduceScatter)
    while (slice > 1024 && chunks * slice * 2 > kScratchMax) slice /= 2;
  const std::size_t pieces = scratch_pieces(*plan_);
  auto lanes = static_cast<std::size_t>(slicing.rounds_in_flight);
  if (pieces) lanes = std::clamp<std::size_t>(kScratchMax / (pieces * slice), 1, lanes);
  const std::size_t per_block =
      std::max<std::size_t>(1, chunks / static_cast<std::size_t>(s.nranks));
  segment_ = packed ? total_ : slice / element_ * (blocks ? per_block : chunks);
  rounds_ = barrier_ ? 1 : 0;
  if (total_ != 0) {
    segment_ = std::min(segment_, total_);
    rounds_ = (total_ + segment_ - 1) / segment_;
    // Even rounds: no dwarf at the end.
    segment_ = std::min(total_, round_up((total_ + rounds_ - 1) / rounds_, 64 / element_));
    rounds_ = (total_ + segment_ - 1) / segment_;
  }
  nlanes_ = static_cast<std::uint32_t>(std::min<std::uint64_t>(lanes, rounds_));
}

void Run::bind(const Plan& plan, const Slicing& slicing) {
  plan_ = &plan;
  nodes_ = plan.nodes.size();
  traffic_.clear();
  element_ = size_of(call_.type);
  barrier_ = plan.collective == Collective::kBarrier;
  choose_rounds(slicing);
  lay_out(segment_, cuts_[0]);
  lay_out(last_elements(), cuts_[1]);

  const auto bytes_of = [&](Chunks at, const Cut& cut) {
    std::size_t elements = 0;
    for (int c = at.first; c < at.end(); ++c) elements += cut.length[static_cast<std::size_t>(c)];
    return elements * element_;
  };
  chunk_bytes_ = credit_bytes_ = 0;
  for (const Cut& cut : cuts_)
    for (const Node& node : plan.nodes) {
      const std::size_t bytes = round_up(bytes_of(node.at, cut), kScratchAlign);
      if (node.credit >= 0) credit_bytes_ = std::max(credit_bytes_, bytes);
      if (node.to == Where::kScratch) chunk_bytes_ = std::max(chunk_bytes_, bytes);
    }
  const std::size_t accumulators = static_cast<std::size_t>(plan.scratch_chunks) * chunk_bytes_;
  lane_bytes_ = accumulators + static_cast<std::size_t>(plan.credits) * credit_bytes_;
  std::size_t need = lane_bytes_ * nlanes_;
  if (plan.layout == Plan::Layout::kPacked)
    need += total_ * element_ * static_cast<std::size_t>(plan.schedule.nranks);
  if (need > scratch_size_) {
    scratch_ = std::make_unique_for_overwrite<std::byte[]>(need);
    scratch_size_ = need;
  }

  for (int k = 0; k < 2; ++k) {
    extents_[k].resize(nodes_);
    for (std::size_t i = 0; i < nodes_; ++i) {
      const Node& node = plan.nodes[i];
      Extent& e = extents_[k][i];
      e.bytes = bytes_of(node.at, cuts_[k]);
      e.first = false;
      e.from = node.from == Where::kNowhere ? 0 : offset(node.from, node.at.first, cuts_[k]);
      e.to = node.to == Where::kNowhere ? 0 : offset(node.to, node.at.first, cuts_[k]);
      if (node.credit >= 0)
        e.to = accumulators + static_cast<std::size_t>(node.credit) * credit_bytes_;
    }
  }
  mark_first();
  lanes_.assign(nlanes_, {});
  pending_.resize(nlanes_ * nodes_);
  data_.assign(nlanes_ * nodes_, nullptr);
  token_.resize(nlanes_ * nodes_);
  posted_.assign(nlanes_ * nodes_, 0);
}

// Messages of no bytes are not sent, so which one is the first of a channel depends on the sizes.
void Run::mark_first() {
  std::map<std::tuple<Rank, std::uint32_t, bool>, std::uint32_t> lowest;
  std::vector<Extent>& round0 = extents_[rounds_ == 1];
  const auto key = [](const Node& n) {
    return std::tuple{n.peer, n.ordinal >> kChannelShift, n.kind == Node::Kind::kSend};
  };
  const auto sent = [&](std::size_t i) {
    return plan_->nodes[i].kind != Node::Kind::kReduce && (round0[i].bytes != 0 || barrier_);
  };
  for (std::size_t i = 0; i < nodes_; ++i) {
    if (!sent(i)) continue;
    const Node& n = plan_->nodes[i];
    const auto [it, added] = lowest.try_emplace(key(n), n.ordinal);
    if (!added) it->second = std::min(it->second, n.ordinal);
  }
  for (std::size_t i = 0; i < nodes_; ++i)
    round0[i].first = sent(i) && lowest[key(plan_->nodes[i])] == plan_->nodes[i].ordinal;
}

// ---- packed --------------------------------------------------------------------------------

// The packed copy lies behind the lanes' scratch; the run works on it as if it were the output.
void Run::copy_in_packed() {
  out_ = scratch_.get() + lane_bytes_ * nlanes_;
  copy_packed(plan_->collective == Collective::kAllGather, false, nullptr);
}

void Run::copy_out_packed() {
  copy_packed(reduces(), true, static_cast<std::byte*>(call_.out));
  if (call_.op == RedOp::kAvg && reduces())
    scale(call_.out, call_.out, call_.type, plan_->schedule.nranks, call_.count);
}

// Copies blocks to or from the packed order: all of them, or `own_only`, in which case the user's
// buffer is that one block.
void Run::copy_packed(bool own_only, bool out, std::byte* result) {
  const Schedule& s = plan_->schedule;
  const auto* in = static_cast<const std::byte*>(call_.in);
  std::vector<std::size_t> at(static_cast<std::size_t>(s.nranks), 0);
  for (int c = 0; c < s.nchunks; ++c) {
    const auto i = static_cast<std::size_t>(c);
    const std::size_t bytes = cuts_[1].length[i] * element_;
    std::size_t& within = at[owner(c)];
    if (bytes && (!own_only || owner(c) == static_cast<std::size_t>(s.rank))) {
      const std::size_t user = (own_only ? 0 : owner(c) * call_.count * element_) + within;
      std::byte* packed = out_ + cuts_[1].offset[i] * element_;
      out ? std::memcpy(result + user, packed, bytes) : std::memcpy(packed, in + user, bytes);
    }
    within += bytes;
  }
}

}  // namespace weft
