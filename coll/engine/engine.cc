// Runs the rounds of a plan: posts transfers, takes their completions, reduces what arrives.
// Has no clock, never waits, and is independent of why this schedule was chosen.
#include "coll/engine/engine.h"

#include <algorithm>
#include <cstring>

#include "coll/engine/signature.h"
#include "transport/memory/copy.h"
#include "transport/memory/crc32c.h"
#include "transport/offers.h"

namespace weft {
namespace {

// Not inline: its stack frame would cost complete() of every run some instructions.
[[gnu::noinline]] void give_landed(Compute& compute, std::uint32_t lane, std::uint32_t node) {
  compute.give({Work::Kind::kLand, lane, node});
}

}  // namespace

// ---- rounds --------------------------------------------------------------------------------

void Run::start(const Plan& plan, Call& call, const Slicing& slicing,
                std::span<Transport* const> links, Compute* compute) {
  const bool once = call.is_vector || compute;
  const bool same = bound_to(plan) && !once && !bound_once_ && bound_count_ == call.count &&
                    bound_type_ == call.type && slicing_ == slicing;
  call_ = &call;
  compute_ = compute;
  if (!same) [[unlikely]] {
    slicing_ = slicing;
    bound_once_ = once;
    bind(plan, slicing);
  }
  if (!same || op_ != call.op) {
    op_ = call.op;
    kernel_ = reduce_kernel(call.type, call.op);
  }
  if (compute) [[unlikely]] {
    base_ = compute->memory(scratch_need_);
    call_->in = base_ + copy_in_;
    call_->out = base_ + copy_out_;
  } else if (scratch_need_ > scratch_.bytes) {
    scratch_ = {};
    scratch_ = spare_ ? spare_->take(scratch_need_) : fresh_scratch(scratch_need_);
  }
  if (!compute) base_ = scratch_.at();
  if (call_->head.sign) {
    add_cut(call_->head, plan.algorithm, plan.common, segment_);
    seal(call_->head);
  }
  if (call_->is_vector || !pairs_.empty()) make_pairs();
  if (links_.data() != links.data() || links_.size() != links.size()) look_at(links);
  if (checked_links_) [[unlikely]] {
    sums_.assign(nlanes_ * nodes_, {});
    missing_.assign(nlanes_ * nodes_, 0);
  }
  plain_ = !checked_links_ && !on_device();
  in_ = static_cast<std::byte*>(const_cast<void*>(call_->in));
  out_ = static_cast<std::byte*>(call_->out);
  if (plan.network && !compute && !call.is_vector && !phantom_ && !packed() &&
      call.total_bytes >= kLeastRegistered) [[unlikely]]
    name_buffers();
  failure_ = Code::kOk;
  failed_peer_ = kNoRank;
  failed_link_ = -1;
  to_post_.clear();
  to_reduce_.clear();
  next_reduce_ = 0;
  copied_ = 0;
  if (packed()) out_ = base_;
  next_round_ = nlanes_;
  lanes_busy_ = nlanes_;
  // On a network the lanes start one after the other: otherwise their first stages would share the
  // host's links and the core, and the rails would idle until all of them are done.
  stagger_ = plan.network ? nodes_ - nodes_ / kStagger : nodes_;
  const bool one_by_one = plan.network && nodes_ && !compute;
  const std::uint32_t at_once = one_by_one ? std::min(1u, nlanes_) : nlanes_;
  for (std::uint32_t lane = at_once; lane < nlanes_; ++lane) lanes_[lane].remaining = 0;
  for (lanes_started_ = 0; lanes_started_ < at_once;) start_lane();
  progress();
}

void Run::look_at(std::span<Transport* const> links) {
  links_ = links;
  batch_.resize(links.size());
  phantom_ = false;
  checked_links_ = 0;
  for (std::size_t l = 0; l < links.size(); ++l) {
    const Caps caps = links[l]->caps();
    phantom_ = phantom_ || caps.phantom;
    checked_links_ |= std::uint64_t{caps.checks} << l;
  }
}

void Run::activate(std::uint32_t lane, std::uint64_t round) {
  Lane& l = lanes_[lane];
  l.round = round;
  l.at = compute_ || packed() ? lane * lane_bytes_ + packed_at_ : round * segment_ * element_;
  l.cut = round + 1 == rounds_ ? 1 : 0;
  if (call_->is_vector && blocks()) {
    l.cut = 2 + lane;
    lay_out(round, cuts_[l.cut]);
    measure(cuts_[l.cut], extents_[l.cut]);
    if (round == 0) mark_first(extents_[l.cut]);
  }
  l.extents = extents_[l.cut].data();
  l.points = points_.data() + index(lane, 0);
  l.scratch = base_ + lane * lane_bytes_;
  l.tag = call_->tag | (round & ((1u << kRoundBits) - 1)) << kOrdinalBits;
  l.id = static_cast<std::uint64_t>(call_->id_high) << 32 | lane << kLaneShift;
  l.remaining = static_cast<std::uint32_t>(nodes_);
  for (std::size_t node = 0; node < nodes_; ++node) {
    l.points[node].pending = plan_->pending[node];
    l.points[node].posted = kNot;
  }
  if (compute_) [[unlikely]]
    return give_bring(lane);
  begin_round(lane);
}

// The round's input is in place.
void Run::begin_round(std::uint32_t lane) {
  if (packed()) copy_packed(lane, false);
  if (!plan_->stage_in.empty() && !phantom_) stage_in(lane);
  for (const std::uint32_t node : plan_->first) to_post_.push_back({lane, node});
  if (nodes_ == 0) finish_round(lane);
}

void Run::start_lane() {
  const std::uint32_t lane = lanes_started_++;
  activate(lane, lane);
}

void Run::finish_round(std::uint32_t lane) {
  if (on_device()) [[unlikely]]
    return give_take(lane);
  if (!phantom_ && !packed()) {
    const Cut& cut = cuts_[lanes_[lane].cut];
    const auto bytes = [&](int c) { return cut.length[static_cast<std::size_t>(c)] * element_; };
    for (const int c : plan_->copy_last) {
      std::byte* to = address(Where::kOut, offset(Where::kOut, c, cut), lane);
      const std::byte* from = address(Where::kIn, offset(Where::kIn, c, cut), lane);
      if (to != from && bytes(c) != 0) copy_bytes(to, from, bytes(c), call_->streaming);
    }
    if (call_->op == RedOp::kAvg && reduces(plan_->collective))
      for (const int c : plan_->results) {
        std::byte* at = address(Where::kOut, offset(Where::kOut, c, cut), lane);
        scale(at, at, call_->type, plan_->schedule.nranks, cut.length[static_cast<std::size_t>(c)]);
      }
  }
  if (packed()) copy_packed(lane, true);
  if (compute_) [[unlikely]]
    return give_take(lane);
  leave_round(lane);
}

void Run::leave_round(std::uint32_t lane) {
  if (next_round_ < rounds_) return activate(lane, next_round_++);
  if (--lanes_busy_ > 0) return;
  if (buffers_[0].serial != 0) [[unlikely]]
    end_buffers();
}

// ---- steps ---------------------------------------------------------------------------------

void Run::finish(std::uint32_t lane, std::uint32_t node) {
  const Node* const nodes = plan_->nodes.data();
  const Node& n = nodes[node];
  Lane& l = lanes_[lane];
  const std::uint32_t* next = plan_->successors.data() + n.first_successor;
  for (const std::uint32_t* const end = next + n.successors; next != end; ++next) {
    if (--l.points[*next].pending != 0) continue;
    const bool reduces = nodes[*next].kind == Node::Kind::kReduce;
    (reduces ? to_reduce_ : to_post_).push_back({lane, *next});
  }
  const std::uint32_t left = --l.remaining;
  if (left <= stagger_ && lane + 1 == lanes_started_ && lanes_started_ < nlanes_) start_lane();
  if (left == 0) finish_round(lane);
}

const Head* Run::head_of(const Node& node) const {
  if (pairs_.empty()) return &call_->head;
  const Pair& pair = pairs_[static_cast<std::size_t>(node.order)];
  return node.kind == Node::Kind::kSend ? &pair.to : &pair.from;
}

// Posts a send or a receive. Messages of 0 bytes are not sent, except in a barrier.
void Run::launch(std::uint32_t lane, std::uint32_t node) {
  const Node& n = plan_->nodes[node];
  const Lane& l = lanes_[lane];
  const Extent& e = l.extents[node];
  if (e.bytes == 0 && !barrier_) return finish(lane, node);
  Transfer& t = batch_[n.link].emplace_back();
  t.peer = n.peer;
  t.bytes = e.bytes;
  t.tag = l.tag | n.ordinal;
  t.own_rail = plan_->own_rail;
  t.id = l.id | node;
  t.head = e.first && l.round == 0 && call_->head.sign ? head_of(n) : nullptr;
  switch (n.kind) {
    case Node::Kind::kSend: {
      t.kind = Transfer::Kind::kSend;
      t.streaming = call_->streaming;
      t.buffered = n.buffered;
      const void* staged = n.result_of < 0 ? nullptr : l.points[n.result_of].data;
      t.data = phantom_ ? nullptr : staged ? const_cast<void*>(staged) : address(n.from, e.from, l);
      t.buffer = buffer_of(n.from);
      if (checked_links_ && n.result_of >= 0) {
        const Sum& sum = sums_[index(lane, static_cast<std::uint32_t>(n.result_of))];
        t.summed = sum.known;
        t.crc = sum.crc;
      }
      break;
    }
    case Node::Kind::kRecv:
      t.kind = Transfer::Kind::kRecv;
      t.streaming = call_->streaming && n.last;
      t.data = phantom_ ? nullptr : address(n.to, e.to, l);
      t.buffer = buffer_of(n.to);
      break;
    case Node::Kind::kSendJoined:
    case Node::Kind::kRecvJoined:
      t.kind = n.kind == Node::Kind::kSendJoined ? Transfer::Kind::kSend : Transfer::Kind::kRecv;
      if (t.kind == Transfer::Kind::kSend) copy_joined(lane, n, e, false);
      if (!phantom_) t.data = address(Where::kScratch, e.from, l);
      break;
    default:  // kArrive
      if (n.credit < 0) {
        t.kind = Transfer::Kind::kView;
        t.by_reader = checks(n.link) && checked_by_reduce(lane, n);
      } else {
        t.kind = Transfer::Kind::kRecv;
        t.data = phantom_ ? nullptr : address(Where::kScratch, e.to, l);
        l.points[node].data = t.data;
      }
      break;
  }
  l.points[node].posted = kPosted;
}

// Collects the sources of a reduction, in rank order.
void Run::gather_sources(std::uint32_t lane, std::uint32_t node) {
  const Node& n = plan_->nodes[node];
  const Lane& l = lanes_[lane];
  const std::uint32_t* member = plan_->members.data() + n.first_member;
  if (sources_.size() != n.members + 1) sources_.resize(n.members + 1);
  const void** const sources = sources_.data();
  for (std::uint32_t i = 0; i <= n.members; ++i)
    sources[i] =
        i == n.own_place ? address(n.from, l.extents[node].from, l) : l.points[*member++].data;
}

// Used if other ranks read this memory and have read it before: their caches must give up each line
// before it is written. A copy requests many lines at once, the stores of a loop only a few.
bool Run::copies_result(const Node& n, const std::byte* to, std::size_t bytes) const {
  if (!call_->copies_results || n.last) return false;
  const Staging* const staging = links_[n.link]->staging();
  return staging && staging->mapped(to, bytes);
}

void Run::reduce_for_readers(std::byte* to, std::size_t bytes) {
  alignas(64) std::byte piece[kPiece];
  const std::size_t count = sources_.size();
  pieces_.resize(count);
  for (std::size_t at = 0; at < bytes; at += kPiece) {
    const std::size_t length = std::min(kPiece, bytes - at);
    for (std::size_t s = 0; s < count; ++s)
      pieces_[s] = static_cast<const std::byte*>(sources_[s]) + at;
    kernel_(piece, pieces_.data(), static_cast<int>(count), length / element_);
    std::memcpy(to + at, piece, length);
  }
}

// Reduces the current value and all arrivals of the group, in one pass.
void Run::reduce(std::uint32_t lane, std::uint32_t node) {
  const Node& n = plan_->nodes[node];
  const Lane& l = lanes_[lane];
  const Extent& e = l.extents[node];
  const std::uint32_t* members = plan_->members.data() + n.first_member;
  void* staged = nullptr;
  if (e.bytes != 0 && !phantom_) {
    std::byte* to = address(n.to, e.to, l);
    gather_sources(lane, node);
    // A large result that is sent on at once: produce it where the peers read it, while it is in
    // cache, and stream it to the user's memory beside the cache.
    Staging* const staging = links_[n.link]->staging();
    if (staging && call_->streaming && n.stages && !n.last && n.to == Where::kOut &&
        !staging->mapped(to, e.bytes))
      staged = staging->stage(e.bytes);
    auto* const result = staged ? static_cast<std::byte*>(staged) : to;
    if (plain_) [[likely]] {
      if (copies_result(n, to, e.bytes))
        reduce_for_readers(result, e.bytes);
      else
        kernel_(result, sources_.data(), static_cast<int>(sources_.size()), e.bytes / element_);
    } else if (on_device()) {
      return give_reduce(lane, node, result);
    } else if (!reduce_checked(lane, node, result, !staged && !n.last)) {
      if (staged) staging->unstage(staged);
      return;
    }
    if (staged && checks(n.link))
      sums_[index(lane, node)] = {true, copy_crc32c(to, staged, e.bytes, true)};
    else if (staged)
      copy_bytes(to, staged, e.bytes, true);
    l.points[node].data = staged;
  }
  for (std::uint32_t i = 0; i < n.members; ++i) {
    const Node& member = plan_->nodes[members[i]];
    Point& arrival = l.points[members[i]];
    arrival.posted = kNot;
    if (member.credit < 0 && (e.bytes != 0 || barrier_) && !release(member.link, arrival.token)) {
      // The sender has canceled this message: the bytes read from it must not be passed on.
      failure_ = Code::kAborted;
      failed_peer_ = member.peer;
      failed_link_ = member.link;
    }
  }
  if (failure_ != Code::kOk) [[unlikely]]
    return;
  finish(lane, node);
  if (staged) {
    post_ready();  // the sends that read what is staged
    links_[n.link]->staging()->unstage(staged);
  }
}

void Run::post_ready() {
  if (to_post_.empty()) return;
  for (std::size_t i = 0; i < to_post_.size(); ++i) {  // launch() may add to the list
    const Ready r = to_post_[i];
    launch(r.lane, r.node);
  }
  to_post_.clear();
  for (const std::uint8_t l : plan_->links) {
    std::vector<Transfer>& batch = batch_[l];
    if (batch.empty()) continue;
    if (on_device()) [[unlikely]]
      for (Transfer& t : batch) t.on_device = true;
    links_[l]->post(batch);
    batch.clear();
  }
}

void Run::progress() {
  if (compute_) [[unlikely]]
    take_ended();
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
  const std::uint32_t lane = low >> kLaneShift, node = low & ((1u << kLaneShift) - 1);
  const Node& n = plan_->nodes[node];
  if (c.code != Code::kOk) {
    if (failure_ == Code::kOk) {
      failure_ = c.code;
      failed_peer_ = n.peer;
      failed_link_ = n.link;
      failed_node_ = node;
      failed_round_ = lanes_[lane].round;
    }
    return;
  }
  Point& at = lanes_[lane].points[node];
  at.posted = kNot;
  if (n.kind == Node::Kind::kArrive && n.credit < 0) {
    at.posted = kHeld;
    at.data = c.view;
    at.token = c.token;
    if (checked_links_ && came_again(lane, node)) return;
  } else if (n.kind == Node::Kind::kRecvJoined) {
    copy_joined(lane, n, extent(lane, node), true);
  } else if (!plain_ && on_device() && n.kind == Node::Kind::kRecv) [[unlikely]] {
    return give_landed(*compute_, lane, node);
  }
  finish(lane, node);
}

void Run::abandon() {
  for (std::uint32_t lane = 0; lane < nlanes_; ++lane)
    for (std::uint32_t node = 0; node < nodes_; ++node)
      if (std::exchange(point(lane, node).posted, kNot) == kHeld)
        (void)release(plan_->nodes[node].link, point(lane, node).token);
  if (buffers_[0].serial != 0) end_buffers();
}

}  // namespace weft
