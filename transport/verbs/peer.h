// The state of a peer in the verbs transport: lanes (queue pairs with their slots), messages under
// way and the connection (connections/queue_pairs.h).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "transport/messages/matching.h"
#include "transport/transport.h"
#include "transport/verbs/connections/queue_pairs.h"
#include "transport/verbs/credits.h"
#include "transport/verbs/device.h"
#include "transport/verbs/gpu.h"
#include "transport/verbs/messages.h"
#include "transport/verbs/queue_pair.h"
#include "transport/verbs/registration_cache.h"
#include "transport/verbs/request_chain.h"
#include "transport/verbs/settings.h"

namespace weft {

using VerbsCache = RegistrationCache<VerbsMemory>;
struct VerbsPeer;

// A message that waits for a slot of the peer.
struct VerbsQueued {
  VerbsMessageFront front;
  const Head* head = nullptr;
  const void* data = nullptr;  // kData
  VerbsCts cts;                // kCts
  std::uint64_t id = 0;        // kData: of the send, which completes when its bytes are in the slot
};
// The part of a long message, after its CTS, that is written over one queue pair.
struct VerbsWriting {
  std::uint32_t number = 0;  // of the long message
  VerbsCts cts;
  std::size_t begin = 0, at = 0, end = 0;  // bytes of the message; [begin, at) are chained
};
// One queue pair, and the slots at both of its ends. It is made for the first message to its peer;
// the queue pair and the slots exist only while the peer is connected.
struct VerbsLane {
  VerbsPeer* peer = nullptr;
  std::unique_ptr<VerbsQp> qp;  // null while there is no connection
  VerbsRequestChain requests;   // to `qp`
  VerbsSendCredits send_credits;
  VerbsRecvCredits recv_credits;
  std::uint32_t key = 0;            // of the staging
  std::byte* staging = nullptr;     // registered copy of each slot of the peer
  const std::byte* ring = nullptr;  // slots that the peer fills
  std::uint64_t remote_ring = 0;
  std::uint32_t remote_key = 0;
  std::deque<VerbsQueued> queue;
  std::deque<VerbsWriting> writing;
  std::vector<std::uint64_t> slot_request;  // 1 + the request that sent the slot last
  std::deque<std::pair<std::uint64_t, std::uint32_t>> writes;  // last request, long message
  int receives = 0;                                            // receive requests to repost
  bool touched = false;                                        // waits for a doorbell
  bool drained = false;  // arrivals before the queue pair was stopped have been read

  // index: among all lanes of the rank.
  VerbsLane(VerbsPeer& of, std::uint32_t index, const VerbsSettings& s)
      : peer(&of),
        requests(index, s.send_depth, std::max(1, std::min(s.send_depth / 4, s.slots / 2))),
        send_credits(s.slots),
        recv_credits(s.slots) {}
};

// A receive with an RTS that waits for a free window.
struct VerbsWaiting {
  Receive receive;
  std::uint32_t number = 0;  // of the long message
};
// The content of an unexpected message: data, or an RTS.
struct VerbsUnexpected {
  VerbsMessage what = VerbsMessage::kData;
  std::uint32_t number = 0;      // kRts
  std::vector<std::byte> bytes;  // kData
};
// Registered memory of a transfer: its own, or a bounce buffer if the device cannot access the
// GPU's.
struct VerbsReach {
  std::byte* data = nullptr;
  VerbsGpu::Stage stage;
  VerbsCache::Lease lease;
  explicit operator bool() const { return data != nullptr; }
  const VerbsMemory& memory() const { return lease.memory(); }
};
struct VerbsLongSend {
  Transfer transfer;
  Rank peer = kNoRank;
  enum class State : std::uint8_t { kRtsSent, kWriting } state = State::kRtsSent;
  int parts = 0, open = 0;  // of the message; unacknowledged parts
  VerbsReach reach;
};
struct VerbsWindow {
  bool used = false;
  Receive receive;
  std::uint32_t number = 0;
  VerbsReach reach;
  int parts = 0;  // that have arrived
};
struct VerbsPeer : VerbsConnection {
  std::vector<VerbsLane*> lanes;
  std::size_t next_lane = 0;  // for long messages
  Matching<VerbsUnexpected> matching;
  bool slowed = false;  // gets no credits, because it is far ahead of this rank's receives
  std::vector<VerbsWindow> windows;
  int windows_used = 0;
  std::deque<VerbsWaiting> waiting;
};

}  // namespace weft
