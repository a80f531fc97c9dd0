// The class behind make_verbs_transport. verbs.cc sets up, connections/ decides when to connect,
// reconnect.cc makes and replaces the queue pairs of connections, datapath.cc runs queue pairs,
// slots and completions, matching.cc matches messages with receives and runs RTS and CTS, and
// failure.cc cancels and ends connections.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "topo/topology.h"
#include "transport/job/bootstrap.h"
#include "transport/messages/completions.h"
#include "transport/offers.h"
#include "transport/verbs/connections/connections.h"
#include "transport/verbs/gpu.h"
#include "transport/verbs/greeting.h"
#include "transport/verbs/peer.h"

namespace weft {

class VerbsTransport final : public Transport,
                             private Recovery,
                             private DeviceMemory,
                             private VerbsQueuePairs {
 public:
  VerbsTransport(Job& job, const Topology& topology, const Nic& rail, bool replaceable);
  ~VerbsTransport() override;
  VerbsTransport(const VerbsTransport&) = delete;
  VerbsTransport& operator=(const VerbsTransport&) = delete;

  void post(std::span<const Transfer> transfers) noexcept override;
  std::size_t poll(std::span<Completion> out) noexcept override;
  void cancel(std::uint32_t id_high) noexcept override;
  void forget(std::uint64_t tag, std::uint64_t mask) noexcept override;
  Caps caps() const override;
  Status cause(Rank peer) const override { return cause_of(peers_, peer, "verbs"); }
  bool arm(std::vector<int>& fds) noexcept override;
  bool disputed(Rank peer, Head& theirs) const noexcept override {
    return disputed_with(peers_, peer, theirs);
  }
  Rank unexpected(Rank peer, std::uint64_t tag, std::uint64_t mask,
                  Head& theirs) noexcept override {
    return unexpected_ == 0 ? kNoRank : unexpected_of(peers_, peer, tag, mask, theirs);
  }
  Recovery* recovery() noexcept override { return this; }
  DeviceMemory* device_memory() noexcept override { return this; }

 private:
  void disconnect(Rank peer) noexcept override;
  std::string reopen(Rank peer) noexcept override;
  bool connect(Rank peer, std::string_view theirs) noexcept override;
  bool reaches_gpu(void* data, std::size_t bytes) noexcept override;
  void end_buffer(std::uint64_t serial) noexcept override { cache_->end_buffer(serial); }

  using Cache = VerbsCache;
  using Link = VerbsConnection::Link;
  using Queued = VerbsQueued;
  using Writing = VerbsWriting;
  using Lane = VerbsLane;
  using Waiting = VerbsWaiting;
  using Unexpected = Matching<VerbsUnexpected>::Unexpected;
  using Reach = VerbsReach;
  using LongSend = VerbsLongSend;
  using Window = VerbsWindow;
  using Peer = VerbsPeer;
  // Idle polls between two reads of the device's asynchronous events, each a system call.
  static constexpr int kQuietPolls = 1024;
  // The slots of some places: the staging of all of them, then the rings.
  struct Slots {
    int places = 0;
    VerbsCq* cq = nullptr;
    std::unique_ptr<std::byte, void (*)(void*)> arena{nullptr, nullptr};
    std::unique_ptr<VerbsMemory> memory;
  };

  // verbs.cc
  VerbsGreeting set_up(const Nic& rail, int nranks, int nrails);
  void begin(Lane& lane);
  void add_places(int places, bool own_queue) override;
  Slots& slots_of(const Peer& peer, int& place);
  void release_all() noexcept;

  // verbs/reconnect.cc, which also has Recovery
  VerbsConnection* connection(Rank rank) noexcept override { return peer_of(rank); }
  void make(VerbsConnection& c) override;
  std::string invitation(const VerbsConnection& c) override;
  bool invites(std::string_view theirs) const override;
  void join(VerbsConnection& c, std::string_view theirs) override;
  void opened(VerbsConnection& c, bool resumed) override;
  void end(VerbsConnection& c) noexcept override;
  void interrupt(VerbsConnection& c) noexcept override;
  bool has_messages(const VerbsConnection& c) const override;
  bool idle(const VerbsConnection& c) const override;
  bool quiesce(VerbsConnection& c) override;
  bool awaits(const VerbsConnection& c) const override;
  std::vector<std::uint64_t> sent(const VerbsConnection& c) const override;
  std::vector<std::uint64_t> taken(const VerbsConnection& c) const override;
  void drain() override;
  static Peer& peer_in(VerbsConnection& c) { return static_cast<Peer&>(c); }
  static const Peer& peer_in(const VerbsConnection& c) { return static_cast<const Peer&>(c); }
  void make_lanes(Peer& peer);
  void resume(Peer& peer, std::string_view counts);
  void send_again(Peer& peer);

  // verbs/datapath.cc
  Peer* peer_of(Rank rank) noexcept {
    if (rank < 0 || rank >= size_ || rank == rank_) return nullptr;
    return &peers_[static_cast<std::size_t>(rank)];
  }
  Lane& lane_of(Peer& peer, std::uint64_t tag) noexcept;
  void touch(Lane& lane) {
    if (lane.touched) return;
    lane.touched = true;
    touched_.push_back(&lane);
  }
  void push(Lane& lane, const Queued& message);
  bool ready(const Lane& lane) const;
  void fill(Lane& lane, const Queued& message);
  void send_slot(Lane& lane, std::size_t slot, std::size_t bytes);
  void pump(Lane& lane);
  void write_on(Lane& lane);
  ibv_send_wr& chain(Lane& lane, const void* data, std::size_t bytes, std::uint32_t lkey);
  void tell_arrival(Lane& lane, ibv_send_wr& request, VerbsImmediate::Kind kind,
                    std::uint32_t index);
  void check_posted(Lane& lane, int error);
  void ring_doorbell(Lane& lane) { check_posted(lane, lane.requests.ring()); }
  void mark(Lane& lane, std::uint64_t upto) { check_posted(lane, lane.requests.mark(upto)); }
  int parts_of(std::size_t bytes) const;
  void give_receives_back(Lane& lane);
  void flush() noexcept;
  std::size_t reap() noexcept override;
  inline void on_completion(const ibv_wc& completion);
  inline void on_sent(Lane& lane, std::uint64_t request);
  inline void on_arrival(Lane& lane, std::uint32_t immediate);
  void complete(std::uint64_t id, Code code) { done_.add(id, code); }

  // verbs/matching.cc
  void start_send(const Transfer& t, Peer& peer);
  void start_recv(const Transfer& t, Peer& peer);
  void on_message(Lane& lane, const std::byte* slot);
  void keep(Peer& peer, const VerbsMessageFront& front, const Head& head, const std::byte* body);
  bool alike(Peer& peer, const Transfer& t, std::size_t bytes, const Head* head);
  void on_rts(Peer& peer, const Receive& receive, std::uint32_t number);
  void send_cts(Peer& peer, const Receive& receive, std::uint32_t number);
  void on_cts(Peer& peer, const VerbsMessageFront& front, const VerbsCts& cts);
  void begin_writing(Peer& peer, std::uint32_t number, LongSend& send, const VerbsCts& cts);
  VerbsCts cts_of(const Peer& peer, const Window& window) const;
  void on_withdrawn(Peer& peer, const VerbsMessageFront& front);
  void on_window(Peer& peer, std::uint32_t index);
  void free_window(Peer& peer, Window& window);
  void withdraw(Peer& peer, std::uint32_t number, std::uint64_t tag);
  Reach reach(Peer& peer, const Transfer& t, Cache::Use use);
  void finish(Peer& peer, const Receive& receive, const std::byte* from);
  void ease(Peer& peer);

  // verbs/failure.cc
  void fail(VerbsConnection& c, Code code, const std::string& why) noexcept override;
  void refuse(Peer& peer, const char* what) noexcept;
  void end_all(Peer& peer, Code code, bool told) noexcept;
  void end_lane(Lane& lane) noexcept;
  template <class Which>
  bool half_done(Peer& peer, Which given_up);
  bool take_back(Peer& peer, std::uint32_t number);
  void hear_device() noexcept;
  void look_around() noexcept;

  Rank rank_;
  int size_;
  bool replaceable_;
  std::string where_;  // "device mlx5_0 port 1"
  VerbsSettings settings_;
  VerbsShape shape_;
  std::size_t slot_bytes_ = 0;    // the same on all ranks
  std::size_t most_in_slot_ = 0;  // bytes of the longest eager message
  int inline_bytes_ = 0;
  // The order of destruction matters: the device is destroyed last.
  std::unique_ptr<VerbsDevice> device_;
  std::deque<VerbsCq> queues_;  // the first one has room for shape_.places
  std::deque<Slots> slots_;
  VerbsGpu gpu_;
  std::unique_ptr<Cache> cache_;
  std::deque<Lane> lanes_;  // grouped by peer, in order of first use
  std::unique_ptr<VerbsConnections> connections_;
  std::size_t unexpected_ = 0;  // messages of all peers
  std::vector<Peer> peers_;     // by world rank; never grows after set-up
  std::map<std::uint32_t, LongSend> long_sends_;
  std::uint32_t next_number_ = 1;
  std::vector<Lane*> touched_;  // lanes with messages or requests to post
  Completions done_;
  bool armed_ = false;
  int quiet_polls_ = 0;
};

}  // namespace weft
