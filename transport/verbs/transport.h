// The class behind make_verbs_transport. verbs.cc sets up, connections.cc connects when a first
// message asks for it, datapath.cc runs queue pairs, slots and completions, matching.cc matches
// messages with receives and runs RTS and CTS, failure.cc cancels and ends connections, and
// reconnect.cc replaces them, and has the letters.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "topo/topology.h"
#include "transport/job/bootstrap.h"
#include "transport/messages/completions.h"
#include "transport/messages/matching.h"
#include "transport/offers.h"
#include "transport/verbs/credits.h"
#include "transport/verbs/gpu.h"
#include "transport/verbs/greeting.h"
#include "transport/verbs/messages.h"
#include "transport/verbs/queue_pair.h"
#include "transport/verbs/registration_cache.h"

namespace weft {

class VerbsTransport final : public Transport, private Recovery, private DeviceMemory {
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

  using Cache = RegistrationCache<VerbsMemory>;
  static constexpr int kChain = 16;  // work requests per doorbell, at most
  // Idle polls between two reads of the device's asynchronous events, each a system call.
  static constexpr int kQuietPolls = 1024;
  // Slots are registered for this many places at a time, when peers are first needed.
  static constexpr int kPlacesAtOnce = 8;

  // A message that waits for a slot of the peer.
  struct Queued {
    VerbsMessageFront front;
    const Head* head = nullptr;
    const void* data = nullptr;  // kData
    VerbsCts cts;                // kCts
    std::uint64_t id = 0;        // kData: of the send, which is over once its bytes are in the slot
  };
  // The part of a long message that has its CTS and is written over one queue pair.
  struct Writing {
    std::uint32_t number = 0;  // key in long_sends_
    VerbsCts cts;
    std::size_t begin = 0, at = 0, end = 0;  // bytes of the message; [begin, at) are handed over
  };
  // A wait ends after so many polls, or after a time where each poll takes long, as others have the
  // core.
  struct Patience {
    const int most_polls;
    const std::chrono::steady_clock::duration most_time;
    int polls = 0;
    std::chrono::steady_clock::time_point since{};
    void begin() { polls = 0; }
    bool over(std::chrono::steady_clock::time_point now) {
      if (polls++ == 0) since = now;
      return polls > most_polls || now - since > most_time;
    }
  };
  struct Peer;
  // How far the connection with a peer is (connections.cc).
  enum class Link : std::uint8_t {
    kClosed,   // there are no queue pairs
    kInvited,  // the queue pairs are made, and the peer has been told of them
    kMet,      // they are connected; whether the peer's are is not known
    kOpen,     // both ends are connected
    kClosing,  // this rank has asked the peer to close, and sends nothing
  };
  // One queue pair, and the slots at both of its ends. It lives from the first message to its peer
  // on; the queue pair and the slots, while the peer is connected.
  struct Lane {
    Peer* peer = nullptr;
    std::uint32_t index = 0;      // in lanes_
    std::uint32_t life = 0;       // generation of `qp`: rises when reconnecting replaces it
    std::unique_ptr<VerbsQp> qp;  // null while there is no connection
    VerbsSendCredits send_credits;
    VerbsRecvCredits recv_credits;
    std::uint32_t key = 0;            // of the staging
    std::byte* staging = nullptr;     // registered copy of each slot of the peer
    const std::byte* ring = nullptr;  // slots that the peer fills
    std::uint64_t remote_ring = 0;
    std::uint32_t remote_key = 0;
    std::deque<Queued> queue;
    std::deque<Writing> writing;
    // Work requests are numbered: [0, posted) are chained or posted, [0, done) are complete.
    std::uint64_t posted = 0, done = 0, signalled = 0;
    std::vector<std::uint64_t> slot_request;  // 1 + the request that sent the slot last
    std::deque<std::pair<std::uint64_t, std::uint32_t>> writes;  // last request, key in long_sends_
    std::array<ibv_send_wr, kChain> chain;
    std::array<ibv_sge, kChain> pieces;
    int chained = 0;
    std::uint64_t payload = 0;  // all requests from here on are empty: nobody waits for them
    bool signal = false;        // the end of the chain must be signalled
    int receives = 0;           // receive requests to repost
    bool touched = false;       // in touched_
    bool drained = false;       // what came before the queue pair was stopped has been looked at

