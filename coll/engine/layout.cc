// Slices a message for the engine: rounds, chunks, addresses and scratch, computed once per size;
// and what the transfers of a call refer to.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <numeric>
#include <tuple>

#include "coll/engine/engine.h"
#include "coll/engine/signature.h"
#include "coll/footprint.h"
#include "transport/memory/copy.h"
#include "transport/offers.h"

namespace weft {
namespace {

constexpr std::size_t kScratchAlign = 64;

std::size_t round_up(std::size_t n, std::size_t to) { return (n + to - 1) / to * to; }

}  // namespace

bool wants_packed(std::size_t total_bytes, const Schedule& schedule) {
  const auto several = [](const Step& s) { return s.at.count > 1 || s.joined; };
  return may_pack(total_bytes, schedule.nranks) &&
         (schedule.packs || std::ranges::any_of(schedule.steps, several));
}

// The number of elements of a block.
std::size_t Run::block_count(int block) const {
  if (!call_->is_vector) return call_->count;
  if (plan_->collective != Collective::kAllToAll)
    return call_->counts[static_cast<std::size_t>(block)];
  const int n = plan_->schedule.nranks, source = block / n;
  return source == plan_->schedule.rank ? call_->counts[static_cast<std::size_t>(block % n)]
                                        : call_->recv_counts[static_cast<std::size_t>(source)];
}

// The index of a block in the user's input or output.
std::size_t Run::number_of(bool out, int block) const {
  const int n = plan_->schedule.nranks;
  if (plan_->collective == Collective::kAllToAll)
    return static_cast<std::size_t>(out ? block / n : block % n);
  const Footprint f = footprint(plan_->collective);
  return (out ? f.out : f.in) == Part::kAll ? static_cast<std::size_t>(block) : 0;
}

// The element offset of a block in the user's input or output, or in a round's copy of it.
std::size_t Run::block_at(bool out, int block) const {
  const std::size_t number = number_of(out, block);
  if (compute_) return number * copy_stride_;
  if (!call_->is_vector) return number * call_->count;
  const Footprint f = footprint(plan_->collective);
  if ((out ? f.out : f.in) != Part::kAll) return 0;
  const bool received = out && plan_->collective == Collective::kAllToAll;
  return (received ? call_->recv_offsets : call_->offsets)[number];
}

// Computes the element offsets and lengths of the chunks of a round: from the round's start in the
// message or in the block; packed, in the copy.
void Run::lay_out(std::uint64_t round, Cut& cut) const {
  const Schedule& s = plan_->schedule;
  const auto n = static_cast<std::size_t>(s.nchunks);
  cut.offset.assign(n, 0);
  cut.length.assign(n, 0);
  if (plan_->layout == Plan::Layout::kMessage) {
    const std::size_t elements = rounds_ == 0 ? 0 : elements_of(round);
    // Chunks begin at cache lines if the message is long enough.
    const std::size_t line = 64 / element_;
    const std::size_t grain = elements >= n * line * 4 ? line : 1;
    const double total = std::accumulate(s.weight.begin(), s.weight.end(), 0.0);
    double sum = 0;
    std::size_t from = 0, kept = 0;
    cut.kept.assign(n + 1, 0);
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
      if (plan_->scratch_of[c] >= 0) kept += to - from;
      cut.kept[c + 1] = kept;
      from = to;
    }
    return;
  }
  // Each block is divided among its chunks; packed, the chunks lie in the order of their numbers.
  std::size_t packed_at = 0;
  const std::size_t begin = round * segment_;
  for (std::size_t c = 0; c < n; ++c) {
    const Piece& piece = plan_->pieces[c];
    const std::size_t all = block_count(piece.block);
    const std::size_t elements = all > begin ? std::min(segment_, all - begin) : 0;
    const std::size_t from = piece.begin(elements), to = piece.end(elements);
    cut.offset[c] = packed() ? packed_at : from;
    cut.length[c] = to - from;
    packed_at += to - from;
  }
}

std::size_t Run::bytes_of(Chunks at, const Cut& cut) const {
  std::size_t elements = 0;
  for (int c = at.first; c < at.end(); ++c) elements += cut.length[static_cast<std::size_t>(c)];
  return elements * element_;
}

