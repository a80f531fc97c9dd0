// RC queue pairs: making, connecting and posting. This layer does not know ranks or messages.
//
//   VerbsQp qp(device, cq, cq, {});
//   send_to_peer(device.port().encode(), qp.name());         // by whatever means
//   qp.connect(verbs_path(device.port(), VerbsPort::decode(theirs), device.where()), their_name);
//   ...                                                      // both are through: then send
#pragma once

#include <infiniband/verbs.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>

#include "topo/topology.h"
#include "transport/verbs/device.h"

namespace weft {

// The numbers of a queue pair that the other end needs to connect.
struct VerbsQpName {
  std::uint32_t number = 0;
  std::uint32_t psn = 0;  // of the first packet that the queue pair sends
};

// The path between two ports; both ends compute the same path.
struct VerbsPath {
  int mtu = 0;
  Gid mine, theirs;    // valid if `global`
  bool global = true;  // packets carry a GRH: always on Ethernet
  std::uint16_t lid = 0;
};
// Throws Error if the ports have no kind of address or no partition in common; the text names what
// each port has, and `where` names this rank's port in it.
VerbsPath verbs_path(const VerbsPort& mine, const VerbsPort& theirs, const std::string& where);
std::string to_string(const VerbsPath& path);

struct VerbsQpOptions {
  int send_depth = 256;
  int recv_depth = 256;
  int send_pieces = 1;  // scatter-gather entries
  int recv_pieces = 1;
  int inline_bytes = 0;  // asked for; see VerbsQp::inline_bytes()
  int reads = 0;         // RDMA reads that each end has under way at once
  bool signal_all = false;
  // Queue pairs with different labels send from different UDP source ports, so their packets may
  // take different paths. 0: the device derives a label from the queue pairs' numbers.
  std::uint32_t flow_label = 0;
};

class VerbsQp {
 public:
  // Makes a queue pair that lets the peer write to and read from memory whose keys it knows.
  VerbsQp(const VerbsDevice& device, VerbsCq& sends, VerbsCq& recvs, const VerbsQpOptions& options);
  VerbsQp(const VerbsQp&) = delete;
  VerbsQp& operator=(const VerbsQp&) = delete;
  ~VerbsQp();

  VerbsQpName name() const { return {qp_->qp_num, psn_}; }
  std::uint32_t number() const { return qp_->qp_num; }
  ibv_qp* handle() const { return qp_; }
  int inline_bytes() const { return inline_bytes_; }  // what the device allows

  // Moves the queue pair to ready-to-send. Receives may be posted before. The peer must be
  // connected too before this rank sends to the peer.
  void connect(const VerbsPath& path, const VerbsQpName& theirs);

  // Posts a chain of sends. Returns 0 or an errno; `bad` is the first request that was not taken.
  int post(ibv_send_wr* first, ibv_send_wr** bad) noexcept {
    return ibv_post_send(qp_, first, bad);
  }
  // Posts a chain of receives, with the same results.
  int post(ibv_recv_wr* first, ibv_recv_wr** bad) noexcept {
    return ibv_post_recv(qp_, first, bad);
  }

  // Moves the queue pair to the error state: the device sends nothing more, places none of the
  // peer's bytes, and completes posted requests as flushed.
  void stop() noexcept;

 private:
  void modify(ibv_qp_attr& attributes, int mask, const std::string& to);
  const VerbsDevice* device_;
  VerbsQpOptions options_;
  ibv_qp* qp_ = nullptr;
  std::uint32_t psn_ = 0;
  int inline_bytes_ = 0;
};

// Flow labels of queue pairs determine the UDP source ports, by which ECMP separates flows.
// Returns the label of queue pair `lane` between two ranks. Both ends compute the same label. The
// queue pairs of two ranks have different labels and different source ports, for consecutive labels
// differ in the bits that form the port. Never 0, which means no label.
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
