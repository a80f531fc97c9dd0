// The class behind make_ucx_transport. Set-up is in ucx.cc, the datapath in ucx_datapath.cc.
#pragma once

#include <ucp/api/ucp.h>

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "topo/topology.h"
#include "transport/rendezvous.h"
#include "transport/transport.h"

namespace weft {

struct UcpContextCleanup {
  void operator()(ucp_context_h context) const noexcept { ucp_cleanup(context); }
};
struct UcpWorkerDestroy {
  void operator()(ucp_worker_h worker) const noexcept { ucp_worker_destroy(worker); }
};

class UcxTransport final : public Transport {
 public:
  UcxTransport(Job& job, const Topology& topology, const Nic& rail);
  ~UcxTransport() override;
  UcxTransport(const UcxTransport&) = delete;
  UcxTransport& operator=(const UcxTransport&) = delete;

  void post(std::span<const Transfer> transfers) noexcept override;
  std::size_t poll(std::span<Completion> out) noexcept override;
  void cancel(std::uint32_t id_high) noexcept override;
  Caps caps() const override;
  Status cause(Rank peer) const override;
  bool arm(std::vector<int>& fds) noexcept override;

 private:
  struct Peer {
    UcxTransport* owner = nullptr;
    Rank rank = kNoRank;
    std::string address;  // of its worker on this rail
    std::string where;    // "rank 3 on host b"
    ucp_ep_h ep = nullptr;
    Status failure;  // why nothing works with this peer any more
    Status note;     // why one transfer failed while the others are fine
  };

  // A transfer that UCX has under way.
  struct Slot {
    enum class State : std::uint8_t {
      kFree,
      kActive,
      kForgotten,  // cancelled: it ends without a completion
    };
    UcxTransport* owner = nullptr;
    void* request = nullptr;
    Slot* next_free = nullptr;
    std::uint64_t id = 0;
    std::size_t bytes = 0;
    Rank peer = kNoRank;
    bool recv = false;
    State state = State::kFree;
  };

  // ucx.cc
  void set_up(const Nic& rail, int nranks);
  std::string worker_address() const;

  // ucx_datapath.cc
  void post_send(const Transfer& t, Peer& peer) noexcept;
  void post_recv(const Transfer& t, Peer& peer) noexcept;
  bool connect(Peer& peer) noexcept;
  void complete(std::uint64_t id, Code code) { done_.push_back({.id = id, .code = code}); }
  Slot* take_slot(const Transfer& t, bool recv);
  void finish(Slot* slot, ucs_status_t status, std::size_t length) noexcept;
  Code outcome(Peer& peer, const Slot& slot, ucs_status_t status, std::size_t length);
  void fail(Peer& peer, Code code, const std::string& why);
  void sweep() noexcept;
  void abandon(const char* why) noexcept;
  static void on_sent(void* request, ucs_status_t status, void* slot) noexcept;
  static void on_received(void* request, ucs_status_t status, const ucp_tag_recv_info_t* info,
                          void* slot) noexcept;
  static void on_error(void* peer, ucp_ep_h ep, ucs_status_t status) noexcept;

  Rank rank_;
  std::string device_;
  std::unique_ptr<ucp_context, UcpContextCleanup> context_;
  std::unique_ptr<ucp_worker, UcpWorkerDestroy>
      worker_;               // gone before context_; null once given up
  int event_fd_ = -1;        // the worker's
  std::vector<Peer> peers_;  // by world rank; never grows after set-up
  std::deque<Slot> slots_;   // all ever made; pointers stay valid
  Slot* free_slots_ = nullptr;
  std::vector<Completion> done_;  // not yet handed out: [handed_, size)
  std::size_t handed_ = 0;
  bool unswept_ = false;  // a peer failed whose endpoint and transfers are still there
};

}  // namespace weft