std::size_t Run::bytes_of(const Node& node, const Cut& cut) const {
  if (node.kind != Node::Kind::kSendJoined && node.kind != Node::Kind::kRecvJoined)
    return bytes_of(node.at, cut);
  std::size_t bytes = 0;
  for (std::uint32_t i = 0; i < node.members; ++i)
    bytes += bytes_of(plan_->ranges[node.first_member + i], cut);
  return bytes;
}

// The byte offset of a chunk in the buffer `where`, for round 0.
std::size_t Run::offset(Where where, int chunk, const Cut& cut) const {
  const auto c = static_cast<std::size_t>(chunk);
  std::size_t elements = cut.offset[c];
  if (where == Where::kScratch)
    return plan_->layout == Plan::Layout::kMessage
               ? cut.kept[c] * element_
               : static_cast<std::size_t>(plan_->scratch_of[c]) * chunk_bytes_;
  if (blocks()) elements += block_at(where == Where::kOut, plan_->pieces[c].block);
  return elements * element_;
}

// Chooses the number of rounds, and how much of the message (or of every block) a round handles.
void Run::choose_rounds(const Slicing& slicing) {
  const auto ranks = static_cast<std::size_t>(plan_->schedule.nranks);
  auto chunks = static_cast<std::size_t>(plan_->nchunks);  // the same on every rank
  if (plan_->collective == Collective::kAllToAll) chunks /= ranks;
  // Blocks of different sizes are cut at the same offsets, so short ones finish early. A rank has
  // as many rounds as its longest block needs; both ends of a message know its length.
  total_ = call_->count;
  if (call_->is_vector) {
    total_ = 0;
    for (const Piece& p : plan_->pieces) total_ = std::max(total_, block_count(p.block));
  }

  const std::size_t slice = std::max<std::size_t>(slicing.slice_bytes, 64);
  const std::size_t per_block = std::max<std::size_t>(1, chunks / ranks);
  segment_ = packed() && (call_->is_vector || compute_)
                 ? total_
                 : slice / element_ * (by_blocks(plan_->collective) ? per_block : chunks);
  rounds_ = barrier_ ? 1 : 0;
  if (total_ != 0) {
    if (!call_->is_vector) segment_ = std::min(segment_, total_);
    rounds_ = (total_ + segment_ - 1) / segment_;
    if (!call_->is_vector) {
      // Equal rounds: no tiny one at the end.
      segment_ = std::min(total_, round_up((total_ + rounds_ - 1) / rounds_, 64 / element_));
      rounds_ = (total_ + segment_ - 1) / segment_;
    }
  }
  const auto wanted =
      static_cast<std::uint64_t>(std::clamp(slicing.rounds_in_flight, 1, kMaxLanes));
  nlanes_ = static_cast<std::uint32_t>(std::min(wanted, rounds_));
}

