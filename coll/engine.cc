#include "coll/engine.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "transport/copy.h"

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

std::uint64_t transfer_id(std::uint32_t high, std::uint32_t lane, std::uint32_t node) {
  return static_cast<std::uint64_t>(high) << 32 | lane << 26 | node;
}

}  // namespace

bool wants_packed(std::size_t total_bytes, const Schedule& schedule) {
  return total_bytes <= kPackedMax && std::any_of(schedule.steps.begin(), schedule.steps.end(),
                                                  [](const Step& s) { return s.at.count > 1; });
}

// ---- sizes and addresses -------------------------------------------------------------------

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

std::byte* Run::address(Where where, std::size_t offset, std::uint32_t lane) const {
  const std::size_t round = lanes_[lane].round * segment_ * element_;
  switch (where) {
    case Where::kIn:
      return in_ + offset + round;
    case Where::kOut:
      return out_ + offset + round;
    default:
      return scratch_.get() + lane * lane_bytes_ + offset;
  }
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
      e.from = node.from == Where::kNowhere ? 0 : offset(node.from, node.at.first, cuts_[k]);
      e.to = node.to == Where::kNowhere ? 0 : offset(node.to, node.at.first, cuts_[k]);
      if (node.credit >= 0)
        e.to = accumulators + static_cast<std::size_t>(node.credit) * credit_bytes_;
    }
  }
  lanes_.assign(nlanes_, {});
  pending_.resize(nlanes_ * nodes_);
  data_.assign(nlanes_ * nodes_, nullptr);
  token_.resize(nlanes_ * nodes_);
  posted_.assign(nlanes_ * nodes_, 0);
}

// ---- rounds --------------------------------------------------------------------------------

void Run::start(const Plan& plan, const Call& call, const Slicing& slicing,
                std::span<Transport* const> links) {
  const bool same = plan_ == &plan && call_.count == call.count && call_.type == call.type &&
                    slicing_.slice_bytes == slicing.slice_bytes &&
                    slicing_.rounds_in_flight == slicing.rounds_in_flight;
  call_ = call;
  slicing_ = slicing;
  if (!same) bind(plan, slicing);
  links_ = links;
  batch_.resize(links.size());
  phantom_ = false;
  for (Transport* link : links) phantom_ = phantom_ || link->caps().phantom;
  kernel_ = reduce_kernel(call.type, call.op);
  in_ = static_cast<std::byte*>(const_cast<void*>(call.in));
  out_ = static_cast<std::byte*>(call.out);
  failure_ = Code::kOk;
  failed_peer_ = kNoRank;
  failed_link_ = -1;
  std::fill(posted_.begin(), posted_.end(), 0);
  to_post_.clear();
  to_reduce_.clear();
  next_reduce_ = 0;
  if (plan.layout == Plan::Layout::kPacked && !phantom_) copy_in_packed();
  next_round_ = nlanes_;
  lanes_busy_ = nlanes_;
  for (std::uint32_t lane = 0; lane < nlanes_; ++lane) activate(lane, lane);
  progress();
}

void Run::activate(std::uint32_t lane, std::uint64_t round) {
  Lane& l = lanes_[lane];
  l.round = round;
  l.last_round = round + 1 == rounds_;
  l.remaining = static_cast<std::uint32_t>(nodes_);
  std::copy(plan_->pending.begin(), plan_->pending.end(),
            pending_.begin() + static_cast<std::ptrdiff_t>(index(lane, 0)));
  if (plan_->copy_first && !phantom_ && call_.in != call_.out)
    std::memcpy(address(Where::kOut, 0, lane), address(Where::kIn, 0, lane),
                elements_of(lane) * element_);
  for (std::uint32_t node = 0; node < nodes_; ++node)
    if (plan_->pending[node] == 0) to_post_.push_back({lane, node});
  if (nodes_ == 0) finish_round(lane);
}

void Run::finish_round(std::uint32_t lane) {
  if (!phantom_ && plan_->layout != Plan::Layout::kPacked) {
    const Cut& cut = cuts_[lanes_[lane].last_round];
    for (const int c : plan_->copy_last) {
      std::byte* to = address(Where::kOut, offset(Where::kOut, c, cut), lane);
      const std::byte* from = address(Where::kIn, offset(Where::kIn, c, cut), lane);
      if (to != from)
        copy_bytes(to, from, cut.length[static_cast<std::size_t>(c)] * element_, call_.streaming);
    }
    if (call_.op == RedOp::kAvg && reduces()) {
      // What this round added to the result: a piece of the message, or of this rank's block.
      std::byte* at = address(Where::kOut, 0, lane);
      scale(at, at, call_.type, plan_->schedule.nranks, elements_of(lane));
    }
  }
  if (next_round_ < rounds_) return activate(lane, next_round_++);
  if (--lanes_busy_ == 0 && plan_->layout == Plan::Layout::kPacked && !phantom_) copy_out_packed();
}

// ---- steps ---------------------------------------------------------------------------------

void Run::finish(std::uint32_t lane, std::uint32_t node) {
  const Node& n = plan_->nodes[node];
  std::uint16_t* pending = pending_.data() + index(lane, 0);
  const std::uint32_t* next = plan_->successors.data() + n.first_successor;
  for (std::uint32_t i = 0; i < n.successors; ++i) {
    if (--pending[next[i]] != 0) continue;
    const bool reduces = plan_->nodes[next[i]].kind == Node::Kind::kReduce;
    (reduces ? to_reduce_ : to_post_).push_back({lane, next[i]});
  }
  if (--lanes_[lane].remaining == 0) finish_round(lane);
}

