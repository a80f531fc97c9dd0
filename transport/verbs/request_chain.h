// The send requests of one queue pair. A chain collects them, one doorbell posts it, and the
// completion of a signaled request covers all before it. This file does not depend on peers,
// connections, slots or messages.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace weft {

// The operations that VerbsChainPoster supports.
inline constexpr std::uint64_t kVerbsSendOps =
    IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ |
    IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;

// Posts chains of requests to a queue pair: with ibv_wr_*, which saves the driver a branch per
// request, if the queue pair was made for it, else with ibv_post_send.
class VerbsChainPoster {
 public:
  VerbsChainPoster() = default;
  // extended: the queue pair's, or nullptr if it has no ibv_wr_*.
  VerbsChainPoster(ibv_qp* qp, ibv_qp_ex* extended) : qp_(qp), extended_(extended) {}
  explicit operator bool() const { return qp_ != nullptr; }
  bool extended() const { return extended_ != nullptr; }

  // Returns 0 or an errno; `bad` is the first request that was not posted. ibv_wr_* posts a chain
  // as a whole or not at all.
  int post(ibv_send_wr* first, ibv_send_wr** bad) noexcept {
    if (!extended_) return ibv_post_send(qp_, first, bad);
    ibv_wr_start(extended_);
    for (const ibv_send_wr* wr = first; wr; wr = wr->next)
      if (!add(*wr)) {
        ibv_wr_abort(extended_);
        *bad = first;
        return EINVAL;
      }
    const int error = ibv_wr_complete(extended_);
    if (error) *bad = first;
    return error;
  }

 private:
  bool add(const ibv_send_wr& wr) noexcept {
    extended_->wr_id = wr.wr_id;
    extended_->wr_flags = wr.send_flags;  // rxe's kernel side needs IBV_SEND_INLINE there, too
    const auto& [address, key] = wr.wr.rdma;
    switch (wr.opcode) {
      case IBV_WR_RDMA_WRITE:
        ibv_wr_rdma_write(extended_, key, address);
        break;
      case IBV_WR_RDMA_WRITE_WITH_IMM:
        ibv_wr_rdma_write_imm(extended_, key, address, wr.imm_data);
        break;
      case IBV_WR_RDMA_READ:
        ibv_wr_rdma_read(extended_, key, address);
        break;
      case IBV_WR_SEND:
        ibv_wr_send(extended_);
        break;
      case IBV_WR_SEND_WITH_IMM:
        ibv_wr_send_imm(extended_, wr.imm_data);
        break;
      default:
        return false;
    }
    const ibv_sge* const piece = wr.sg_list;
    if (wr.num_sge == 1 && (wr.send_flags & IBV_SEND_INLINE))
      ibv_wr_set_inline_data(extended_, reinterpret_cast<void*>(piece->addr), piece->length);
    else if (wr.num_sge == 1)
      ibv_wr_set_sge(extended_, piece->lkey, piece->addr, piece->length);
    else
      ibv_wr_set_sge_list(extended_, static_cast<std::size_t>(wr.num_sge), piece);
    return true;
  }

  ibv_qp* qp_ = nullptr;
  ibv_qp_ex* extended_ = nullptr;
};

// The wr_id of a request: send or receive, the queue pair and its life, and for a send the lower
// half of its number. The life identifies completions left behind by a queue pair that was
// replaced.
struct VerbsRequestId {
  static constexpr std::uint64_t kIsSend = std::uint64_t{1} << 63;
  static constexpr int kPairBits = 20, kLifeBits = 11;
  static_assert(1 + kPairBits + kLifeBits == 32);

  static constexpr std::uint64_t pack(std::uint32_t pair, std::uint32_t life) {
    const std::uint32_t upper = life % (1u << kLifeBits) << kPairBits | pair;
    return std::uint64_t{upper} << 32;
  }
  static constexpr std::size_t pair_of(std::uint64_t id) {
    return id >> 32 & ((1u << kPairBits) - 1);
  }
};

// Requests are numbered: [0, posted()) are chained or posted, [0, done()) are complete.
class VerbsRequestChain final {
 public:
  static constexpr int kMost = 16;  // requests per doorbell