void Run::bind(const Plan& plan, const Slicing& slicing) {
  plan_ = &plan;
  bound_ = plan.serial;
  bound_count_ = call_->count;
  bound_type_ = call_->type;
  nodes_ = plan.nodes.size();
  traffic_.clear();
  element_ = size_of(call_->type);
  barrier_ = plan.collective == Collective::kBarrier;
  choose_rounds(slicing);
  const std::size_t cuts = call_->is_vector && blocks() ? 2 + nlanes_ : 2;
  cuts_.resize(std::max(cuts, cuts_.size()));
  extents_.resize(std::max(cuts, extents_.size()));
  lay_out(0, cuts_[0]);
  lay_out(rounds_ ? rounds_ - 1 : 0, cuts_[1]);

  // Every credit is as long as the longest arrival it takes.
  chunk_bytes_ = 0;
  credit_at_.assign(static_cast<std::size_t>(plan.credits) + 1, 0);
  for (std::size_t k = 0; k < 2; ++k) {
    for (const Node& node : plan.nodes) {
      // In a vector call, a later round may cut a piece one element longer.
      const std::size_t more = call_->is_vector ? element_ : 0;
      const std::size_t bytes = round_up(bytes_of(node.at, cuts_[k]) + more, kScratchAlign);
      if (node.credit >= 0) {
        std::size_t& longest = credit_at_[static_cast<std::size_t>(node.credit) + 1];
        longest = std::max(longest, bytes);
      }
      if (node.to == Where::kScratch) chunk_bytes_ = std::max(chunk_bytes_, bytes);
    }
    for (const int c : plan.stage_in)
      chunk_bytes_ =
          std::max(chunk_bytes_, round_up(bytes_of(Chunks{c, 1}, cuts_[k]), kScratchAlign));
  }
  credit_at_[0] = static_cast<std::size_t>(plan.scratch_chunks) * chunk_bytes_;
  if (plan.layout == Plan::Layout::kMessage)
    credit_at_[0] =
        round_up(std::max(cuts_[0].kept.back(), cuts_[1].kept.back()) * element_, kScratchAlign);
  std::partial_sum(credit_at_.begin(), credit_at_.end(), credit_at_.begin());
  lane_bytes_ = credit_at_.back();
  if (compute_) place_copies();
  measure(cuts_[0], extents_[0]);
  measure(cuts_[1], extents_[1]);
  packed_at_ = 0;
  if (packed()) {  // joined messages are assembled behind the credits, the packed copy behind them
    for (std::size_t i = 0; i < nodes_; ++i)
      if (plan.nodes[i].kind == Node::Kind::kSendJoined ||
          plan.nodes[i].kind == Node::Kind::kRecvJoined) {
        extents_[0][i].from = extents_[1][i].from = lane_bytes_;
        lane_bytes_ +=
            round_up(std::max(extents_[0][i].bytes, extents_[1][i].bytes), kScratchAlign);
      }
    packed_at_ = lane_bytes_;
    lane_bytes_ += round_up(bytes_of(plan.schedule.all(), cuts_[0]), kScratchAlign);
  }
  // A rank that needs more scratch has fewer rounds in flight, independently of the others: the
  // oldest round that any rank has not finished is in flight on all ranks, so it progresses.
  const std::size_t most = compute_   ? kComputeScratchMax
                           : packed() ? kPackedScratchMax
                                      : kScratchMax;
  if (lane_bytes_ != 0)
    nlanes_ = static_cast<std::uint32_t>(
        std::clamp<std::size_t>(most / lane_bytes_, std::min(nlanes_, 1u), nlanes_));
  scratch_need_ = lane_bytes_ * nlanes_;
  mark_first(extents_[rounds_ == 1]);
  lanes_.assign(nlanes_, {});
  points_.assign(nlanes_ * nodes_, {});
}

