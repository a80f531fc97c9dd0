#include "coll/message_notes.h"

#include <atomic>

#include "coll/core.h"

namespace weft {
namespace {

// Lower halves of the ids of their transfers, where others have the number of a slice.
constexpr std::uint32_t kNoteTransfer = 0xFFFFFFFE, kAnswerTransfer = 0xFFFFFFFF;
// Of the numbers of a pair: an answer to the message with the others.
constexpr std::uint64_t kAnswerMark = std::uint64_t{1} << (kMessageBit - 1);

// Ranks that are threads of one process find each other's rooms at the same addresses. Notes order
// what they do there; ThreadSanitizer does not see that where they pass memory that is mapped
// twice.
std::atomic<unsigned> noted_order{0};

}  // namespace

bool Core::has_notes(Rank peer, std::size_t bytes) const {
  const auto me = static_cast<std::size_t>(job->rank()), to = static_cast<std::size_t>(peer);
  if (bytes < kNotedBytes || options.integrity || me == to) return false;
  if (!has_device[me] || !has_device[to]) return false;
  return shm_peer[to] || links[static_cast<std::size_t>(link_of(job->rank(), peer))]->caps().cuda;
}

void Core::post_note(Operation* op) {
  set_out(op);
  MessageNotes& n = *op->notes;
  post_beside(op, op->sends, kNoteTransfer, &n.note, sizeof n.note);
  if (op->sends && n.note.offer != MessageNote::kNone)
    post_beside(op, false, kAnswerTransfer, &n.answer, sizeof n.answer);
}

void Core::post_answer(Operation* op, MessageAnswer answer) {
  op->notes->answer = answer;
  post_beside(op, true, kAnswerTransfer, &op->notes->answer, sizeof answer);
}

void Core::post_beside(Operation* op, bool send, std::uint32_t which, void* data,
                       std::size_t bytes) {
  Transfer t;
  t.kind = send ? Transfer::Kind::kSend : Transfer::Kind::kRecv;
  t.peer = op->group->ranks[static_cast<std::size_t>(op->root)];
  t.head = &op->call.head;
  t.data = static_cast<std::byte*>(data);
  t.bytes = bytes;
  t.tag = which == kAnswerTransfer ? op->call.tag | kAnswerMark : op->call.tag;
  t.id = static_cast<std::uint64_t>(op->id) << 32 | which;
  if (send) noted_order.fetch_add(1, std::memory_order_release);
  ++op->notes->under_way;
  const auto link = static_cast<std::size_t>(link_of(job->rank(), t.peer));
  use_link(link);
  links[link]->post({&t, 1});
}

bool Core::end_note(Operation* op, std::uint32_t which) {
  if (which < kNoteTransfer) return false;
  MessageNotes& n = *op->notes;
  (void)noted_order.load(std::memory_order_acquire);
  --n.under_way;
  (which == kNoteTransfer ? n.told : n.answered) = true;
  // Whoever receives in host memory wants it sent; in device memory: device_messages.h.
  const bool asked = which == kNoteTransfer && !op->sends && n.note.offer != MessageNote::kNone;
  if (asked && !op->slices_over) post_answer(op, MessageAnswer::kSendIt);
  return true;
}

void Core::nothing_is_sent(Operation* op) {
  op->slices_left = 0;
  receipts_owed = true;  // have it looked at
}

}  // namespace weft
