// The class behind make_ucx_transport. ucx.cc sets up, datapath.cc sends, matches and completes
// messages, connections.cc opens and ends connections.
#pragma once

#include <ucp/api/ucp.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "topo/topology.h"
#include "transport/gpu/device.h"
#include "transport/job/bootstrap.h"
#include "transport/messages/completions.h"
#include "transport/messages/matching.h"
#include "transport/transport.h"

namespace weft {

struct UcpContextCleanup {
  void operator()(ucp_context_h context) const noexcept { ucp_cleanup(context); }
};
struct UcpWorkerDestroy {
  void operator()(ucp_worker_h worker) const noexcept { ucp_worker_destroy(worker); }
};

// What precedes the bytes of every message: the header of UCX's active message.
struct UcxFront {
  static constexpr std::uint32_t kMagic = 0x7765'6674;
  enum class Kind : std::uint16_t {
    kMessage,
    kEnd,  // the sender has closed the connection; no bytes
  };
  std::uint32_t magic = kMagic;
  std::int32_t source = kNoRank;
  std::uint32_t connection = 0;  // the number that the receiver has given to the connection
  Kind kind = Kind::kMessage;
  std::uint16_t headed = 0;  // 1: `head` is the message's
  std::uint64_t tag = 0;
  std::uint64_t bytes = 0;
  Head head;
};
static_assert(sizeof(UcxFront) == 32 + sizeof(Head), "no gaps: all of it goes on the wire");

// weft's id among the active messages of a worker.
inline constexpr unsigned kUcxMessages = 0;

class UcxTransport final : public Transport {
 public:
  UcxTransport(Job& job, const Topology& topology, const Nic& rail);
  ~UcxTransport() override;
  UcxTransport(const UcxTransport&) = delete;
  UcxTransport& operator=(const UcxTransport&) = delete;

  void post(std::span<const Transfer> transfers) noexcept override;
  std::size_t poll(std::span<Completion> out) noexcept override;
  void cancel(std::uint32_t id_high) noexcept override;
  void forget(std::uint64_t tag, std::uint64_t mask) noexcept override;
  Caps caps() const override;
  Status cause(Rank peer) const override;
  bool arm(std::vector<int>& fds) noexcept override;
  void sever(Rank peer) noexcept override;
  std::string reopen(Rank peer) noexcept override;
  bool meet(Rank rank, std::string_view theirs) noexcept override;
  bool disputed(Rank peer, Head& theirs) const noexcept override;
  Rank unclaimed(Rank peer, std::uint64_t tag, std::uint64_t mask, Head& theirs) noexcept override;

 private:
  // What is kept of an unexpected message: its bytes, or UCX's descriptor of a message whose bytes
  // are still at the sender.
  struct Kept {
    std::vector<std::byte> bytes;
    void* rendezvous = nullptr;
    ucp_ep_h from = nullptr;  // the endpoint that it came by, where known
  };
  struct Peer : PeerRecord {
    UcxTransport* owner = nullptr;
    std::string address;  // of the peer's worker on this rail
    ucp_ep_h ep = nullptr;
    // Numbers of the connection: what the peer's messages must say, and what this rank's say. A
    // message with another number belongs to a connection that has ended.
    std::uint32_t mine = 0, theirs = 0;
    Matching<Kept> matching;
    bool ending = false;  // settle() must close the endpoint
    bool tell = false;    // and tell the peer
  };

  // A request: a transfer that UCX has under way.
  struct Request {
    enum class State : std::uint8_t {
      kFree,
      kActive,
      kForgotten,  // cancelled: the request ends without a completion
      kEnd,        // tells the peer that the connection has ended
    };
    UcxTransport* owner = nullptr;
    Request* next_free = nullptr;
    Peer* peer = nullptr;
    std::uint64_t id = 0;
    ucp_ep_h from = nullptr;  // recv: as in Kept
    bool recv = false;
    bool stray = false;  // recv: closing the endpoint with the peer does not end it
    State state = State::kFree;
    UcxFront front;  // of the message
  };

  // ucx.cc
  void set_up(const Nic& rail, int nranks);
  std::string contact(std::uint32_t connection) const;
  static bool take_contact(Peer& peer, std::string_view travelled);

  // ucx/datapath.cc
  Peer* known(Rank rank) {
    return rank >= 0 && static_cast<std::size_t>(rank) < peers_.size()
               ? &peers_[static_cast<std::size_t>(rank)]
               : nullptr;
  }
  const char* refusal(const Transfer& t) const;
  void post_send(const Transfer& t, Peer& peer) noexcept;
  void post_recv(const Transfer& t, Peer& peer) noexcept;
  ucs_status_t message(const void* header, std::size_t header_bytes, void* data, std::size_t bytes,
                       const ucp_am_recv_param_t& param) noexcept;
  void land(Peer& peer, const Transfer& t, const UcxFront& front, const void* data);
  void fetch(Peer& peer, const Transfer& t, const UcxFront& front, void* rendezvous, ucp_ep_h from);
  void received(std::uint64_t id, const UcxFront& front);
  void disagree(Peer& peer, const Transfer& t, std::size_t bytes, const Head* theirs);
  void drop(Kept& kept) noexcept;
  void complete(std::uint64_t id, Code code) { done_.add(id, code); }
  Request* take_request(Peer& peer, std::uint64_t id, bool recv);
  ucp_request_param_t request_param(Request* request, const void* data) const;
  MemoryKind kind_of(const void* data) const noexcept;
  void finish(Request* request, ucs_status_t status) noexcept;

  // ucx/connections.cc
  bool connected(Peer& peer) noexcept {
    return peer.failure.ok() && (peer.ep != nullptr || connect(peer));
  }
  bool connect(Peer& peer) noexcept;
  void fail(Peer& peer, Code code, const std::string& why, bool tell);
  void settle() noexcept;
  void close(Peer& peer) noexcept;
  void say_end(Peer& peer) noexcept;
  void let_go() noexcept;
  void abandon(const char* why) noexcept;
  template <class Which>
  bool any(Which which) const;

  static void on_sent(void* handle, ucs_status_t status, void* request) noexcept;
  static void on_fetched(void* handle, ucs_status_t status, std::size_t length,
                         void* request) noexcept;
  static ucs_status_t on_message(void* self, const void* header, std::size_t header_bytes,
                                 void* data, std::size_t bytes,
                                 const ucp_am_recv_param_t* param) noexcept;
  static void on_error(void* peer, ucp_ep_h ep, ucs_status_t status) noexcept;

  Rank rank_;
  Nic rail_;
  std::string device_;
  std::size_t limit_;  // of unexpected messages
  std::unique_ptr<ucp_context, UcpContextCleanup> context_;
  std::unique_ptr<ucp_worker, UcpWorkerDestroy>
      worker_;                    // destroyed before context_; null once the rail has ended
  int event_fd_ = -1;             // the worker's
  bool cuda_ = false;             // UCX takes GPU memory
  std::vector<Peer> peers_;       // by world rank; never grows after set-up
  std::deque<Request> requests_;  // all requests ever made; pointers stay valid
  Request* free_requests_ = nullptr;
  Completions done_;
  bool ended_ = false;      // a connection has ended, and its peer may make another one
  bool unsettled_ = false;  // a peer is `ending`
};

}  // namespace weft
