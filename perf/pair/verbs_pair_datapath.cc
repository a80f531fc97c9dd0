// Posts and polls the messages of a pair over RDMA verbs. Does not depend on set-up and reports.
#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>

#include "perf/pair/verbs_pair.h"
#include "transport/verbs/device.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kSpins = 2000;  // polls of the memory between polls of the CQ
constexpr int kBatch = 32;
constexpr int kMostList = 1024;

}  // namespace

int VerbsPair::post(int most) {
  for (int tries = 0; tries < o_.qps; ++tries) {
    const int q = next_;
    next_ = (next_ + 1) % o_.qps;
    const int room = depth_ - queues_[static_cast<std::size_t>(q)].out;
    const int n = std::min({most, o_.list, room, kMostList});
    if (n <= 0) continue;
    post_to(q, n, false);
    return n;
  }
  return 0;
}

int VerbsPair::post_last() {
  for (const Queue& queue : queues_)
    if (queue.out >= depth_) return 0;
  for (int q = 0; q < o_.qps; ++q) post_to(q, 1, true);
  return o_.qps;
}

PairProgress VerbsPair::poll() {
  PairProgress progress;
  progress.sent = poll_sends();
  if (send_ && receives_) {
    progress.arrived = poll_recvs();
    progress.ended = ended_ == o_.qps;
  }
  return progress;
}

std::vector<PairLink::Queue> VerbsPair::queues() const {
  std::vector<PairLink::Queue> all;
  for (std::size_t i = 0; i < queues_.size(); ++i) {
    const auto label = o_.flow_label + static_cast<std::uint32_t>(i);
    all.push_back({queues_[i].sent, o_.flow_label > 0 ? ibv_flow_label_to_udp_sport(label) : 0});
  }
  return all;
}

void VerbsPair::ping(std::uint64_t turn) {
  if (!read_) *last_byte(source(0)) = stamp(turn);
  if (queues_[0].out >= depth_) wait_for_room();
  reads_done_ = 0;
  post_to(0, 1, false);
}

bool VerbsPair::arrived(std::uint64_t turn) {
  if (read_) {
    reads_done_ += poll_sends();
    return reads_done_ > 0;
  }
  if (send_) {
    if (arrived_ < turn) poll_recvs();
    if (queues_[0].out >= moderation_) poll_sends();
    return arrived_ >= turn;
  }
  // As in perftest, the last byte signals arrival. (If packets are reordered, other bytes may be
  // late; --check waits for them.)
  const std::atomic_ref<std::byte> byte(*last_byte(target(0, 0)));
  for (int i = 0; i < kSpins; ++i) {
    if (byte.load(std::memory_order_acquire) != stamp(turn)) continue;
    if (o_.validate) compare_late(at(target(0, 0)), turn);
    return true;
  }
  poll_sends();  // throws if a message has failed
  return false;
}

void VerbsPair::sleep() {
  if (!o_.events) return;
  if (!armed_) {  // the caller polls once more before it sleeps
    armed_ = sends_.arm() && recvs_.arm();
    return;
  }
  pollfd fds[2] = {{sends_.fd(), POLLIN, 0}, {recvs_.fd(), POLLIN, 0}};
  ::poll(fds, 2, 100);
  if (fds[0].revents) sends_.disarm();
  if (fds[1].revents) recvs_.disarm();
  armed_ = false;
}

void VerbsPair::wait_for_room() {
  const auto end = Clock::now() + std::chrono::milliseconds(o_.timeout_ms);
  while (queues_[0].out >= depth_) {
    if (poll_sends() == 0 && Clock::now() > end)
      throw Error(fmt::format("{}: {} messages without a completion for {} s", path_,
                              queues_[0].out, o_.timeout_s()));
  }
}

