// The class behind make_tcp_transport(). tcp.cc contains set-up and tear-down, connect.cc
// connections; send.cc, receive.cc and (for the shortest messages) datagrams.cc are the datapath;
// cancel.cc cancels transfers and drops messages.
#pragma once

#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "topo/topology.h"
#include "transport/control/address.h"
#include "transport/control/hmac.h"
#include "transport/control/socket.h"
#include "transport/job/bootstrap.h"
#include "transport/messages/completions.h"
#include "transport/messages/matching.h"
#include "transport/messages/unexpected_limit.h"
#include "transport/offers.h"
#include "transport/tcp/keys.h"
#include "transport/tcp/wire.h"

namespace weft {

class TcpTransport final : public Transport, private Recovery {
 public:
  TcpTransport(Job& job, const Topology& topology, const Nic& rail);
  ~TcpTransport() override;
  TcpTransport(const TcpTransport&) = delete;
  TcpTransport& operator=(const TcpTransport&) = delete;

  void post(std::span<const Transfer> transfers) noexcept override;
  std::size_t poll(std::span<Completion> out) noexcept override;
  void cancel(std::uint32_t id_high) noexcept override;
  void forget(std::uint64_t tag, std::uint64_t mask) noexcept override;
  Caps caps() const override;
  std::optional<std::uint64_t> moved_bytes() const noexcept override;
  Status cause(Rank peer) const override { return cause_of(peers_, peer, "tcp"); }
  bool arm(std::vector<int>& fds) noexcept override;
  void before_pause() noexcept override;
  bool disputed(Rank peer, Head& theirs) const noexcept override {
    return disputed_with(peers_, peer, theirs);
  }
  Rank unexpected(Rank peer, std::uint64_t tag, std::uint64_t mask,
                  Head& theirs) noexcept override {
    return unexpected_ == 0 ? kNoRank : unexpected_of(peers_, peer, tag, mask, theirs);
  }
  Recovery* recovery() noexcept override { return this; }

 private:
  void disconnect(Rank peer) noexcept override;
  std::string reopen(Rank peer) noexcept override;
  bool connect(Rank peer, std::string_view theirs) noexcept override;

  // A message, a piece of a message, or a frame without bytes, queued for the socket.
  struct Out {
    static constexpr std::size_t kCopied = 256;  // most bytes that are copied behind the frame
    // true: sending this entry completes the caller's transfer `id`
    bool tell = false;
    std::uint64_t id = 0;
    std::uint64_t tag = 0;
    std::size_t bytes = 0;             // size of the message
    std::size_t next = 0;              // offset of the first byte not yet in a piece
    const std::byte* data = nullptr;   // the message
    const std::byte* piece = nullptr;  // the bytes behind `front`
    std::size_t piece_bytes = 0, front_bytes = 0;
    std::size_t sent = 0;  // bytes sent of front and piece together
    std::byte front[tcp::kMostFront + kCopied];
    std::vector<std::byte> own;  // the rest of a cancelled piece, or the message of a kCopy
  };
  // A FIFO queue that reuses its memory.
  class Queue {
   public:
    bool empty() const { return first_ == size_; }
    std::size_t size() const { return size_ - first_; }
    Out& operator[](std::size_t i) { return all_[first_ + i]; }
    Out& add() {
      if (first_ > kLoose && first_ > size_ / 2) erase_front();
      if (size_ == all_.size()) all_.emplace_back();
      Out& out = all_[size_++];
      out.tell = false;
      out.data = out.piece = nullptr;
      out.id = out.tag = 0;
      out.bytes = out.next = out.piece_bytes = out.front_bytes = out.sent = 0;
      return out;
    }
    void pop() {
      all_[first_++].own.clear();
      if (empty()) first_ = size_ = 0;
    }
    void clear() {
      all_.clear();
      first_ = size_ = 0;
    }
    void erase(std::size_t i) {
      all_.erase(all_.begin() + static_cast<std::ptrdiff_t>(first_ + i));
      --size_;
    }

