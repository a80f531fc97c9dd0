// Posts the slices of a message, and takes their ends.
// This file does not know whether the memory is a GPU's.
#include "coll/runtime/message_task.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "coll/engine/signature.h"
#include "coll/runtime/agreement.h"

namespace weft {

MessageTask::MessageTask(GroupState& g, bool sends, Rank peer, std::size_t count, DType type)
    : core_(*g.core),
      sends_(sends),
      peer_(g.ranks[static_cast<std::size_t>(peer)]),
      bytes_(count * size_of(type)),
      slice_bytes_(core_.shm_peer[static_cast<std::size_t>(peer_)] ? SIZE_MAX
                                                                   : core_.message_slice),
      slices_(slices_of(bytes_, slice_bytes_)),
      left_(slices_) {
  core_.mutex.assert_held();
  const auto with = static_cast<std::size_t>(peer);
  std::uint64_t& slices = (sends ? g.sent_slices : g.received_slices)[with];
  group = &g;
  call.count = count;
  call.type = type;
  call.total_bytes = bytes_;
  const std::uint64_t number = ++(sends ? g.sends : g.recvs)[with];
  call.head =
      signature(Collective::kSendRecv, call, sends ? peer_ : core_.job->rank(), g.id, number);
  seal(call.head);
  what = g.describe(Collective::kSendRecv, call, call.head, peer_, number);
  what.message = true;
  what.sends = sends;
  what.count = bytes_;
  call.tag = static_cast<std::uint64_t>(g.id) << kIdShift | std::uint64_t{1} << kMessageBit |
             (slices & ((std::uint64_t{1} << (kMessageBit - 1)) - 1));
  slices += slices_;
  record = core_.telemetry->begin(what);
}

MessageTask* MessageTask::begin(GroupState& group, bool sends, Rank peer, void* data,
                                std::size_t count, DType type) {
  auto* const task = new MessageTask(group, sends, peer, count, type);
  task->let_go(data, task->slices_);
  return task;
}

void MessageTask::let_go(void* data, std::uint32_t end) {
  core_.mutex.assert_held();
  data_ = static_cast<std::byte*>(data);
  if (std::exchange(ready_, end) == 0) return core_.submit(this);
  post();
}

void MessageTask::start() {
  core_.mutex.assert_held();
  core_.enlist(this);
  core_.telemetry->starting(*this);
  post();
}

void MessageTask::post() {
  core_.mutex.assert_held();
  // A peer that does not receive yet has to keep what comes: of long messages a little.
  constexpr std::uint32_t kSentAhead = 2;
  constexpr std::uint64_t kNumbers = (std::uint64_t{1} << (kMessageBit - 1)) - 1;
  const std::uint32_t end = sends_ ? std::min(ready_, slices_ - left_ + kSentAhead) : ready_;
  Transfer t;
  t.kind = sends_ ? Transfer::Kind::kSend : Transfer::Kind::kRecv;
  t.peer = peer_;
  t.head = &call.head;
  const auto link = static_cast<std::size_t>(core_.link_of(core_.job->rank(), peer_));
  core_.use_link(link);
  for (std::uint32_t& k = posted_; k < end; ++k) {
    const std::size_t at = k * slice_bytes_;
    t.data = data_ + at;
    t.bytes = std::min(bytes_ - at, slice_bytes_);
    t.tag = (call.tag & ~kNumbers) | ((call.tag + k) & kNumbers);
    t.id = static_cast<std::uint64_t>(id) << 32 | k;
    core_.links[link]->post({&t, 1});
  }
}

void MessageTask::complete(const Completion& transfer) {
  if (transfer.code != Code::kOk) {
    failed_ = transfer.code;
    return;
  }
  --left_;
  if (slices_over_) slices_over_->push_back(static_cast<std::uint32_t>(transfer.id));
}

Task::Step MessageTask::progress() {
  if (failed_ != Code::kOk) [[unlikely]]
    return Step::kFailed;
  if (posted_ < ready_) post();
  return left_ == 0 ? Step::kDone : Step::kGoOn;
}

bool MessageTask::survey(Recorder::Stalled& how_far) const {
  PeerProgress p;
  p.peer = peer_;
  p.link = core_.link_of(core_.job->rank(), peer_);
  (sends_ ? p.sends_posted : p.recvs_posted) = std::max(posted_, 1u);
  (sends_ ? p.sends_done : p.recvs_done) = slices_ - left_;
  how_far.peers.push_back(p);
  return true;
}

Status MessageTask::failure() const {
  core_.mutex.assert_held();
  const auto link = static_cast<std::size_t>(core_.link_of(core_.job->rank(), peer_));
  const Status why = core_.links[link]->cause(peer_);
  return {failed_, why.ok() ? fmt::format("rank {}", peer_) : why.message(), culprit(why, peer_)};
}

Status MessageTask::mismatch() const {
  return failed_ == Code::kMismatch ? disputed_message(core_, call.head, peer_) : Status();
}

std::span<const Run::Traffic> MessageTask::traffic() {
  traffic_ = {peer_, core_.link_of(core_.job->rank(), peer_)};
  (sends_ ? traffic_.bytes_sent : traffic_.bytes_received) = bytes_;
  (sends_ ? traffic_.messages_sent : traffic_.messages_received) = 1;
  return {&traffic_, 1};
}

}  // namespace weft
