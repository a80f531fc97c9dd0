// Posts the slices of a message, an offer and its answer, and handles their completions. This file
// is independent of whether the memory is a GPU's.
#include "coll/tasks/message_task.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "coll/engine/signature.h"
#include "coll/runtime/selector.h"
#include "coll/tasks/agreement.h"

namespace weft {
namespace {

// The lowest kNumberBits bits of a tag hold the number of the slice. The two bits above them mark a
// transfer as an offer, or as the answer to an offer.
constexpr int kNumberBits = kMessageBit - 2;
constexpr std::uint64_t kNumbers = (std::uint64_t{1} << kNumberBits) - 1;
constexpr std::uint64_t kOfferBit = kNumbers + 1, kAnswerBit = kOfferBit << 1;
// Replaces the slice's number in the id of the transfer of an offer; kAside + 1 replaces it in that
// of an answer.
constexpr std::uint32_t kAside = ~std::uint32_t{0} - 1;

}  // namespace

MessageTask::MessageTask(GroupState& g, bool sends, Rank peer, std::size_t count, DType type)
    : core_(*g.core) {
  const auto with = static_cast<std::size_t>(peer);
  const Rank world = g.ranks[with];
  group = &g;
  call.count = count;
  call.type = type;
  prepared =
      described(g, Collective::kSendRecv, call,
                {.count = count, .root = world, .type = type, .message = true, .sends = sends});
  slice_bytes_ =
      core_.links.shm_peer[static_cast<std::size_t>(world)] ? SIZE_MAX : core_.links.message_slice;
  left_ = slices_ = slices_of(bytes(), slice_bytes_);
  may_be_offered_ = core_.links.offers_messages(world);
  number = ++(sends ? g.sends : g.recvs)[with];
  g.number_call(call, *prepared, number);
  seal(call.head);
  std::uint64_t& slices = (sends ? g.sent_slices : g.received_slices)[with];
  call.tag = static_cast<std::uint64_t>(g.id) << kIdShift | std::uint64_t{1} << kMessageBit |
             (slices & kNumbers);
  slices += slices_;
  core_.telemetry->open(*this);
}

MessageTask* MessageTask::begin(GroupState& group, bool sends, Rank peer, void* data,
                                std::size_t count, DType type, bool own_rail) {
  auto* const task = new MessageTask(group, sends, peer, count, type);
  task->own_rail_ = own_rail;
  task->let_go(data, task->slices_);
  return task;
}

void MessageTask::let_go(void* data, std::uint32_t end) {
  data_ = static_cast<std::byte*>(data);
  const bool first = !under_way();
  ready_ = end;
  if (first) return start();
  post();
}

void MessageTask::offer(const Offer& offer) {
  offer_ = offer;
  offered_ = true;
  start();
}

void MessageTask::answer(Answer answer) {
  answer_ = answer;
  post_aside(true, true);
}

void MessageTask::start() {
  if (!core_.tasks.submit(this, true)) return;
  if (sends() ? offered_ : may_be_offered_) post_aside(sends(), false);
  if (sends() && offered_) post_aside(false, true);
  post();
}

void MessageTask::post_aside(bool sends, bool answer) {
  Transfer t;
  t.kind = sends ? Transfer::Kind::kSend : Transfer::Kind::kRecv;
  t.peer = peer();
  t.tag = call.tag | (answer ? kAnswerBit : kOfferBit);
  t.id = static_cast<std::uint64_t>(id) << 32 | (kAside + answer);
  t.data = answer ? static_cast<void*>(&answer_) : &offer_;
  t.bytes = answer ? sizeof answer_ : sizeof offer_;
  if (!answer) t.head = &call.head;
  Transport& link = core_.links.use_for(peer());
  link.post({&t, 1});
}

void MessageTask::post() {
  // A peer without a posted receive must buffer the slices: limit them for long messages.
  constexpr std::uint32_t kSentAhead = 2;
  const std::uint32_t end = sends() ? std::min(ready_, slices_ - left_ + kSentAhead) : ready_;
  Transfer t;
  t.kind = sends() ? Transfer::Kind::kSend : Transfer::Kind::kRecv;
  t.peer = peer();
  t.own_rail = own_rail_;
  t.head = &call.head;
  Transport& link = core_.links.use_for(peer());
  for (std::uint32_t& k = posted_; k < end; ++k) {
    const std::size_t at = k * slice_bytes_;
    t.data = data_ + at;
    t.bytes = std::min(bytes() - at, slice_bytes_);
    t.tag = (call.tag & ~kNumbers) | ((call.tag + k) & kNumbers);
    t.id = static_cast<std::uint64_t>(id) << 32 | k;
    link.post({&t, 1});
  }
}

void MessageTask::complete(const Completion& transfer) {
  if (transfer.code != Code::kOk) {
    failed_ = transfer.code;
    return;
  }
  const auto slice = static_cast<std::uint32_t>(transfer.id);
  if (slice == kAside) {
    offered_ = true;
    if (!sends() && !takes_offers_) answer(Answer::kDeclined);
    return;
  }
  if (slice > kAside) {
    if (answer_ == Answer::kTaken) left_ = 0;
    return;
  }
  --left_;
  if (slices_over_) slices_over_->push_back(slice);
}

Task::Step MessageTask::progress() {
  if (failed_ != Code::kOk) [[unlikely]]
    return Step::kFailed;
  if (posted_ < ready_) post();
  return left_ == 0 ? Step::kDone : Step::kGoOn;
}

// Cancels the receive that stayed unmatched: the one for the bytes, or the one for the offer.
void MessageTask::done() {
  if (sends() || !may_be_offered_) return;
  core_.links.to(peer()).cancel(id);
}

bool MessageTask::survey(Recorder::Stalled& how_far) const {
  PeerProgress p;
  p.peer = peer();
  p.link = core_.links.link_to(peer());
  (sends() ? p.sends_posted : p.recvs_posted) = std::max(posted_, 1u);
  (sends() ? p.sends_done : p.recvs_done) = slices_ - left_;
  how_far.peers.push_back(p);
  return true;
}

Status MessageTask::failure() const {
  const Status why = core_.links.to(peer()).cause(peer());
  return {failed_, why.ok() ? fmt::format("rank {}", peer()) : why.message(), culprit(why, peer())};
}

Status MessageTask::mismatch() const {
  return failed_ == Code::kMismatch ? disputed_message(core_, call.head, peer()) : Status();
}

std::span<const Run::Traffic> MessageTask::traffic() {
  traffic_ = {peer(), core_.links.link_to(peer())};
  (sends() ? traffic_.bytes_sent : traffic_.bytes_received) = bytes();
  (sends() ? traffic_.messages_sent : traffic_.messages_received) = 1;
  return {&traffic_, 1};
}

}  // namespace weft
