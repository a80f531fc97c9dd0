// Ends connections with failed peers, cancels transfers and reads the device's asynchronous events.
#include <fmt/format.h>

#include <algorithm>

#include "topo/base/log.h"
#include "transport/verbs/device.h"
#include "transport/verbs/transport.h"

namespace weft {

// Ends the connection with a peer and every transfer with it. Destroys the queue pairs, so that no
// device accesses the transfers' memory any more.
void VerbsTransport::fail(VerbsConnection& c, Code code, const std::string& why) noexcept {
  Peer& peer = static_cast<Peer&>(c);
  if (!peer.failure.ok()) return;
  peer.failure = Status(code, fmt::format("{}: {}: {}", peer.where, where_, why), peer.rank);
  log().debug("verbs: rank {}: {}", rank_, peer.failure.to_string());
  end_all(peer, code, true);
}

// Fails a peer whose messages are impossible for the same build, and ignores the rest of them.
void VerbsTransport::refuse(Peer& peer, const char* what) noexcept {
  fail(peer, Code::kTransport, fmt::format("{}: do all ranks run the same build of weft?", what));
}

// `told`: the transfers complete with the code; otherwise they are dropped.
void VerbsTransport::end_all(Peer& peer, Code code, bool told) noexcept {
  const auto end = [&](std::uint64_t id) {
    if (told) done_.add(id, code);
  };
  for (Lane* lane : peer.lanes) {
    for (const VerbsQueued& message : lane->queue)
      if (message.front.what == VerbsMessage::kData) end(message.id);
    lane->queue.clear();
    lane->end();
  }
  connections_->closed(peer);
  peer.slowed = false;
  std::erase_if(long_sends_, [&](const auto& item) {
    if (item.second.peer != peer.rank) return false;
    end(item.second.transfer.id);
    return true;
  });
  peer.matching.end_receives(end);
  for (const VerbsWaiting& waiting : peer.waiting) end(waiting.receive.transfer.id);
  peer.waiting.clear();
  for (VerbsWindow& window : peer.windows) {
    if (!window.used) continue;
    end(window.receive.transfer.id);
    window = {};
  }
  peer.windows_used = 0;
}

// Ends the canceled transfers that no device works on. Returns whether half sent or half received
// ones are left.
bool VerbsTransport::half_done(Peer& peer, auto given_up) {
  peer.matching.cancel([&](const Transfer& t) { return given_up(t.id); });
  std::erase_if(peer.waiting,
                [&](const VerbsWaiting& w) { return given_up(w.receive.transfer.id); });
  for (Lane* lane : peer.lanes)
    std::erase_if(lane->queue, [&](const VerbsQueued& message) {
      return message.front.what == VerbsMessage::kData && given_up(message.id);
    });
  bool half_done = false;
  for (VerbsWindow& window : peer.windows) {
    if (!window.used || !given_up(window.receive.transfer.id)) continue;
    // Withdraws a CTS that has not been sent yet.
    const auto index = static_cast<std::uint32_t>(&window - peer.windows.data());
    auto& queue = lanes_.of(peer, window.receive.transfer.tag).queue;
    const auto gone = std::erase_if(queue, [&](const VerbsQueued& message) {
      return message.front.what == VerbsMessage::kCts && message.cts.window == index;
    });
    if (gone)
      free_window(peer, window);
    else
      half_done = true;
  }
  for (auto it = long_sends_.begin(); it != long_sends_.end();) {
    const auto send = it++;
    if (send->second.peer != peer.rank || !given_up(send->second.transfer.id)) continue;
    if (take_back(peer, send->first))
      long_sends_.erase(send);
    else
      half_done = true;
  }
  return half_done;
}

// Only destroying the queue pairs stops the devices from accessing half-done transfers. Other
// transfers continue over new queue pairs, or over another rail that replaces this one.
void VerbsTransport::cancel(std::uint32_t id_high) noexcept {
  connections_->read_letters();
  reap();  // completed transfers need no interruption
  const auto given_up = [=](std::uint64_t id) { return id >> 32 == id_high; };
  for (Peer& peer : peers_) {
    if (peer.rank == rank_ || !peer.failure.ok() || !half_done(peer, given_up)) continue;
    if (replaceable_) {
      fail(peer, Code::kAborted, "the connection was closed to cancel an unfinished operation");
      continue;
    }
    connections_->break_off(peer);
    std::erase_if(long_sends_, [&](const auto& item) {
      const auto& [number, send] = item;
      if (send.peer != peer.rank || !given_up(send.transfer.id)) return false;
      withdraw(peer, number, send.transfer.tag);
      return true;
    });
    for (VerbsWindow& window : peer.windows)
      if (window.used && given_up(window.receive.transfer.id)) free_window(peer, window);
    if (peer.failure.ok()) connections_->reconnect(peer);
  }
  done_.forget(id_high);
  flush();
}

// Takes a long message back if the device has none of it yet; false: it has.
bool VerbsTransport::take_back(Peer& peer, std::uint32_t number) {
  const VerbsLongSend& send = long_sends_.at(number);
  if (send.state == VerbsLongSend::State::kWriting) {
    const auto unstarted = [&](const VerbsWriting& w) {
      return w.number == number && w.at == w.begin;
    };
    int parts = 0;
    for (const Lane* lane : peer.lanes)
      parts += static_cast<int>(std::ranges::count_if(lane->writing, unstarted));
    if (parts < send.parts) return false;
    for (Lane* lane : peer.lanes) std::erase_if(lane->writing, unstarted);
    withdraw(peer, number, send.transfer.tag);
    return true;
  }
  auto& queue = lanes_.of(peer, send.transfer.tag).queue;
  const auto unsaid = std::erase_if(queue, [&](const VerbsQueued& message) {
    return message.front.what == VerbsMessage::kRts && message.front.number == number;
  });
  if (unsaid == 0) withdraw(peer, number, send.transfer.tag);
  return true;
}

// Handles the device's asynchronous events, from which a rank that only receives learns of
// failures.
void VerbsTransport::hear_device() noexcept {
  quiet_polls_ = 0;
  for (VerbsReport report; device_->next_report(report);) {
    const VerbsScope scope = scope_of(report.type);
    const std::string why = verbs_cause(report.type);
    log().debug("verbs: rank {}: {} reports {}", rank_, where_, ibv_event_type_str(report.type));
    // New connections use the port's new addresses.
    if (changes_address(report.type)) {
      try {
        device_->refresh();
      } catch (const std::exception& e) {
        log().debug("verbs: rank {}: {}: {}", rank_, where_, e.what());
      }
    }
    // A port that is active again needs no action. One that is down may return before the retries
    // are exhausted: unless another rail can replace it, wait for that.
    if (scope == VerbsScope::kNobody) continue;
    if (scope == VerbsScope::kPort &&
        (report.port != device_->port_number() || !replaceable_ || device_->port_active()))
      continue;
    for (Peer& peer : peers_) {
      const bool concerned =
          scope != VerbsScope::kQueuePair ||
          std::any_of(peer.lanes.begin(), peer.lanes.end(), [&](const Lane* lane) {
            return lane->qp && lane->qp->handle() == report.pair;
          });
      if (peer.rank != rank_ && concerned) fail(peer, Code::kTransport, why);
    }
  }
}

}  // namespace weft
