// The state of a peer in the verbs transport: lanes (queue pairs with their slots), messages under
// way and the connection (connections/queue_pairs.h).
#pragma once

#include <arpa/inet.h>
#include <infiniband/verbs.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "transport/messages/matching.h"
#include "transport/transport.h"
#include "transport/verbs/buffers.h"
#include "transport/verbs/connections/queue_pairs.h"
#include "transport/verbs/queue_pair.h"
#include "transport/verbs/request_chain.h"
#include "transport/verbs/ring.h"
#include "transport/verbs/settings.h"

namespace weft {

struct VerbsPeer;

// A message that waits for a slot of the peer.
struct VerbsQueued {
  VerbsMessageFront front;
  const Head* head = nullptr;
  const void* data = nullptr;  // kData
  VerbsCts cts{};              // kCts
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
  bool touched = false;                                        // see VerbsLanes::touch()
  bool drained = false;  // arrivals before the queue pair was stopped have been read

  // index: among all lanes of the rank.
  VerbsLane(VerbsPeer& of, std::uint32_t index, const VerbsSettings& s)
      : peer(&of),
        requests(index, s.send_depth, std::max(1, std::min(s.send_depth / 4, s.slots / 2))),
        send_credits(s.slots),
        recv_credits(s.slots) {}
  // Whether the next slot can be filled: the last send from its staging must be complete.
  bool ready() const {
    return qp && send_credits.available() && requests.room() &&
           slot_request[static_cast<std::size_t>(send_credits.next())] <= requests.done();
  }
  // Ends the queue pair; queued messages stay.
  void end() noexcept {
    if (qp) qp->stop();
    qp.reset();
    requests.end();
    writing.clear();
    writes.clear();
    receives = 0;
  }
  // Notifies the peer of an arrival, and of the messages that this rank has taken.
  void tell_arrival(ibv_send_wr& request, VerbsImmediate::Kind kind, std::uint32_t index) {
    request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    const VerbsImmediate what{kind, index, recv_credits.tell()};
    request.imm_data = htonl(what.pack());
  }
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
struct VerbsLongSend {
  Transfer transfer;
  Rank peer = kNoRank;
  enum class State : std::uint8_t { kRtsSent, kWriting } state = State::kRtsSent;
  int parts = 0, open = 0;  // of the message; unacknowledged parts
  VerbsBuffers::Reach reach;
};
struct VerbsWindow {
  bool used = false;
  Receive receive;
  std::uint32_t number = 0;
  VerbsBuffers::Reach reach;
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

  // Long messages are split over several queue pairs, in parts of at least kLeastPart bytes.
  int parts_of(std::size_t bytes) const {
    constexpr std::size_t kLeastPart = 64u << 10;
    return static_cast<int>(std::clamp<std::size_t>(bytes / kLeastPart, 1, lanes.size()));
  }
  VerbsCts cts_of(const VerbsWindow& window) const {
    return {.address = reinterpret_cast<std::uint64_t>(window.reach.data),
            .key = window.reach.memory().rkey(),
            .window = static_cast<std::uint32_t>(&window - windows.data())};
  }
};

// The lanes of all peers, and those with messages or requests to post.
class VerbsLanes final {
 public:
  explicit VerbsLanes(const VerbsSettings& settings) : settings_(settings) {}
  // All messages of one tag use the same lane of the peer, so that they stay in order.
  VerbsLane& of(VerbsPeer& peer, std::uint64_t tag) {
    make(peer);
    if (peer.lanes.size() == 1) return *peer.lanes[0];
    return *peer.lanes[((tag + 1) * 0x9e3779b97f4a7c15u >> 32) % peer.lanes.size()];
  }
  void make(VerbsPeer& peer) {
    if (!peer.lanes.empty()) return;
    for (int k = 0; k < settings_.qps; ++k) {
      const auto index = static_cast<std::uint32_t>(all.size());
      peer.lanes.push_back(&all.emplace_back(peer, index, settings_));
    }
    peer.windows.resize(static_cast<std::size_t>(settings_.windows));
  }
  // The lane needs a doorbell.
  void touch(VerbsLane& lane) {
    if (std::exchange(lane.touched, true)) return;
    touched.push_back(&lane);
  }

  std::deque<VerbsLane> all;  // grouped by peer, in order of first use
  std::vector<VerbsLane*> touched;

 private:
  const VerbsSettings& settings_;
};

}  // namespace weft