    explicit Lane(int slots) : send_credits(slots), recv_credits(slots) {}
  };

  // The slots of some places: the staging of all of them, then the rings.
  struct Slots {
    int places = 0;
    VerbsCq* cq = nullptr;
    std::unique_ptr<std::byte, void (*)(void*)> arena{nullptr, nullptr};
    std::unique_ptr<VerbsMemory> memory;
  };

  // A receive that has its RTS and waits for a free window.
  struct Waiting {
    Receive receive;
    std::uint32_t number = 0;  // of the long message
  };
  // What is kept of a message that came before its receive: data, or an RTS.
  struct Early {
    VerbsMessage what = VerbsMessage::kData;
    std::uint32_t number = 0;      // kRts
    std::vector<std::byte> bytes;  // kData
  };
  using Matched = Matching<Early>;
  using Unexpected = Matched::Unexpected;
  // Registered memory of a transfer: the transfer's own, or a bounce buffer where the device does
  // not reach the GPU.
  struct Reach {
    std::byte* data = nullptr;
    VerbsGpu::Stage stage;
    Cache::Lease lease;
    explicit operator bool() const { return data != nullptr; }
    const VerbsMemory& memory() const { return lease.memory(); }
  };
  struct LongSend {
    Transfer transfer;
    Rank peer = kNoRank;
    enum class State : std::uint8_t { kRtsSent, kWriting } state = State::kRtsSent;
    int parts = 0, open = 0;  // of the message; those that are not acknowledged
    Reach reach;
  };
  struct Window {
    bool used = false;
    Receive receive;
    std::uint32_t number = 0;
    Reach reach;
    int parts = 0;  // that have arrived
  };
  struct Peer : PeerRecord {
    std::vector<Lane*> lanes;
    std::size_t next_lane = 0;  // for long messages
    Link link = Link::kClosed;
    int place = -1;            // of its slots; -1: none
    bool asks = false;         // in opening_
    std::uint64_t used = 0;    // rises with every message
    std::uint32_t mine = 0;    // this rank's attempt to connect, the last one
    std::uint32_t theirs = 0;  // the peer's attempt that this rank connected to last
    std::string invitation;    // of the peer, which waits for a place
    // Its queue pairs were ended half way: the next ones go on where those were (reconnect.cc).
    bool broken = false;
    std::uint32_t first_mine = 0, first_theirs = 0;  // attempts since which messages are counted
    std::chrono::steady_clock::time_point said{};    // the last letter to the peer
    int unheard = 0;                                 // letters to the peer since it sent one
    bool closes = false;              // the peer has agreed to close, after so many messages:
    std::vector<std::uint64_t> told;  // by lane
    Matched matching;
    bool slowed = false;  // it is far ahead of this rank's receives, and gets no credits
    std::vector<Window> windows;
    int windows_used = 0;
    std::deque<Waiting> waiting;
  };

  // verbs.cc
  VerbsGreeting set_up(const Nic& rail, int nranks, int nrails);
  void begin(Lane& lane);
  VerbsCq& add_queue(int places);
  void add_slots(int places, VerbsCq& cq);
  Slots& slots_of(const Peer& peer, int& place);
  void release_all() noexcept;

  // verbs/reconnect.cc
  // Returns the bytes that the peer needs to connect its queue pairs with this rank's.
  std::string invitation(const Peer& peer);
  // True if `theirs` has the length of an invitation.
  bool invites(std::string_view theirs) const;
  static VerbsInvitation front_of(std::string_view theirs);  // of an invitation
  // Connects the peer's queue pairs by the peer's invitation. Throws Error.
  void accept(Peer& peer, std::string_view theirs);
  void break_off(Peer& peer) noexcept;
  void resume(Peer& peer, std::string_view counts);
  void send_again(Peer& peer);