   private:
    static constexpr std::size_t kLoose = 64;
    void erase_front() {
      all_.erase(all_.begin(), all_.begin() + static_cast<std::ptrdiff_t>(first_));
      size_ -= first_;
      first_ = 0;
    }
    std::vector<Out> all_;
    std::size_t first_ = 0, size_ = 0;
  };
  // A peer's posted receive (kReady) whose message has not been posted on this rank.
  struct Ready {
    std::uint64_t tag;
    std::size_t bytes;
    bool headed;
    Head head;
  };
  // An unexpected message.
  struct Early {
    enum class Is : std::uint8_t {
      kAnnounced,  // only its kAnnounce has arrived
      kComing,     // some of its bytes have arrived
      kHere,
    } is = Is::kAnnounced;
    std::vector<std::byte> data;
  };
  using Matched = Matching<Early>;
  using Unexpected = Matched::Unexpected;
  // A sent datagram that is not acknowledged.
  struct Kept {
    std::uint32_t number = 0;
    bool old = false;
    std::size_t bytes = 0;  // size of the message; 0: the entry is free
    std::byte data[sizeof(tcp::Datagram) + tcp::kMostCopy];
  };
  // State of the datagrams exchanged with a peer.
  struct ShortOnes {
    static constexpr std::size_t kMostKept = 8;
    Address to{};             // length 0: the peer does not receive datagrams
    Fd out;                   // connected to `to`, which saves a route lookup per datagram
    bool pass = false;        // true: datagrams arrive, since the peer has answered a probe
    bool asked = false;       // a probe is outstanding
    int asks = 0;             // unanswered probes
    std::uint32_t quiet = 0;  // short messages until the next probe
    int losses = 0;
    tcp::Key key_out{}, key_in{};  // keys of the datagrams to and from the peer
    std::uint64_t sequence = 0;    // number of the last datagram to the peer
    tcp::Window came;
    std::uint32_t sent = 0;  // number of the last datagram with a message
    int open = 0;            // entries of `kept` in use
    std::vector<Kept> kept;  // sent datagrams that are not acknowledged, by number
    tcp::Heard heard;
    int unacknowledged = 0;  // received datagrams not yet acknowledged
    bool told = false;       // this rank has sent an acknowledgment since the last check
    void forget_kept() {
      pass = asked = false;
      unacknowledged = open = 0;
      for (Kept& k : kept) k.bytes = 0;
    }
  };
  enum class State : std::uint8_t {
    kNone,
    kConnecting,  // the kernel is connecting
    kGreeting,    // the hello is sent; the lower rank may send frames already
    kUp,
    kCrossed,  // the peer's own connection will replace this rank's
  };
  struct Peer : PeerRecord {
    State state = State::kNone;
    bool full = false;          // the socket was full; epoll reports room
    bool slowed = false;        // the peer has too many unexpected messages: its socket is not read
    std::uint32_t watched = 0;  // events that epoll watches
    int unwatched = 0;          // the errno of a failed epoll_ctl
    Fd fd;
    std::string address;  // "10.0.0.1"
    std::uint16_t port = 0;
    tcp::Nonce mine{}, theirs{};  // nonces of this rank's and the peer's contact
    bool open = true;             // the peer may connect
    tcp::Answer answer;           // the part of the Answer that has arrived
    std::size_t answer_have = 0;
    Queue out;
    std::vector<Transfer> sends;  // long sends waiting for kReady
    std::vector<Ready> ready;
    Matched matching;
    // The frame being received: a front, then `left` bytes for `into` (nullptr: discarded).
    tcp::Front front;
    std::size_t left = 0;
    std::byte* into = nullptr;
    std::uint64_t receiving = 0;  // tag of the posted receive that the bytes belong to
    bool to_receive = false;      // the bytes belong to a posted receive
    Unexpected* to_unexpected = nullptr;
    ShortOnes short_ones;
    bool to_copy = false;  // the bytes are the message of a kCopy
    std::uint32_t copy_number = 0;
    std::vector<std::byte> copy;
  };
  struct Stranger {  // a connection whose Hello has not arrived
    Fd fd;
    std::size_t have = 0;
    tcp::Hello hello;
  };

  // Defined in tcp.cc:
  void listen(const Nic& rail);
  void open_datagrams();
  std::string contact(const tcp::Nonce& nonce) const;
  // Returns the key for messages from this rank to the peer.
  tcp::Key key_to(const Peer& peer, tcp::Use use) const;
  tcp::Key key_from(const Peer& peer, tcp::Use use) const;
  bool parse_contact(std::string_view text, Peer& peer) const;
  Peer* find(Rank rank) { return find_peer(peers_, rank); }
  void complete(std::uint64_t id, Code code) { done_.add(id, code); }
  // Ends the connection and its transfers. here: the cause is this rank, not the peer.
  void fail(Peer& peer, Code code, const std::string& why, bool here = false);
  void end_all(Peer& peer, Code code);
  bool live(const Peer& peer) const {
    return peer.state == State::kUp || (peer.state == State::kGreeting && rank_ < peer.rank);
  }

