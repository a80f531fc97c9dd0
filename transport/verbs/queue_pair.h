// Reliable connections (RC queue pairs): made, connected to a peer, posted to. Knows nothing of
// ranks or messages.
//
//   VerbsQp qp(device, cq, cq, {});
//   send_to_peer(device.port().encode(), qp.name());         // by whatever means
//   qp.connect(verbs_path(device.port(), VerbsPort::decode(theirs), device.where()), their_name);
//   ...                                                      // both are through: then send
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <string>

#include "transport/verbs/device.h"

namespace weft {

// What the other end must know of a queue pair.
struct VerbsQpName {
  std::uint32_t number = 0;
  std::uint32_t psn = 0;  // of the first packet that it sends
};

// How two ports reach each other; both ends come to the same.
struct VerbsPath {
  int mtu = 0;
  Gid mine, theirs;    // where `global`
  bool global = true;  // with a GRH: always on Ethernet
  std::uint16_t lid = 0;
};
// Throws Error where the ports have no kind of address or no partition in common, naming what each
// has. where: mine, for that.
VerbsPath verbs_path(const VerbsPort& mine, const VerbsPort& theirs, const std::string& where);
std::string to_string(const VerbsPath& path);

struct VerbsQpOptions {
  int send_depth = 256;
  int recv_depth = 256;
  int send_pieces = 1;  // scatter-gather entries
  int recv_pieces = 1;
  int inline_bytes = 0;  // asked for; see VerbsQp::inline_bytes()
  int reads = 0;         // RDMA reads under way at once, of each end
  bool signal_all = false;
  // Packets of queue pairs with different labels take different UDP source ports, and so maybe
  // different ways through the fabric. 0: the device derives one from the queue pairs' numbers.
  std::uint32_t flow_label = 0;
};

class VerbsQp {
 public:
  // Peers may write to and read from registered memory through it, as its keys allow.
  VerbsQp(const VerbsDevice& device, VerbsCq& sends, VerbsCq& recvs, const VerbsQpOptions& options);
  VerbsQp(const VerbsQp&) = delete;
  VerbsQp& operator=(const VerbsQp&) = delete;
  ~VerbsQp();

  VerbsQpName name() const { return {qp_->qp_num, psn_}; }
  std::uint32_t number() const { return qp_->qp_num; }
  ibv_qp* handle() const { return qp_; }
  int inline_bytes() const { return inline_bytes_; }  // what the device gave

  // To ready-to-send. Receives may be posted before. The peer must have done the same before
  // anything is sent to it.
  void connect(const VerbsPath& path, const VerbsQpName& theirs);

  // Of chains of requests; 0 or an errno. `bad` is the first that was not taken.
  int post(ibv_send_wr* first, ibv_send_wr** bad) noexcept {
    return ibv_post_send(qp_, first, bad);
  }
  int post(ibv_recv_wr* first, ibv_recv_wr** bad) noexcept {
    return ibv_post_recv(qp_, first, bad);
  }

  // To the error state: nothing is sent, nothing that a peer sends is placed any more, and what is
  // posted completes as flushed.
  void stop() noexcept;

 private:
  void modify(ibv_qp_attr& attributes, int mask, const std::string& to);
  const VerbsDevice* device_;
  VerbsQpOptions options_;
  ibv_qp* qp_ = nullptr;
  std::uint32_t psn_ = 0;
  int inline_bytes_ = 0;
};

}  // namespace weft
