// Messages between GPUs of a host: the receiver reads them in the sender's device memory.
#include <utility>

#include "coll/device_messages.h"
#include "topo/log.h"

namespace weft {

// Copies what is sent to where the receiver may read it, if there is room, and it is worth it.
void DeviceMessages::offer(Leg& leg) {
  if (leg.gpu < 0 || not_reached_.contains(leg.message.peer)) return;
  leg.offered = DeviceRoom(device_, leg.gpu, leg.bytes());
  if (leg.offered)
    copy(leg, 0, 0, leg.offered.get(), static_cast<const std::byte*>(leg.message.data));
}

void DeviceMessages::look_at_notes(Leg& leg) {
  Operation* const op = leg.op;
  MessageNotes& notes = *op->notes;
  if (!op->under_way && (!leg.offered || leg.ready > 0)) {
    if (leg.offered) notes.note = {.readable = 1, .at = leg.offered.address()};
    core_.post_note(op);
  }
  if (std::exchange(notes.told, false)) leg.told = leg.gpu >= 0 && !leg.message.sends;
  if (std::exchange(notes.answered, false) && leg.offered) {
    leg.heard = notes.answer;
    if (leg.heard == MessageAnswer::kTaken) core_.nothing_is_sent(op);
  }
  if (leg.answer != MessageAnswer::kNone) {
    core_.post_answer(op, leg.answer);
    if (std::exchange(leg.answer, {}) == MessageAnswer::kTaken) core_.nothing_is_sent(op);
  }
}

bool DeviceMessages::hear(Leg& leg) {
  if (std::exchange(leg.told, false)) {
    if (leg.op->notes->note.readable) read(leg);
    if (leg.reads) return true;
    leg.room = Pinned(device_, leg.bytes());
    leg.ready = leg.slices;
    return true;
  }
  const MessageAnswer heard = std::exchange(leg.heard, MessageAnswer::kNone);
  if (heard != MessageAnswer::kSendIt && heard != MessageAnswer::kNotReached) return false;
  if (heard == MessageAnswer::kNotReached) not_reached_.insert(leg.message.peer);
  leg.room = Pinned(device_, leg.bytes());
  leg.ready = 0;
  copy(leg, 0, 0, leg.room.get(), leg.offered.get());
  return true;
}

void DeviceMessages::read(Leg& leg) {
  const DeviceAddress& at = leg.op->notes->note.at;
  const Rank me = group_.ranks[static_cast<std::size_t>(group_.me)];
  const Rank peer = group_.ranks[static_cast<std::size_t>(leg.message.peer)];
  const std::byte* from = nullptr;
  try {
    from = static_cast<const std::byte*>(device_peers().acquire(device_, at, leg.gpu));
  } catch (const Error& e) {
    log().info("weft: messages of rank {} to rank {} pass host memory: {}", peer, me, e.what());
    leg.answer = MessageAnswer::kNotReached;
    return;
  }
  leg.reads = at;
  if (read_from_.insert(leg.message.peer).second)
    log().info("weft: rank {} reads messages of rank {} in device memory", me, peer);
  copy(leg, 0, 1, static_cast<std::byte*>(leg.message.data), from);
}

void DeviceMessages::end_read(Leg& leg) {
  if (!leg.reads || !leg.copies.empty()) return;
  device_peers().release(*std::exchange(leg.reads, {}), leg.gpu);
  leg.answer = MessageAnswer::kTaken;
}

}  // namespace weft