  // pair: the number of the queue pair in its rank. `depth` requests may be incomplete, and after
  // signal_every unsignaled ones the next end of a chain is signaled.
  VerbsRequestChain(std::uint32_t pair, int depth, int signal_every)
      : pair_(pair),
        depth_(static_cast<std::uint64_t>(depth)),
        signal_every_(static_cast<std::uint64_t>(signal_every)) {}

  // The requests go to a new queue pair.
  void begin(const VerbsChainPoster& poster) {
    poster_ = poster;
    id_ = VerbsRequestId::pack(pair_, ++life_);
    drop();
    posted_ = done_ = signaled_ = payload_ = 0;
  }
  // The queue pair has ended: nothing is in flight any more.
  void end() {
    poster_ = {};
    drop();
    done_ = signaled_ = payload_ = posted_;
  }
  // Drops the requests that are chained but not posted.
  void drop() { chained_ = 0, signal_ = false; }

  bool empty() const { return chained_ == 0; }
  bool full() const { return chained_ == kMost; }
  bool room() const { return posted_ - done_ < depth_; }
  std::uint64_t posted() const { return posted_; }
  std::uint64_t done() const { return done_; }
  // The last request has a payload that must arrive before the queue pair ends.
  void carries_payload() { payload_ = posted_; }
  std::uint64_t payload() const { return payload_; }
  // The end of the chain must be signaled.
  void signal() { signal_ = true; }

  // Adds a write of these bytes; the chain must not be full.
  ibv_send_wr& add(const void* data, std::size_t bytes, std::uint32_t lkey) {
    const auto i = static_cast<std::size_t>(chained_++);
    pieces_[i] = {reinterpret_cast<std::uint64_t>(data), static_cast<std::uint32_t>(bytes), lkey};
    ibv_send_wr& request = chain_[i];
    request = {};
    request.wr_id = VerbsRequestId::kIsSend | id_ | static_cast<std::uint32_t>(posted_++);
    request.sg_list = &pieces_[i];
    request.num_sge = bytes ? 1 : 0;
    request.opcode = IBV_WR_RDMA_WRITE;
    return request;
  }
  // Posts the chain. Returns 0 or an errno.
  int ring() noexcept {
    const auto n = static_cast<std::size_t>(std::exchange(chained_, 0));
    const bool signal = std::exchange(signal_, false);
    if (n == 0 || !poster_) return 0;
    for (std::size_t i = 0; i + 1 < n; ++i) chain_[i].next = &chain_[i + 1];
    // Requests without signal() need no completion, except to free their queue entries and slots.
    if (signal || posted_ - signaled_ >= signal_every_) {
      chain_[n - 1].send_flags |= IBV_SEND_SIGNALED;
      signaled_ = posted_;
    }
    ibv_send_wr* bad = nullptr;
    return poster_.post(chain_.data(), &bad);
  }
  // Requests the completion of requests [0, upto), by a signaled empty write. Returns 0 or an
  // errno.
  int mark(std::uint64_t upto) noexcept {
    if (!poster_ || signaled_ >= upto || !room()) return 0;
    if (const int error = full() ? ring() : 0) return error;
    add(nullptr, 0, 0);
    signal();
    return ring();
  }

  // Whether a completion with this wr_id is of the present queue pair.
  bool owns(std::uint64_t wr_id) const {
    return poster_ && (wr_id & ~VerbsRequestId::kIsSend) >> 32 == id_ >> 32;
  }
  std::uint64_t receive_id() const { return id_; }  // the wr_id of all receive requests
  // Completes the send request with this wr_id, and all before it.
  void complete(std::uint64_t wr_id) {
    done_ += static_cast<std::uint32_t>(static_cast<std::uint32_t>(wr_id) -
                                        static_cast<std::uint32_t>(done_)) +
             1u;
  }

 private:
  VerbsChainPoster poster_;
  std::uint32_t pair_;
  std::uint32_t life_ = 0;  // incremented when a new queue pair replaces the last one
  std::uint64_t id_ = 0;    // wr_id without kIsSend and number
  std::uint64_t depth_, signal_every_;
  std::uint64_t posted_ = 0, done_ = 0;
  std::uint64_t signaled_ = 0;  // [0, signaled_) will be covered by a completion
  std::uint64_t payload_ = 0;   // requests from this one on are empty: no need to wait for them
  int chained_ = 0;
  bool signal_ = false;
  std::array<ibv_send_wr, kMost> chain_;
  std::array<ibv_sge, kMost> pieces_;
};

}  // namespace weft