void VerbsPair::post_to(int number, int n, bool last) {
  Queue& queue = queues_[static_cast<std::size_t>(number)];
  if (wrs_.size() < static_cast<std::size_t>(n)) wrs_.resize(static_cast<std::size_t>(n));
  ibv_sge piece{};
  piece.addr =
      reinterpret_cast<std::uint64_t>(registered_) + (read_ ? target(number, 0) : source(number));
  piece.length = static_cast<std::uint32_t>(bytes_);
  piece.lkey = memory_->lkey();
  const bool fits = !read_ && bytes_ <= static_cast<std::size_t>(inline_bytes_);
  for (int i = 0; i < n; ++i) {
    ibv_send_wr& wr = wrs_[static_cast<std::size_t>(i)];
    wr = {};
    wr.sg_list = &piece;
    wr.num_sge = 1;
    wr.next = i + 1 < n ? &wrs_[static_cast<std::size_t>(i + 1)] : nullptr;
    ++queue.unsignalled;
    const bool signal = last || (latency_ && read_) || queue.unsignalled >= moderation_;
    if (signal) wr.send_flags |= IBV_SEND_SIGNALED;
    if (fits) wr.send_flags |= IBV_SEND_INLINE;
    if (signal) {
      wr.wr_id =
          static_cast<std::uint64_t>(number) << 32 | static_cast<std::uint32_t>(queue.unsignalled);
      queue.unsignalled = 0;
    }
    if (send_) {
      wr.opcode = last ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND;
    } else {
      wr.opcode = read_ ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
      // Both ends have the same flags and thus the same layout.
      wr.wr.rdma.remote_addr = their_address_ + (read_ ? source(number) : target(number, 0));
      wr.wr.rdma.rkey = their_rkey_;
    }
  }
  sent_any_ = true;
  queue.out += n;
  ibv_send_wr* bad = nullptr;
  const int error = qps_[static_cast<std::size_t>(number)]->post(wrs_.data(), &bad);
  if (error) {
    (void)poll_sends();  // throws the queue pair's error, which is more precise
    throw Error(fmt::format("{}: {} of {} bytes cannot be posted: {}", path_, o_.op, bytes_,
                            std::strerror(error)));
  }
}

[[noreturn]] void VerbsPair::failed(const ibv_wc& wc, const char* what) const {
  throw Error(fmt::format("{} of {} bytes on {}: {}", what, bytes_, path_,
                          verbs_cause(wc.status, wc.vendor_err)));
}

int VerbsPair::poll_sends() {
  ibv_wc wcs[kBatch];
  const int n = sends_.poll(wcs);
  if (n < 0) throw Error(fmt::format("{}: the completion queue failed: look at dmesg", path_));
  int sent = 0;
  for (int i = 0; i < n; ++i) {
    if (wcs[i].status != IBV_WC_SUCCESS) failed(wcs[i], o_.op.c_str());
    const int covered = static_cast<int>(wcs[i].wr_id & 0xffffffffU);
    Queue& queue = queues_[static_cast<std::size_t>(wcs[i].wr_id >> 32)];
    queue.out -= covered;
    queue.sent += static_cast<std::uint64_t>(covered);
    sent += covered;
  }
  return sent;
}

int VerbsPair::poll_recvs() {
  ibv_wc wcs[kBatch];
  const int n = recvs_.poll(wcs);
  if (n < 0) throw Error(fmt::format("{}: the completion queue failed: look at dmesg", path_));
  for (int i = 0; i < n; ++i) {
    if (wcs[i].status != IBV_WC_SUCCESS) failed(wcs[i], "receive");
    ++arrived_;
    const int q = static_cast<int>(wcs[i].wr_id >> 32);
    const int slot = static_cast<int>(wcs[i].wr_id & 0xffffffffU);
    if (wcs[i].wc_flags & IBV_WC_WITH_IMM) ++ended_;
    if (o_.validate && !mirror_) compare(at(target(q, slot)), arrived_);
    spare_.push_back({q, slot});
  }
  if (!spare_.empty()) post_receives();
  return n;
}

void VerbsPair::post_receives() {
  std::vector<ibv_recv_wr>& wrs = recv_wrs_;
  std::size_t first = 0;
  while (first < spare_.size()) {  // one chain per queue pair
    const int q = spare_[first].q;
    std::size_t end = first;
    while (end < spare_.size() && spare_[end].q == q) ++end;
    wrs.assign(end - first, {});
    pieces_.assign(end - first, {});
    for (std::size_t i = 0; i < wrs.size(); ++i) {
      const int slot = spare_[first + i].slot;
      pieces_[i] = {reinterpret_cast<std::uint64_t>(registered_) + target(q, slot),
                    static_cast<std::uint32_t>(stride_), memory_->lkey()};
      wrs[i].wr_id = static_cast<std::uint64_t>(q) << 32 | static_cast<std::uint32_t>(slot);
      wrs[i].sg_list = &pieces_[i];
      wrs[i].num_sge = 1;
      wrs[i].next = i + 1 < wrs.size() ? &wrs[i + 1] : nullptr;
    }
    ibv_recv_wr* bad = nullptr;
    const int error = qps_[static_cast<std::size_t>(q)]->post(wrs.data(), &bad);
    if (error)
      throw Error(fmt::format("{}: a receive cannot be posted: {}", path_, std::strerror(error)));
    first = end;
  }
  spare_.clear();
}

}  // namespace weft
