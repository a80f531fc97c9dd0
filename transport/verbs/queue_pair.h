// RC queue pairs: making, connecting and posting. This layer does not depend on ranks or messages.
//
//   VerbsQp qp(device, cq, cq, {});
//   send_to_peer(device.port().encode(), qp.name());         // by whatever means
//   qp.connect(verbs_path(device.port(), VerbsPort::decode(theirs), device.where()), their_name);
//   ...                                                      // both are through: then send
#pragma once

#include <infiniband/verbs.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "topo/topology.h"
#include "transport/verbs/device.h"
#include "transport/verbs/request_chain.h"

namespace weft {

// The numbers of a queue pair that the other end needs to connect.
struct VerbsQpName {
  std::uint32_t number = 0;
  std::uint32_t psn = 0;  // of the first packet that the queue pair sends
  // Enhanced Connection Establishment: what the device can do beyond the standard; 0: nothing.
  std::uint32_t ece_vendor = 0, ece_options = 0;
};

// The path between two ports; both ends compute the same path.
struct VerbsPath {
  int mtu = 0;
  Gid mine, theirs;    // valid if `global`
  bool global = true;  // packets carry a GRH: always on Ethernet
  std::uint16_t lid = 0;
};
// Throws Error if the ports have no kind of address or no partition in common; the text lists what
// each port has, with `where` as the name of this rank's port.
VerbsPath verbs_path(const VerbsPort& mine, const VerbsPort& theirs, const std::string& where);
std::string to_string(const VerbsPath& path);

struct VerbsQpOptions {
  int send_depth = 256;
  int recv_depth = 256;
  int send_pieces = 1;  // scatter-gather entries
  int recv_pieces = 1;
  int inline_bytes = 0;  // requested; see VerbsQp::inline_bytes()
  int reads = 0;         // concurrent RDMA reads of each end
  bool signal_all = false;
  // Queue pairs with different labels send from different UDP source ports, so their packets may
  // take different paths. 0: the device derives a label from the queue pairs' numbers.
  std::uint32_t flow_label = 0;
};

class VerbsQp {
 public:
  // Makes a queue pair through which the peer may write to and read from memory whose keys it has.
  VerbsQp(const VerbsDevice& device, VerbsCq& sends, VerbsCq& recvs, const VerbsQpOptions& options);
  VerbsQp(const VerbsQp&) = delete;
  VerbsQp& operator=(const VerbsQp&) = delete;
  ~VerbsQp();

  VerbsQpName name() const { return {qp_->qp_num, psn_, ece_.vendor_id, ece_.options}; }
  std::uint32_t number() const { return qp_->qp_num; }
  ibv_qp* handle() const { return qp_; }
  const VerbsChainPoster& poster() const { return poster_; }
  int inline_bytes() const { return inline_bytes_; }    // what the device allows
  bool extended() const { return poster_.extended(); }  // sends use ibv_wr_*
  // The ECE options that both ends use; 0: none, or before connect().
  std::uint32_t ece_options() const { return ece_used_; }

  // Moves the queue pair to ready-to-send. Receives may be posted before. The peer must be
  // connected too before this rank sends to the peer.
  void connect(const VerbsPath& path, const VerbsQpName& theirs);

  // Posts a chain of sends. Returns 0 or an errno; `bad` is the first request that was not posted.
  int post(ibv_send_wr* first, ibv_send_wr** bad) noexcept { return poster_.post(first, bad); }
  // Posts a chain of receives, with the same results.
  int post(ibv_recv_wr* first, ibv_recv_wr** bad) noexcept {
    return ibv_post_recv(qp_, first, bad);
  }

  // Moves the queue pair to the error state: the device sends nothing more, places none of the
  // peer's bytes, and completes posted requests as flushed.
  void stop() noexcept;

 private:
  void make(ibv_qp_init_attr& attributes);
  void modify(ibv_qp_attr& attributes, int mask, const std::string& to);
  void agree_on_options(const VerbsQpName& theirs) noexcept;
  const VerbsDevice* device_;
  VerbsQpOptions options_;
  ibv_qp* qp_ = nullptr;
  VerbsChainPoster poster_;
  ibv_ece ece_{};  // offered by this end's device
  std::uint32_t ece_used_ = 0;
  std::uint32_t psn_ = 0;
  int inline_bytes_ = 0;
};

// Flow labels of queue pairs determine the UDP source ports, from which ECMP separates flows.
// Returns the label of queue pair `lane` between two ranks. Both ends compute the same label. The
// queue pairs of two ranks have different labels and source ports, since consecutive labels differ
// in the bits that form the port. Never 0, which means no label.
constexpr std::uint32_t flow_label(Rank a, Rank b, int lane) {
  constexpr std::uint64_t kLabels = (1u << 20) - 1;  // without 0
  std::uint64_t x = (static_cast<std::uint64_t>(std::min(a, b)) << 32 |
                     static_cast<std::uint64_t>(std::max(a, b))) *
                    0x9e3779b97f4a7c15u;
  x = (x ^ x >> 29) * 0x94d049bb133111ebu;
  return static_cast<std::uint32_t>(((x >> 32) + static_cast<std::uint64_t>(lane)) % kLabels) + 1;
}

// Returns the UDP source port that Linux and its drivers derive from a label.
constexpr std::uint16_t udp_source_port(std::uint32_t label) {
  return static_cast<std::uint16_t>(0xc000 | ((label & 0x3fff) ^ (label >> 14 & 0x3f)));
}

}  // namespace weft