  // Defined in connect.cc:
  bool connect(Peer& peer);
  void connected(Peer& peer);
  void greeted(Peer& peer);
  void accept_all();
  bool hear(Stranger& stranger);  // true: the stranger can be erased
  void settle(Peer& peer);        // called when the connection is established
  bool send_answer(const Peer& peer, const Fd& fd, tcp::Answer::Kind kind) const;
  void adopt(Peer& peer, Fd fd);
  void drop(Peer& peer);
  void set_state(Peer& peer, State state);
  void watch(Peer& peer);
  void progress() noexcept;

  // Defined in send.cc:
  void post_send(const Transfer& t, Peer& peer);
  void add_frame(Peer& peer, tcp::FrameKind kind, std::uint64_t tag, std::size_t bytes,
                 const Head* head);
  void add_long(Peer& peer, const Transfer& send);
  void add_pieces(Peer& peer, const Transfer& send);
  bool fits(Peer& peer, std::size_t bytes, const Head* head, const Transfer& send);
  static Transfer* find_send(Peer& peer, std::uint64_t tag);
  static Transfer take_send(Peer& peer, Transfer* send);
  static void cut_piece(Out& out, const Head* head);
  void flush(Peer& peer);
  void advance(Peer& peer, std::size_t n);
  void lost(Peer& peer, int error);
  void ready(Peer& peer, const tcp::Frame& f, const Head* head);
  static void unready(Peer& peer, std::uint64_t tag);
  void refused(Peer& peer, const tcp::Frame& f, const Head* head);

  // Defined in receive.cc:
  void post_receive(const Transfer& t, Peer& peer);
  void read(Peer& peer);
  void slow(Peer& peer, bool slowed);
  void consume(Peer& peer, std::span<const std::byte> bytes);
  void begin(Peer& peer);
  void end(Peer& peer);
  Unexpected* keep(Peer& peer, const tcp::Frame& f, const Head* head);
  void announced(Peer& peer, const tcp::Frame& f, const Head* head);
  void withdrawn(Peer& peer, std::uint64_t tag);
  void hand_over(Peer& peer, Unexpected& u, const Receive& receive);
  bool alike(Peer& peer, std::size_t bytes, const Head* head, const Transfer& receive);
  void finish(const Receive& receive) {
    done_.add({.id = receive.transfer.id, .crc = receive.crc});
  }

  // Defined in datagrams.cc:
  enum class Before : std::uint8_t { kTurns, kSleep, kLeave };
  bool send_short(const Transfer& t, Peer& peer);
  enum class Found : std::uint8_t { kNone, kSome, kMessage };
  Found hear_datagrams();
  void hear_datagram(std::span<const std::byte> bytes);
  void arrived(Peer& peer, std::span<const std::byte> message);
  void copied(Peer& peer);
  void lost_one(Peer& peer);
  void repeat(Peer& peer, bool all);
  void tend_short_ones(Before what);
  void fill(tcp::Datagram& header, Peer& peer, std::uint32_t number) const;
  bool send_datagram(Peer& peer, std::byte* data, std::size_t bytes);
  void tell(Peer& peer, tcp::Datagram::Asks asks);
  static void drop_kept(ShortOnes& s, Kept& k);

  // Defined in cancel.cc:
  void withdraw(Peer& peer, std::size_t i);

  Rank rank_;
  std::string device_, address_;
  std::string key_;              // job key for this transport
  std::optional<ShortMac> mac_;  // computes the MACs of datagrams
  Fd listener_, events_, datagrams_;
  Address heard_from_;          // the source of the last datagram
  std::size_t unexpected_ = 0;  // number of unexpected messages of all peers
  std::vector<Peer> peers_;     // by world rank; never grows after setup
  std::vector<Peer*> live_;     // peers whose connection is up
  std::list<Stranger> strangers_;
  int slowed_ = 0;  // number of peers whose `slowed` is set
  // Connections that are not established yet.
  int unsettled_ = 0;
  const std::size_t unexpected_most_ = unexpected_limit();  // limit in bytes per peer
  // Every turn reads all connections in `live_`.
  bool direct_ = true;
  bool hears_ = false;  // this rank reads datagrams
  unsigned turns_ = 0, looks_ = 0;
  int deaf_ = 0;             // errno of the last failed epoll_ctl; 0: none
  std::uint64_t moved_ = 0;  // bytes written to and read from sockets
  std::vector<std::byte> inbox_;
  Completions done_;
};

}  // namespace weft