  // verbs/connections.cc
  void make_lanes(Peer& peer);
  void link(Peer& peer, Link is);
  bool has_queue(const Peer& peer) const;
  bool idle(const Peer& peer) const;
  bool quiesce(Peer& peer);
  bool all_taken(const Peer& peer) const;
  void want(Peer& peer);
  void connect_peers();
  void open_wanted();
  void make_room();
  void grow();
  void drain_queues();
  bool abandon_one();
  void leave_link(Peer& peer);
  bool take_place(Peer& peer);
  void free_place(Peer& peer) noexcept;
  void open(Peer& peer);
  void meet_invited(Peer& peer, std::string_view theirs);
  void opened(Peer& peer);
  bool awaits(const Peer& peer) const;
  void ask_to_close(Peer& peer, VerbsLetter how);
  void say_close(Peer& peer, VerbsLetter how);
  void finish_closing(Peer& peer);
  void on_close(Peer& peer, const VerbsLetterFront& front, std::string_view body);
  void give_up(Peer& peer, const std::exception& error, std::uint32_t their_number);

  // verbs/reconnect.cc: letters
  void hear_letters();
  void repeat_letters();
  void abandon(Peer& peer, std::uint32_t attempt);
  void say(Peer& peer, VerbsLetter what, std::uint32_t yours, std::string_view body = {});
  void on_letter(const Letter& letter);
  void on_invite(Peer& peer, const VerbsLetterFront& front, std::string_view body);
  void on_abandon(Peer& peer, std::uint32_t number);

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
  bool room(const Lane& lane) const;
  bool ready(const Lane& lane) const;
  void fill(Lane& lane, const Queued& message);
  void send_slot(Lane& lane, std::size_t slot, std::size_t bytes);
  void pump(Lane& lane);
  void write_on(Lane& lane);
  ibv_send_wr& chain(Lane& lane, const void* data, std::size_t bytes, std::uint32_t lkey);
  void tell_arrival(Lane& lane, ibv_send_wr& request, VerbsImmediate::Kind kind,
                    std::uint32_t index);
  void ring_doorbell(Lane& lane);
  void mark(Lane& lane, std::uint64_t upto);
  int parts_of(std::size_t bytes) const;
  void give_receives_back(Lane& lane);
  void flush() noexcept;
  std::size_t reap() noexcept;
  inline void on_completion(const ibv_wc& completion);
  inline void on_sent(Lane& lane, std::uint32_t request);
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
  void fail(Peer& peer, Code code, const std::string& why) noexcept;
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
  std::unique_ptr<Mailbox> mail_;
  VerbsShape shape_;
  std::size_t slot_bytes_ = 0;    // the same on all ranks
  std::size_t most_in_slot_ = 0;  // bytes of the longest eager message
  int inline_bytes_ = 0;
  std::uint64_t signal_every_ = 1;  // so many requests of a queue pair
  // The order of destruction matters: the device is destroyed last.
  std::unique_ptr<VerbsDevice> device_;
  std::deque<VerbsCq> queues_;  // the first one has room for shape_.places
  std::deque<Slots> slots_;
  VerbsGpu gpu_;
  std::unique_ptr<Cache> cache_;
  std::deque<Lane> lanes_;     // peer by peer, as they are first needed
  std::vector<Peer*> owners_;  // of the places; nullptr: free
  std::deque<Rank> opening_;   // peers that wait to be connected
  int closing_ = 0;            // peers whose link is kClosing
  int unsettled_ = 0;          // peers whose link is kInvited, kMet or kClosing
  int unsettled_polls_ = 0;
  // Until there will be more places, since one was free; and until one more peer is asked to close.
  Patience for_place_{16 << 10, std::chrono::milliseconds(200)};
  Patience for_answer_{2048, std::chrono::milliseconds(10)};
  std::uint64_t uses_ = 0;
  std::uint32_t attempts_ = 0;
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
