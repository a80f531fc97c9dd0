// Messages between GPUs that pass no host memory.
#include <fmt/format.h>

#include <utility>

#include "coll/device_gpudirect.h"
#include "coll/device_messages.h"
#include "topo/log.h"

namespace weft {

bool DeviceMessages::between_hosts(const Leg& leg) const {
  const Rank peer = group_.ranks[static_cast<std::size_t>(leg.message.peer)];
  return !core_.shm_peer[static_cast<std::size_t>(peer)];
}

// One line for each peer, and one where it cannot be.
void DeviceMessages::say(const Leg& leg, const std::string& why_not) {
  const Rank me = group_.ranks[static_cast<std::size_t>(group_.me)];
  const Rank peer = group_.ranks[static_cast<std::size_t>(leg.message.peer)];
  const auto [from, to] = leg.message.sends ? std::pair{me, peer} : std::pair{peer, me};
  if (!why_not.empty())
    log().info("weft: messages of rank {} to rank {} pass host memory: {}", from, to, why_not);
  else if (direct_.insert(leg.message.peer).second)
    log().info("weft: rank {} {} messages of rank {} in device memory", to,
               between_hosts(leg) ? "receives" : "reads", from);
}

// ---- the sender ----------------------------------------------------------------------------

// Copies what is sent to where the receiver, or a card, may read it, if there is room.
void DeviceMessages::offer(Leg& leg) {
  if (leg.gpu < 0 || not_reached_.contains(leg.message.peer)) return;
  if (between_hosts(leg) && leg.bytes() < gpudirect_least_bytes()) return;
  leg.shared = DeviceRoom(device_, leg.gpu, leg.bytes());
  if (!leg.shared) return;
  if (const std::string why = between_hosts(leg) ? why_no_cards(leg) : ""; !why.empty()) {
    say(leg, why);
    not_reached_.insert(leg.message.peer);
    leg.shared.give_back();
    return;
  }
  for (std::uint32_t k = 0; k < leg.slices; ++k)
    copy(leg, k, 0, leg.shared.get(), static_cast<const std::byte*>(leg.message.data));
}

void DeviceMessages::look_at_notes(Leg& leg) {
  Operation* const op = leg.op;
  MessageNotes& notes = *op->notes;
  const bool cards = between_hosts(leg);
  if (!op->under_way && (!leg.shared || cards || leg.ready == leg.slices)) {
    if (leg.shared)
      notes.note = {.offer = cards ? MessageNote::kByCards : MessageNote::kReadable,
                    .at = leg.shared.address()};
    core_.post_note(op);
  }
  if (std::exchange(notes.told, false)) leg.told = leg.gpu >= 0 && !leg.message.sends;
  if (std::exchange(notes.answered, false) && leg.message.sends) {
    leg.heard = notes.answer;
    if (leg.heard == MessageAnswer::kTaken) core_.nothing_is_sent(op);
    leg.by_cards = leg.heard == MessageAnswer::kByCards;
  }
  if (leg.answer != MessageAnswer::kNone) {
    core_.post_answer(op, leg.answer);
    if (std::exchange(leg.answer, {}) == MessageAnswer::kTaken) core_.nothing_is_sent(op);
  }
}

// ---- both ----------------------------------------------------------------------------------

bool DeviceMessages::hear(Leg& leg) {
  if (std::exchange(leg.told, false)) {
    const std::uint32_t offer = leg.op->notes->note.offer;
    if (offer == MessageNote::kReadable) read(leg);
    if (offer == MessageNote::kByCards) take_by_cards(leg);
    if (leg.reads || leg.by_cards) return true;
    leg.room = Pinned(device_, leg.bytes());
    leg.ready = leg.slices;
    return true;
  }
  if (leg.heard != MessageAnswer::kSendIt && leg.heard != MessageAnswer::kNotReached) return false;
  if (!leg.copies.empty()) return false;  // to `shared`
  if (std::exchange(leg.heard, {}) == MessageAnswer::kNotReached)
    not_reached_.insert(leg.message.peer);
  leg.room = Pinned(device_, leg.bytes());
  leg.ready = 0;
  for (std::uint32_t k = 0; k < leg.slices; ++k) copy(leg, k, 0, leg.room.get(), leg.shared.get());
  return true;
}

// ---- the receiver --------------------------------------------------------------------------

void DeviceMessages::read(Leg& leg) {
  const DeviceAddress& at = leg.op->notes->note.at;
  const std::byte* from = nullptr;
  try {
    from = static_cast<const std::byte*>(device_peers().acquire(device_, at, leg.gpu));
  } catch (const Error& e) {
    say(leg, e.what());
    leg.answer = MessageAnswer::kNotReached;
    return;
  }
  leg.reads = at;
  say(leg, "");
  copy(leg, 0, 1, static_cast<std::byte*>(leg.message.data), from);
}

void DeviceMessages::end_read(Leg& leg) {
  if (!leg.reads || !leg.copies.empty()) return;
  device_peers().release(*std::exchange(leg.reads, {}), leg.gpu);
  leg.answer = MessageAnswer::kTaken;
}

void DeviceMessages::take_by_cards(Leg& leg) {
  leg.answer = MessageAnswer::kSendIt;
  if (leg.bytes() < gpudirect_least_bytes()) return;
  leg.shared = DeviceRoom(device_, leg.gpu, leg.bytes());
  if (!leg.shared) return;
  if (const std::string why = why_no_cards(leg); !why.empty()) {
    say(leg, why);
    leg.shared.give_back();
    leg.answer = MessageAnswer::kNotReached;
    return;
  }
  say(leg, "");
  leg.answer = MessageAnswer::kByCards;
  leg.by_cards = true;
  leg.ready = leg.slices;
}

// ---- cards ---------------------------------------------------------------------------------

// The card of this rank on the way to the peer.
std::string DeviceMessages::why_no_cards(const Leg& leg) {
  if (!leg.message.sends && !device_.takes_remote_writes(leg.gpu))
    return "the driver cannot say when a card's writes are there to be read";
  const std::lock_guard lock(core_.mutex);
  if (core_.broken) return core_.failure.to_string();
  const int link =
      core_.link_of(core_.job->rank(), group_.ranks[static_cast<std::size_t>(leg.message.peer)]);
  Transport& rail = *core_.links[static_cast<std::size_t>(link)];
  if (rail.reaches_device(leg.shared.get(), leg.shared.size())) return {};
  return fmt::format("{}{} does not reach {}", rail.caps().name, core_.rail_name(link),
                     device_.describe(leg.gpu));
}

}  // namespace weft
