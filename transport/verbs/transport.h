// The class behind make_verbs_transport: the state of one rail. It combines its parts, each a class
// (request_chain.h, slots.h, buffers.h, ring.h, messages/matching.h, connections/), and does not
// depend on when connections are made, how requests are posted, or where slots are.
#pragma once

#include <cstddef>
#include <cstdint>
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
#include "transport/verbs/buffers.h"
#include "transport/verbs/connections/connections.h"
#include "transport/verbs/peer.h"
#include "transport/verbs/slots.h"

namespace weft {

class VerbsTransport final : public Transport,
                             private Recovery,
                             private DeviceMemory,
                             private VerbsQueuePairs {
 public:
  VerbsTransport(Job& job, const Topology& topology, const Nic& rail, bool replaceable);
  ~VerbsTransport() override;

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
  using Link = VerbsConnection::Link;
  using Lane = VerbsLane;
  using Peer = VerbsPeer;

  // verbs.cc: set-up and tear-down
  VerbsGreeting set_up(const Nic& rail, int nrails);
  void release_all() noexcept;

  // reconnect.cc: the queue pairs of connections (VerbsQueuePairs), and Recovery
  VerbsConnection* connection(Rank rank) noexcept override { return peer_of(rank); }
  void add_places(int places, bool own_queue) override { slots_->add(places, own_queue); }
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
  void disconnect(Rank peer) noexcept override;
  std::string reopen(Rank peer) noexcept override;
  bool connect(Rank peer, std::string_view theirs) noexcept override;
  void resume(Peer& peer, std::string_view counts);
  void send_again(Peer& peer);

  // datapath.cc: messages in slots, and completions
  Peer* peer_of(Rank rank) noexcept { return rank == rank_ ? nullptr : find_peer(peers_, rank); }
  void start_send(const Transfer& t, Peer& peer);
  void start_recv(const Transfer& t, Peer& peer);
  void push(Lane& lane, const VerbsQueued& message);
  void fill(Lane& lane, const VerbsQueued& message);
  void send_slot(Lane& lane, std::size_t slot, std::size_t bytes);
  ibv_send_wr& chain(Lane& lane, const void* data, std::size_t bytes, std::uint32_t lkey);
  void flush() noexcept;
  void pump(Lane& lane);
  void give_receives_back(Lane& lane);
  void check_posted(Lane& lane, int error);
  void ring_doorbell(Lane& lane) { check_posted(lane, lane.requests.ring()); }
  std::size_t reap() noexcept override;
  inline void on_completion(const ibv_wc& completion);
  inline void on_sent(Lane& lane, std::uint64_t request);
  inline void on_arrival(Lane& lane, std::uint32_t immediate);
  void on_message(Lane& lane, const std::byte* slot);
  bool alike(Peer& peer, const Transfer& t, std::size_t bytes, const Head* head);
  void finish(Peer& peer, const Receive& receive, const std::byte* from);

  // waiting.cc: unexpected messages and long ones
  void keep(Peer& peer, const VerbsMessageFront& front, const Head& head, const std::byte* body);
  void ease(Peer& peer);
  std::uint32_t begin_long_send(const Transfer& t, Peer& peer);
  void on_rts(Peer& peer, const Receive& receive, std::uint32_t number);
  void send_cts(Peer& peer, const Receive& receive, std::uint32_t number);
  VerbsBuffers::Reach reach(Peer& peer, const Transfer& t, VerbsBuffers::Use use);
  void on_cts(Peer& peer, const VerbsMessageFront& front, const VerbsCts& cts);
  void begin_writing(Peer& peer, std::uint32_t number, VerbsLongSend& send, const VerbsCts& cts);
  void write_on(Lane& lane);
  void on_window(Peer& peer, std::uint32_t index);
  void free_window(Peer& peer, VerbsWindow& window);
  void withdraw(Peer& peer, std::uint32_t number, std::uint64_t tag);
  void on_withdrawn(Peer& peer, const VerbsMessageFront& front);
  bool reaches_gpu(void* p, std::size_t n) noexcept override { return buffers_->reaches_gpu(p, n); }
  void end_buffer(std::uint64_t serial) noexcept override { buffers_->end_buffer(serial); }

  // failure.cc: failed peers, canceled transfers, events of the device
  void fail(VerbsConnection& c, Code code, const std::string& why) noexcept override;
  void refuse(Peer& peer, const char* what) noexcept;
  void end_all(Peer& peer, Code code, bool told) noexcept;
  bool half_done(Peer& peer, auto given_up);
  bool take_back(Peer& peer, std::uint32_t number);
  void hear_device() noexcept;

  Rank rank_;
  bool replaceable_;
  std::string where_;  // "device mlx5_0 port 1"
  VerbsSettings settings_;
  std::size_t most_in_slot_ = 0;  // bytes of the longest eager message
  int inline_bytes_ = 0;
  // The order of destruction matters: the device is destroyed last.
  std::unique_ptr<VerbsDevice> device_;
  std::unique_ptr<VerbsSlots> slots_;
  std::unique_ptr<VerbsBuffers> buffers_;
  VerbsLanes lanes_{settings_};
  std::unique_ptr<VerbsConnections> connections_;
  std::size_t unexpected_ = 0;  // messages of all peers
  std::vector<Peer> peers_;     // by world rank; never grows after set-up
  std::map<std::uint32_t, VerbsLongSend> long_sends_;
  std::uint32_t next_number_ = 0;
  Completions done_;
  bool armed_ = false;
  int quiet_polls_ = 0;
};

}  // namespace weft
