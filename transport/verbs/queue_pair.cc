// Makes and connects RC queue pairs. This file does not depend on ranks or messages.
#include "transport/verbs/queue_pair.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <random>

#include "topo/base/status.h"

namespace weft {
namespace {

constexpr std::uint32_t kPsnMask = 0xffffff;
constexpr std::uint8_t kHops = 64;

ibv_mtu mtu_code(int bytes) {
  return static_cast<ibv_mtu>(std::countr_zero(static_cast<unsigned>(bytes)) - 7);
}

}  // namespace

VerbsPath verbs_path(const VerbsPort& mine, const VerbsPort& theirs, const std::string& where) {
  VerbsPath path;
  path.mtu = std::min(mine.mtu, theirs.mtu);
  path.lid = theirs.lid;
  if (mine.ethernet != theirs.ethernet)
    throw Error(
        fmt::format("verbs: {} is {}, but the peer's port is {}; WEFT_RAILS must list the "
                    "same kind of device in the same order on every host",
                    where, mine.ethernet ? "Ethernet" : "InfiniBand",
                    theirs.ethernet ? "Ethernet" : "InfiniBand"));
  if (!std::has_single_bit(static_cast<unsigned>(path.mtu)) || path.mtu < 256 || path.mtu > 4096)
    throw Error(fmt::format("verbs: {}: no path MTU is {} bytes", where, path.mtu));
  if (!reach_each_other(mine.pkey, theirs.pkey))
    throw Error(fmt::format(
        "verbs: {} is in partition {:#06x}, the peer's port in {:#06x}: {}; choose one with "
        "WEFT_VERBS_PKEY on every host, or ask who runs the fabric (its subnet manager)",
        where, mine.pkey, theirs.pkey,
        (mine.pkey ^ theirs.pkey) & 0x7fff ? "they are different" : "both are limited members"));
  const auto pair = agree(mine.gids, theirs.gids);
  if (!pair) {
    if (!mine.ethernet) {
      path.global = false;
      return path;
    }
    throw Error(fmt::format(
        "verbs: {} has no kind of address in common with the peer's port: here {}; there {}; give "
        "both interfaces an IPv4 address, or set WEFT_VERBS_GID_INDEX on both",
        where, describe(mine.gids), describe(theirs.gids)));
  }
  path.mine = pair->mine;
  path.theirs = pair->theirs;
  path.global = mine.ethernet || mine.lid == 0 || theirs.lid == 0 || routed(*pair);
  // In this subnet the peer's own LID may be another port, or none.
  if (const auto lid = routable_lid(path.theirs); lid != 0 && routed(*pair)) path.lid = lid;
  return path;
}

std::string to_string(const VerbsPath& path) {
  if (!path.global) return fmt::format("to LID {}, MTU {}", path.lid, path.mtu);
  return fmt::format("{} {} (index {}) to {}, MTU {}", name(path.mine.kind),
                     to_string(path.mine.bytes), path.mine.index, to_string(path.theirs.bytes),
                     path.mtu);
}

VerbsQp::VerbsQp(const VerbsDevice& device, VerbsCq& sends, VerbsCq& recvs,
                 const VerbsQpOptions& options)
    : device_(&device), options_(options) {
  ibv_qp_init_attr attributes{};
  attributes.send_cq = sends.handle();
  attributes.recv_cq = recvs.handle();
  attributes.qp_type = IBV_QPT_RC;
  attributes.sq_sig_all = options.signal_all;
  attributes.cap.max_send_wr = static_cast<std::uint32_t>(options.send_depth);
  attributes.cap.max_recv_wr = static_cast<std::uint32_t>(options.recv_depth);
  attributes.cap.max_send_sge = static_cast<std::uint32_t>(options.send_pieces);
  attributes.cap.max_recv_sge = static_cast<std::uint32_t>(options.recv_pieces);
  // A device's inline limit can only be found by trial: reduce it until it is accepted.
  for (int bytes = options.inline_bytes;; bytes = bytes > 32 ? bytes / 2 : 0) {
    attributes.cap.max_inline_data = static_cast<std::uint32_t>(bytes);
    errno = 0;
    ibv_qp_init_attr made = attributes;
    make(made);
    if (qp_) {
      inline_bytes_ = std::max(bytes, static_cast<int>(made.cap.max_inline_data));
      break;
    }
    if (bytes == 0)
      throw Error(fmt::format(
          "verbs: {}: a queue pair of {} sends and {} receives failed: {}; lower "
          "WEFT_VERBS_SEND_DEPTH or WEFT_VERBS_SLOTS (the device takes {} each), or raise `ulimit "
          "-l`",
          device.where(), options.send_depth, options.recv_depth, std::strerror(errno),
          device.limits().max_qp_wr));
  }
  if (device.settings().ece && ibv_query_ece(qp_, &ece_) != 0) ece_ = {};
  psn_ = std::random_device{}() & kPsnMask;
  try {
    ibv_qp_attr init{};
    init.qp_state = IBV_QPS_INIT;
    init.pkey_index = static_cast<std::uint16_t>(device.pkey_index());
    init.port_num = static_cast<std::uint8_t>(device.port_number());
    init.qp_access_flags =
        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    modify(init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, "INIT");
  } catch (...) {
    ibv_destroy_qp(qp_);
    throw;
  }
}

// Makes the queue pair, for ibv_wr_* if the device supports it; qp_ is nullptr if it refuses. Sets
// the granted capabilities in `attributes`.
void VerbsQp::make(ibv_qp_init_attr& attributes) {
  if (device_->settings().extended) {
    ibv_qp_init_attr_ex extended{};
    extended.send_cq = attributes.send_cq;
    extended.recv_cq = attributes.recv_cq;
    extended.cap = attributes.cap;
    extended.qp_type = attributes.qp_type;
    extended.sq_sig_all = attributes.sq_sig_all;
    extended.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    extended.pd = device_->queue_domain();
    extended.send_ops_flags = kVerbsSendOps;
    qp_ = ibv_create_qp_ex(device_->context(), &extended);
    if (qp_) {
      attributes.cap = extended.cap;
      poster_ = {qp_, ibv_qp_to_qp_ex(qp_)};
      return;
    }
  }
  qp_ = ibv_create_qp(device_->queue_domain(), &attributes);
  poster_ = {qp_, nullptr};
}

// Uses the options that both ends support; without them if the device refuses.
void VerbsQp::agree_on_options(const VerbsQpName& theirs) noexcept {
  ibv_ece both = ece_;
  both.options &= theirs.ece_options;
  if (both.options == 0 || ece_.vendor_id != theirs.ece_vendor) return;
  if (ibv_set_ece(qp_, &both) == 0) ece_used_ = both.options;
}

VerbsQp::~VerbsQp() { ibv_destroy_qp(qp_); }

void VerbsQp::modify(ibv_qp_attr& attributes, int mask, const std::string& to) {
  const int error = ibv_modify_qp(qp_, &attributes, mask);
  if (error == 0) return;
  const std::string what = fmt::format("verbs: {}: queue pair {:#x} does not go to {}: {}",
                                       device_->where(), number(), to, std::strerror(error));
  // The kernel resolves the peer's link-layer address.
  if (error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH)
    throw StatusError({Code::kTransport,
                       what + "; the peer's address is not reachable from this port: look at its "
                              "cable, at the switch, and at `ip neigh` and `show_gids`"});
  throw Error(what + "; are the WEFT_VERBS_* settings in the device's range?");
}

void VerbsQp::connect(const VerbsPath& path, const VerbsQpName& theirs) {
  const VerbsSettings& s = device_->settings();
  agree_on_options(theirs);
  ibv_qp_attr rtr{};
  rtr.qp_state = IBV_QPS_RTR;
  rtr.path_mtu = mtu_code(path.mtu);
  rtr.dest_qp_num = theirs.number;
  rtr.rq_psn = theirs.psn & kPsnMask;
  rtr.max_dest_rd_atomic = static_cast<std::uint8_t>(options_.reads);
  rtr.min_rnr_timer = static_cast<std::uint8_t>(s.min_rnr_timer);
  rtr.ah_attr.port_num = static_cast<std::uint8_t>(device_->port_number());
  rtr.ah_attr.dlid = path.lid;
  rtr.ah_attr.sl = static_cast<std::uint8_t>(s.service_level);
  rtr.ah_attr.is_global = path.global;
  if (path.global) {
    std::memcpy(rtr.ah_attr.grh.dgid.raw, path.theirs.bytes.data(), path.theirs.bytes.size());
    rtr.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(path.mine.index);
    rtr.ah_attr.grh.hop_limit = kHops;
    rtr.ah_attr.grh.traffic_class = static_cast<std::uint8_t>(s.traffic_class);
    rtr.ah_attr.grh.flow_label = options_.flow_label & IB_GRH_FLOWLABEL_MASK;
  }
  modify(rtr,
         IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
             IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
         fmt::format("RTR ({})", to_string(path)));
  ibv_qp_attr rts{};
  rts.qp_state = IBV_QPS_RTS;
  rts.sq_psn = psn_;
  rts.timeout = static_cast<std::uint8_t>(s.timeout ? s.timeout : timeout_for(false));
  rts.retry_cnt = static_cast<std::uint8_t>(s.retry_count);
  rts.rnr_retry = static_cast<std::uint8_t>(s.rnr_retry);
  rts.max_rd_atomic = static_cast<std::uint8_t>(options_.reads);
  modify(rts,
         IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
             IBV_QP_MAX_QP_RD_ATOMIC,
         "RTS");
}

void VerbsQp::stop() noexcept {
  ibv_qp_attr error{};
  error.qp_state = IBV_QPS_ERR;
  ibv_modify_qp(qp_, &error, IBV_QP_STATE);
}

}  // namespace weft
