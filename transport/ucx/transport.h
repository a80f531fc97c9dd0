// The class behind make_ucx_transport(). ucx.cc contains set-up and tear-down, datapath.cc posts
// and completes messages.
#pragma once

#include <ucp/api/ucp.h>

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "topo/topology.h"
#include "transport/gpu/streams.h"
#include "transport/job/bootstrap.h"
#include "transport/messages/completions.h"
#include "transport/offers.h"

namespace weft {

struct UcpContextCleanup {
  void operator()(ucp_context_h context) const noexcept { ucp_cleanup(context); }
};
struct UcpWorkerDestroy {
  void operator()(ucp_worker_h worker) const noexcept { ucp_worker_destroy(worker); }
};

// Messages up to this size may have a head; longer messages have one only if they also have a
// checksum.
inline constexpr std::size_t kMostWithHead = std::size_t{1} << 20;

class UcxTransport final : public Transport, private Recovery {
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
  Status cause(Rank peer) const override { return cause_of(peers_, peer, "ucx"); }
  bool arm(std::vector<int>& fds) noexcept override;
  bool disputed(Rank peer, Head& theirs) const noexcept override {
    return disputed_with(peers_, peer, theirs);
  }
  Rank unexpected(Rank peer, std::uint64_t tag, std::uint64_t mask, Head& theirs) noexcept override;
  Recovery* recovery() noexcept override { return this; }

 private:
  void disconnect(Rank peer) noexcept override;
  std::string reopen(Rank peer) noexcept override;
  bool connect(Rank peer, std::string_view theirs) noexcept override;

  struct Peer : PeerRecord {
    UcxTransport* owner = nullptr;
    std::string address;  // the peer's worker address on this rail
    ucp_ep_h ep = nullptr;
  };

  // A head on the wire, in front of the data.
  struct WireHead {
    std::uint64_t magic;
    Head head;
  };
  // The bounce buffer of a message with a head. A short message is sent from it as one piece; for a
  // longer message it contains only the head.
  struct BounceBuffer {
    static constexpr std::size_t kShort = 256;
    WireHead head;
    std::byte data[kShort];
    ucp_dt_iov_t pieces[3];
  };
  // An unexpected message, received before its receive is posted, so that its head can be read.
  struct Unexpected {
    Rank peer;
    std::uint64_t tag;
    std::vector<std::byte> bytes;
    std::size_t length = 0;
    bool here = false;
    bool wanted = false;  // the receive has been posted: see `transfer`
    Transfer transfer;
  };

  // An active transfer in UCX.
  struct Request {
    enum class State : std::uint8_t {
      kFree,
      kActive,
      kForgotten,  // cancelled: the request ends without a completion
    };
    UcxTransport* owner = nullptr;
    void* handle = nullptr;
    Request* next_free = nullptr;
    std::uint64_t id = 0;
    std::size_t bytes = 0;
    void* data = nullptr;
    Rank peer = kNoRank;
    bool recv = false;
    bool headed = false;                   // the message has a head, in `bounce`
    std::uint64_t expected = 0;            // recv: signature of the expected head
    Unexpected* unexpected = nullptr;      // if set, the request fills an unexpected message
    std::unique_ptr<BounceBuffer> bounce;  // reused
    State state = State::kFree;
  };

  // Defined in ucx.cc:
  void set_up(const Nic& rail, int nranks);
  std::string worker_address() const;  // in the format that the bootstrap exchanges
  static bool take_address(Peer& peer, std::string_view travelled);

  // Defined in datapath.cc:
  ucp_tag_t tag_mask() const { return (ucp_tag_t{1} << tag_bits_) - 1; }
  ucp_tag_t ucx_tag(Rank source, std::uint64_t tag) const {
    return static_cast<ucp_tag_t>(source) << tag_bits_ | tag;
  }
  std::string refusal(const Transfer& t) const;
  void post_send(const Transfer& t, Peer& peer) noexcept;
  void post_recv(const Transfer& t, Peer& peer) noexcept;
  bool connected(Peer& peer) noexcept {
    return (peer.ep != nullptr && peer.failure.ok()) || connect(peer);
  }
  bool connect(Peer& peer) noexcept;
  void complete(std::uint64_t id, Code code) { done_.add(id, code); }
  void add_request();
  Request* take_request(const Transfer& t, bool recv);
  void finish(Request* request, ucs_status_t status, std::size_t length) noexcept;
  Code outcome(Peer& peer, Request& request, ucs_status_t status, std::size_t length);
  void fail(Peer& peer, Code code, const std::string& why);
  void sweep() noexcept;
  void abandon(const char* why) noexcept;

  // Defined in reconnect.cc:
  bool drop_unexpected(Rank rank) noexcept;

  // Defined in heads.cc:
  void* send_with_head(const Transfer& t, Peer& peer, Request* request,
                       ucp_request_param_t& param) noexcept;
  void* recv_with_head(const Transfer& t, Peer& peer, Request* request,
                       ucp_request_param_t& param) noexcept;
  static bool took_with_head(const Request& request, std::size_t length) noexcept;
  Code outcome_with_head(Peer& peer, const Request& request, std::size_t length);
  static bool head_of(const void* data, std::size_t bytes, Head& head) noexcept;
  // All pieces of a UCX message must have the same memory type, so GPU memory is sent without a
  // head.
  bool headed(const Transfer& t) const {
    return t.head && (t.bytes <= kMostWithHead || t.sums) && !of_gpu(t.data);
  }
  bool of_gpu(const void* data) const noexcept {
    const MemoryKind kind = kind_of(data);
    return kind == MemoryKind::kDevice || kind == MemoryKind::kManaged;
  }
  MemoryKind kind_of(const void* data) const noexcept {
    Device* const gpus = cuda_ && data ? device() : nullptr;
    return gpus ? gpus->residence(data).kind : MemoryKind::kHost;
  }
  Status mismatch(const Peer& peer, std::size_t expected, const std::string& sent) const;
  void keep_unexpected(Peer& peer, std::uint64_t tag, std::size_t bytes) noexcept;
  bool take_unexpected(const Transfer& t, Peer& peer) noexcept;
  bool put(Peer& peer, void* to, const void* from, std::size_t bytes);
  void hand_over(Unexpected& s, Code code);
  void unexpected_filled(Request& request, ucs_status_t status);
  ucp_request_param_t request_param(Request* request, const void* data) const;

  static void on_sent(void* handle, ucs_status_t status, void* request) noexcept;
  static void on_received(void* handle, ucs_status_t status, const ucp_tag_recv_info_t* info,
                          void* request) noexcept;
  static void on_error(void* peer, ucp_ep_h ep, ucs_status_t status) noexcept;

  Rank rank_;
  int tag_bits_;  // width of Transfer::tag; the bits above contain the source rank
  Nic rail_;
  std::string device_;
  std::unique_ptr<ucp_context, UcpContextCleanup> context_;
  std::unique_ptr<ucp_worker, UcpWorkerDestroy>
      worker_;                    // destroyed before context_; null once the rail has ended
  int event_fd_ = -1;             // the worker's event descriptor
  bool cuda_ = false;             // UCX supports GPU memory
  std::vector<Peer> peers_;       // by world rank; never grows after setup
  std::deque<Request> requests_;  // all requests ever made; pointers stay valid
  Request* free_requests_ = nullptr;
  std::deque<std::unique_ptr<Unexpected>> unexpected_;
  std::unique_ptr<std::byte[]> sink_;  // receives the bytes beyond the expected length
  Completions done_;
  bool unswept_ = false;  // the endpoint and the requests of a failed peer still exist
};

}  // namespace weft