// Messages of 0 bytes are not sent, so the first message of a channel depends on the sizes.
void Run::mark_first(std::vector<Extent>& round0) const {
  std::map<std::tuple<Rank, std::uint32_t, bool>, std::uint32_t> lowest;
  const auto key = [](const Node& n) {
    const bool sends = n.kind == Node::Kind::kSend || n.kind == Node::Kind::kSendJoined;
    return std::tuple{n.peer, n.ordinal >> kChannelShift, sends};
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

void Run::measure(const Cut& cut, std::vector<Extent>& extents) const {
  extents.resize(nodes_);
  for (std::size_t i = 0; i < nodes_; ++i) {
    const Node& node = plan_->nodes[i];
    Extent& e = extents[i];
    e.bytes = bytes_of(node, cut);
    e.first = false;
    e.from = node.from == Where::kNowhere ? 0 : offset(node.from, node.at.first, cut);
    e.to = node.to == Where::kNowhere ? 0 : offset(node.to, node.at.first, cut);
    if (node.credit >= 0) e.to = credit_at_[static_cast<std::size_t>(node.credit)];
  }
}

// ---- copies --------------------------------------------------------------------------------

// Copies the user's input to where steps read it, multiplied by the factor of a premultiplied sum.
void Run::bring(std::byte* to, const std::byte* from, std::size_t elements) const {
  if (elements == 0) return;
  if (call_->op == RedOp::kPreMulSum && reduces(plan_->collective))
    multiply(to, from, call_->type, call_->factor, elements);
  else if (to != from)
    std::memcpy(to, from, elements * element_);
}

void Run::stage_in(std::uint32_t lane) {
  if (plan_->layout == Plan::Layout::kMessage) {
    const bool here = plan_->scratch_of[static_cast<std::size_t>(plan_->stage_in[0])] < 0;
    return bring(address(here ? Where::kOut : Where::kScratch, 0, lane),
                 address(Where::kIn, 0, lane), elements_of(lanes_[lane].round));
  }
  const Cut& cut = cuts_[lanes_[lane].cut];
  for (const int c : plan_->stage_in) {
    const Where where =
        plan_->scratch_of[static_cast<std::size_t>(c)] < 0 ? Where::kOut : Where::kScratch;
    bring(address(where, offset(where, c, cut), lane),
          address(Where::kIn, offset(Where::kIn, c, cut), lane),
          cut.length[static_cast<std::size_t>(c)]);
  }
}

// Copies a round between the user's buffers and its packed copy in the lane's scratch, which the
// run uses as its output.
void Run::copy_packed(std::uint32_t lane, bool out) {
  const Lane& l = lanes_[lane];
  const Cut& cut = cuts_[l.cut];
  const std::size_t begin = compute_ ? 0 : l.round * segment_;
  const bool average = call_->op == RedOp::kAvg && reduces(plan_->collective);
  for (const int c : out ? plan_->results : plan_->inputs) {
    const auto i = static_cast<std::size_t>(c);
    const Piece& p = plan_->pieces[i];
    const std::size_t count = cut.length[i], all = block_count(p.block);
    if (count == 0) continue;
    copied_ += count * element_;
    if (phantom_) continue;
    const std::size_t at =
        (block_at(out, p.block) + begin + p.begin(std::min(segment_, all - begin))) * element_;
    std::byte* const copy = address(Where::kOut, cut.offset[i] * element_, l);
    std::byte* const user = static_cast<std::byte*>(call_->out) + at;
    if (!out)
      bring(copy, in_ + at, count);
    else if (average)
      scale(user, copy, call_->type, plan_->schedule.nranks, count);
    else
      copy_bytes(user, copy, count * element_, call_->streaming);
  }
}

// Copies between the packed copy and a message of several ranges.
void Run::copy_joined(std::uint32_t lane, const Node& node, const Extent& extent, bool out) {
  const Lane& l = lanes_[lane];
  copied_ += extent.bytes;
  if (phantom_) return;
  std::byte* message = address(Where::kScratch, extent.from, lane);
  for (std::uint32_t i = 0; i < node.members; ++i) {
    const Chunks at = plan_->ranges[node.first_member + i];
    std::byte* chunks = address(Where::kOut, offset(Where::kOut, at.first, cuts_[l.cut]), lane);
    const std::size_t bytes = bytes_of(at, cuts_[l.cut]);
    out ? std::memcpy(chunks, message, bytes) : std::memcpy(message, chunks, bytes);
    message += bytes;
  }
}

// ---- what transfers name: signatures of pairs, buffers of the user --------------------------

// In an all_to_all_v, every pair of ranks agrees on its own signatures.
void Run::make_pairs() {
  pairs_.clear();
  if (!call_->head.sign || !by_pairs(call_->head)) return;
  pairs_.resize(static_cast<std::size_t>(plan_->schedule.nranks));
  for (const Node& n : plan_->nodes) {
    const auto i = static_cast<std::size_t>(n.order);
    if (pairs_[i].peer == kNoRank)
      pairs_[i] = {n.peer, pair_signature(call_->head, n.peer, call_->counts[i]),
                   pair_signature(call_->head, root_of(call_->head), call_->recv_counts[i])};
  }
}

// Lets a device register memory that is not weft's own once per call, not once per message.
void Run::name_buffers() {
  static std::atomic<std::uint64_t> serials{0};
  const Footprint all = footprint(plan_->collective);
  const auto bytes = [&](Part part) {
    return blocks_in(part, static_cast<std::size_t>(plan_->schedule.nranks)) * call_->count *
           element_;
  };
  const std::uint64_t serial = serials.fetch_add(2, std::memory_order_relaxed) + 1;
  buffers_[0] = {in_, bytes(all.in), serial, false};
  buffers_[1] = {out_, bytes(all.out), serial + 1, true};
}

void Run::end_buffers() {
  for (UserBuffer& buffer : buffers_) {
    for (const std::uint8_t l : plan_->links) {
      if (DeviceMemory* const memory = links_[l]->device_memory())
        memory->end_buffer(buffer.serial);
    }
    buffer.serial = 0;
  }
}

}  // namespace weft