// Posts a send or a receive; messages of no bytes are not sent at all, except in a barrier.
void Run::launch(std::uint32_t lane, std::uint32_t node) {
  const Node& n = plan_->nodes[node];
  const Extent& e = extent(lane, node);
  if (e.bytes == 0 && !barrier_) return finish(lane, node);
  Transfer t;
  t.peer = n.peer;
  t.bytes = e.bytes;
  t.tag = call_.tag | (lanes_[lane].round & ((1u << kRoundBits) - 1)) << kOrdinalBits | n.ordinal;
  t.id = transfer_id(call_.id_high, lane, node);
  switch (n.kind) {
    case Node::Kind::kSend: {
      t.kind = Transfer::Kind::kSend;
      t.streaming = call_.streaming;
      t.buffered = n.buffered;
      const void* staged =
          n.result_of < 0 ? nullptr : data_[index(lane, static_cast<std::uint32_t>(n.result_of))];
      t.data = phantom_ ? nullptr
               : staged ? const_cast<void*>(staged)
                        : address(n.from, e.from, lane);
      break;
    }
    case Node::Kind::kRecv:
      t.kind = Transfer::Kind::kRecv;
      t.streaming = call_.streaming && n.last;
      t.data = phantom_ ? nullptr : address(n.to, e.to, lane);
      break;
    default:  // kArrive
      if (n.credit < 0) {
        t.kind = Transfer::Kind::kView;
      } else {
        t.kind = Transfer::Kind::kRecv;
        t.data = phantom_ ? nullptr : address(Where::kScratch, e.to, lane);
        data_[index(lane, node)] = t.data;
      }
      break;
  }
  posted_[index(lane, node)] = 1;
  batch_[n.link].push_back(t);
}

// The current value and all arrivals of the group, in one pass.
void Run::reduce(std::uint32_t lane, std::uint32_t node) {
  const Node& n = plan_->nodes[node];
  const Extent& e = extent(lane, node);
  const std::uint32_t* members = plan_->members.data() + n.first_member;
  if (e.bytes != 0 && !phantom_) {
    std::byte* to = address(n.to, e.to, lane);
    sources_.clear();
    for (std::uint32_t i = 0; i < n.members; ++i)
      sources_.push_back(data_[index(lane, members[i])]);
    sources_.insert(sources_.begin() + n.own_place, address(n.from, e.from, lane));
    // A large result that is sent on at once: produce it where the peers read it, while it is in
    // cache, and stream it to the user's memory beside the cache.
    Transport* link = links_[n.link];
    void* staged = nullptr;
    if (call_.streaming && !n.last && n.to == Where::kOut && !link->mapped(to, e.bytes))
      staged = link->stage(e.bytes);
    kernel_(staged ? staged : to, sources_.data(), static_cast<int>(sources_.size()),
            e.bytes / element_);
    if (staged) copy_bytes(to, staged, e.bytes, true);
    data_[index(lane, node)] = staged;
  }
  for (std::uint32_t i = 0; i < n.members; ++i) {
    const Node& member = plan_->nodes[members[i]];
    if (member.credit < 0 && (e.bytes != 0 || barrier_))
      links_[member.link]->release(token_[index(lane, members[i])]);
  }
  void* const staged =
      e.bytes != 0 && !phantom_ ? const_cast<void*>(data_[index(lane, node)]) : nullptr;
  finish(lane, node);
  if (staged) {
    post_ready();  // the sends that read what is staged
    links_[n.link]->unstage(staged);
  }
}

void Run::flush() {
  for (std::size_t l = 0; l < batch_.size(); ++l) {
    if (batch_[l].empty()) continue;
    links_[l]->post(batch_[l]);
    batch_[l].clear();
  }
}

void Run::post_ready() {
  for (std::size_t i = 0; i < to_post_.size(); ++i) {  // launch() may add to the list
    const Ready r = to_post_[i];
    launch(r.lane, r.node);
  }
  to_post_.clear();
  flush();
}

void Run::progress() {
  for (;;) {
    post_ready();
    if (next_reduce_ == to_reduce_.size()) break;
    const Ready r = to_reduce_[next_reduce_++];
    reduce(r.lane, r.node);
  }
  to_reduce_.clear();
  next_reduce_ = 0;
}

void Run::complete(const Completion& c) {
  const auto low = static_cast<std::uint32_t>(c.id);
  const std::uint32_t lane = low >> 26, node = low & ((1u << 26) - 1);
  const Node& n = plan_->nodes[node];
  if (c.code != Code::kOk) {
    if (failure_ == Code::kOk) {
      failure_ = c.code;
      failed_peer_ = n.peer;
      failed_link_ = n.link;
    }
    return;
  }
  posted_[index(lane, node)] = 0;
  if (n.kind == Node::Kind::kArrive && n.credit < 0) {
    data_[index(lane, node)] = c.view;
    token_[index(lane, node)] = c.token;
  }
  finish(lane, node);
}

Rank Run::waiting_for() const {
  Rank sending_to = kNoRank;
  for (std::uint32_t lane = 0; lane < nlanes_; ++lane) {
    if (lanes_[lane].remaining == 0) continue;
    for (std::uint32_t node = 0; node < nodes_; ++node) {
      if (!posted_[index(lane, node)]) continue;
      if (plan_->nodes[node].kind != Node::Kind::kSend) return plan_->nodes[node].peer;
      sending_to = plan_->nodes[node].peer;
    }
  }
  return sending_to;
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
