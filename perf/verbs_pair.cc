// A pair over RDMA verbs: writes, sends and reads as perftest does them.
#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <random>
#include <vector>

#include "perf/device_memory.h"
#include "perf/pair_link.h"
#include "perf/payload.h"
#include "transport/verbs_cause.h"
#include "transport/verbs_queue_pair.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kPage = 4096;
constexpr int kRecvDepth = 512;                  // perftest's
constexpr std::size_t kCheckedBytes = 64 << 20;  // of receives whose bytes are all compared
constexpr int kLatencyModeration = 32;           // pings for one completion
constexpr int kReadsUnderWay = 16;
constexpr int kSpins = 2000;  // looks at the memory between looks elsewhere
constexpr int kBatch = 32;

std::string to_hex(const std::string& bytes) {
  std::string text;
  for (const char c : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return text;
}
std::string from_hex(const std::string& text) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2)
    bytes += static_cast<char>(std::stoi(text.substr(i, 2), nullptr, 16));
  return bytes;
}

VerbsSettings settings_of(const PairOptions& o) {
  VerbsSettings s = verbs_settings();
  if (o.device_port) s.port = o.device_port;
  if (o.gid_index >= 0) s.gid_index = o.gid_index;
  if (o.mtu) s.mtu = o.mtu;
  if (o.traffic_class) s.traffic_class = o.traffic_class;
  if (o.service_level) s.service_level = o.service_level;
  return s;
}

struct FreeMemory {
  void operator()(unsigned char* p) const { std::free(p); }
};

class VerbsPair final : public PairLink {
 public:
  VerbsPair(const PairOptions& options, const Nic& rail, std::size_t most_bytes)
      : o_(options),
        device_(rail.name, settings_of(options)),
        stride_((std::max<std::size_t>(most_bytes, 1) + kPage - 1) / kPage * kPage),
        sends_(device_, o_.depth * o_.qps + 1, o_.events),
        recvs_(device_, kRecvDepth * o_.qps + 1, o_.events),
        key_(std::random_device{}() | std::uint64_t{std::random_device{}()} << 32) {
    if (most_bytes > device_.max_message())
      throw Error(fmt::format("-s {}: {} takes messages of at most {} bytes", most_bytes,
                              device_.where(), device_.max_message()));
    if (send_ && o_.validate && o_.gpu < 0)
      slots_ = static_cast<int>(std::clamp<std::size_t>(kCheckedBytes / stride_, 8, kRecvDepth));
    recv_depth_ = slots_ > 1 ? slots_ : kRecvDepth;
    depth_ = std::min({o_.depth, recv_depth_, device_.limits().max_qp_wr});
    allocate();
    VerbsQpOptions q;
    q.send_depth = depth_;
    q.recv_depth = send_ ? recv_depth_ : 1;
    q.inline_bytes = read_ ? 0 : o_.inline_or_default();
    q.reads = std::min(
        {kReadsUnderWay, device_.limits().max_qp_rd_atom, device_.limits().max_qp_init_rd_atom});
    inline_bytes_ = q.inline_bytes;
    for (int i = 0; i < o_.qps; ++i) {
      qps_.push_back(std::make_unique<VerbsQp>(device_, sends_, recvs_, q));
      inline_bytes_ = std::min(inline_bytes_, qps_.back()->inline_bytes());
    }
    queues_.resize(qps_.size());
  }

  std::string offer() override {
    nlohmann::json j = {{"port", to_hex(device_.port().encode())},
                        {"address", reinterpret_cast<std::uint64_t>(registered_)},
                        {"rkey", memory_->rkey()},
                        {"key", key_}};
    for (const auto& qp : qps_) j["qps"].push_back({qp->name().number, qp->name().psn});
    return j.dump();
  }

  void connect(const std::string& theirs) override {
    const auto j = nlohmann::json::parse(theirs);
    const VerbsPath path = verbs_path(device_, VerbsPort::decode(from_hex(j["port"])));
    path_ = fmt::format("{} {}", device_.where(), weft::to_string(path));
    for (std::size_t i = 0; i < qps_.size(); ++i)
      qps_[i]->connect(path, {j["qps"][i][0], j["qps"][i][1]});
    their_address_ = j["address"];
    their_rkey_ = j["rkey"];
    their_key_ = j["key"];
  }

  std::string path() const override { return path_; }
  bool one_sided() const override { return read_ || (!send_ && !latency_); }

  void prepare(const PairRole& role) override {
    bytes_ = role.bytes;
    latency_ = role.latency;
    receives_ = role.receives;
    arrived_ = ended_ = 0;
    wrong_.clear();
    moderation_ = latency_ ? std::min(kLatencyModeration, depth_) : o_.moderation_for(bytes_);
    moderation_ = std::min(moderation_, depth_);
    expected_.resize(bytes_);
    fill_pattern(expected_.data(), bytes_, their_key_ ^ bytes_);
    for (int q = 0; q < o_.qps; ++q) fill_pattern(at(source(q)), bytes_, key_ ^ bytes_);
    std::memset(host_.get() + target(0, 0), 0, stride_ * static_cast<std::size_t>(o_.qps * slots_));
    if (mirror_) mirror_->upload();
    if (!send_) return;
    // Receives of the test before are still there: each takes a message of any of the sizes.
    for (int q = 0; q < o_.qps; ++q) {
      for (int i = queues_[static_cast<std::size_t>(q)].receives; i < recv_depth_; ++i)
        spare_.push_back({q, i % slots_});
      queues_[static_cast<std::size_t>(q)].receives = recv_depth_;
    }
    post_receives();
  }

  int post(int most) override {
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

  int last() const override { return o_.qps; }

  int post_last() override {
    for (const Queue& queue : queues_)
      if (queue.out >= depth_) return 0;
    for (int q = 0; q < o_.qps; ++q) post_to(q, 1, true);
    return o_.qps;
  }

  PairProgress poll() override {
    PairProgress progress;
    progress.sent = poll_sends();
    if (send_ && receives_) {
      progress.arrived = poll_recvs();
      progress.ended = ended_ == o_.qps;
    }
    return progress;
  }

  void ping(std::uint64_t turn) override {
    if (!read_) *last_byte(source(0)) = stamp(turn);
    if (queues_[0].out >= depth_) wait_for_room();
    reads_done_ = 0;
    post_to(0, 1, false);
  }

  bool arrived(std::uint64_t turn) override {
    if (read_) {
      reads_done_ += poll_sends();
      return reads_done_ > 0;
    }
    if (send_) {
      if (arrived_ < turn) poll_recvs();
      if (queues_[0].out >= moderation_) poll_sends();
      return arrived_ >= turn;
    }
    // As perftest does: the last byte tells. (Where packets may overtake each other the others may
    // be late; --validate waits for them.)
    const std::atomic_ref<std::byte> byte(*last_byte(target(0, 0)));
    for (int i = 0; i < kSpins; ++i) {
      if (byte.load(std::memory_order_acquire) != stamp(turn)) continue;
      if (o_.validate) compare_late(at(target(0, 0)), turn);
      return true;
    }
    poll_sends();  // what has failed says so
    return false;
  }

  void sleep() override {
    if (!o_.events) return;
    if (!armed_) {  // the caller looks once more before it comes back
      armed_ = sends_.arm() && recvs_.arm();
      return;
    }
    pollfd fds[2] = {{sends_.fd(), POLLIN, 0}, {recvs_.fd(), POLLIN, 0}};
    ::poll(fds, 2, 100);
    if (fds[0].revents) sends_.disarm();
    if (fds[1].revents) recvs_.disarm();
    armed_ = false;
  }

  std::string check() override {
    if (!o_.validate || !wrong_.empty()) return wrong_;
    if (send_ && !mirror_) return wrong_;  // each message was compared
    const bool mine = read_ ? sent_any_ : receives_;
    if (!mine && !(latency_ && mirror_)) return wrong_;
    if (latency_ && !read_ && !mirror_) return wrong_;  // each turn was compared
    if (mirror_) mirror_->download();
    for (int q = 0; q < o_.qps && wrong_.empty(); ++q)
      wrong_ = compare_pattern(at(target(q, 0)), bytes_, their_key_ ^ bytes_);
    return wrong_;
  }

 private:
  static constexpr int kMostList = 1024;
  struct Queue {
    int out = 0;  // posted, and no completion has told of them
    int unsignalled = 0;
    int receives = 0;  // posted
  };
  struct Receive {
    int q, slot;
  };

  // Offsets into the memory: a source for each queue pair, then the targets of each.
  std::size_t source(int q) const { return stride_ * static_cast<std::size_t>(q); }
  std::size_t target(int q, int slot) const {
    return stride_ * static_cast<std::size_t>(o_.qps + q * slots_ + slot);
  }
  std::byte* at(std::size_t offset) const {
    return reinterpret_cast<std::byte*>(host_.get() + offset);
  }
  std::byte* last_byte(std::size_t offset) const { return at(offset) + bytes_ - 1; }
  // Never 0, which is what is there at first; different from turn to turn.
  static std::byte stamp(std::uint64_t turn) { return static_cast<std::byte>(1 + turn % 255); }

  void allocate() {
    const std::size_t bytes = stride_ * static_cast<std::size_t>(o_.qps * (1 + slots_));
    host_.reset(static_cast<unsigned char*>(std::aligned_alloc(kPage, bytes)));
    if (!host_)
      throw Error(fmt::format("no memory for {} bytes of messages: lower -s or -q", bytes));
    std::memset(host_.get(), 0, bytes);
    registered_ = reinterpret_cast<std::byte*>(host_.get());
    if (o_.gpu >= 0) {
      mirror_ = std::make_unique<DeviceMirror>(o_.gpu, host_.get(), bytes);
      registered_ = reinterpret_cast<std::byte*>(mirror_->at(host_.get()));
    }
    try {
      memory_ = std::make_unique<VerbsMemory>(
          device_, registered_, bytes,
          IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
    } catch (const Error& e) {
      if (o_.gpu < 0) throw;
      throw Error(
          fmt::format("--use_cuda {}: {}; is the module nvidia_peermem loaded?", o_.gpu, e.what()));
    }
  }

  void wait_for_room() {
    const auto end = Clock::now() + std::chrono::seconds(o_.timeout_s);
    while (queues_[0].out >= depth_) {
      if (poll_sends() == 0 && Clock::now() > end)
        throw Error(fmt::format("{}: {} messages without a completion for {} s", path_,
                                queues_[0].out, o_.timeout_s));
    }
  }

  void post_to(int number, int n, bool last) {
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
        wr.wr_id = static_cast<std::uint64_t>(number) << 32 |
                   static_cast<std::uint32_t>(queue.unsignalled);
        queue.unsignalled = 0;
      }
      if (send_) {
        wr.opcode = last ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND;
      } else {
        wr.opcode = read_ ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
        // Both ends have the same flags, so the same layout.
        wr.wr.rdma.remote_addr = their_address_ + (read_ ? source(number) : target(number, 0));
        wr.wr.rdma.rkey = their_rkey_;
      }
    }
    sent_any_ = true;
    queue.out += n;
    ibv_send_wr* bad = nullptr;
    const int error = qps_[static_cast<std::size_t>(number)]->post(wrs_.data(), &bad);
    if (error) {
      (void)poll_sends();  // throws where the queue pair has failed: that says more
      throw Error(fmt::format("{}: {} of {} bytes cannot be posted: {}", path_, o_.op, bytes_,
                              std::strerror(error)));
    }
  }

  [[noreturn]] void failed(const ibv_wc& wc, const char* what) const {
    throw Error(fmt::format("{} of {} bytes on {}: {}", what, bytes_, path_,
                            verbs_cause(wc.status, wc.vendor_err)));
  }

  int poll_sends() {
    ibv_wc wcs[kBatch];
    const int n = sends_.poll(wcs);
    if (n < 0) throw Error(fmt::format("{}: the completion queue failed: look at dmesg", path_));
    int sent = 0;
    for (int i = 0; i < n; ++i) {
      if (wcs[i].status != IBV_WC_SUCCESS) failed(wcs[i], o_.op.c_str());
      const int covered = static_cast<int>(wcs[i].wr_id & 0xffffffffU);
      queues_[static_cast<std::size_t>(wcs[i].wr_id >> 32)].out -= covered;
      sent += covered;
    }
    return sent;
  }

  int poll_recvs() {
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

  void post_receives() {
    std::vector<ibv_recv_wr>& wrs = recv_wrs_;
    std::size_t first = 0;
    while (first < spare_.size()) {  // a chain for each queue pair
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

  // Of a latency test the last byte is the turn's.
  bool same(const std::byte* data, std::uint64_t turn) const {
    const std::size_t whole = latency_ ? bytes_ - 1 : bytes_;
    return std::memcmp(data, expected_.data(), whole) == 0 &&
           (!latency_ || data[whole] == stamp(turn));
  }
  void compare(const std::byte* data, std::uint64_t message) {
    if (!wrong_.empty() || same(data, message)) return;
    const std::size_t whole = latency_ ? bytes_ - 1 : bytes_;
    const std::string where = compare_pattern(data, whole, their_key_ ^ bytes_);
    wrong_ = fmt::format("message {}: {}", message, where.empty() ? "its last byte" : where);
  }
  void compare_late(const std::byte* data, std::uint64_t turn) {
    const auto end = Clock::now() + std::chrono::milliseconds(100);
    while (!same(data, turn) && Clock::now() < end)
      std::atomic_signal_fence(std::memory_order_seq_cst);
    compare(data, turn);
  }

  const PairOptions o_;
  const bool send_ = o_.op == "send", read_ = o_.op == "read";
  VerbsDevice device_;
  std::size_t stride_;
  VerbsCq sends_, recvs_;
  int slots_ = 1, recv_depth_ = kRecvDepth, depth_ = 1, inline_bytes_ = 0;
  std::unique_ptr<unsigned char, FreeMemory> host_;
  std::unique_ptr<DeviceMirror> mirror_;
  std::byte* registered_ = nullptr;  // host_, or its mirror on the GPU
  std::unique_ptr<VerbsMemory> memory_;
  std::vector<std::unique_ptr<VerbsQp>> qps_;
  std::vector<Queue> queues_;
  std::vector<ibv_send_wr> wrs_;
  std::vector<ibv_recv_wr> recv_wrs_;
  std::vector<ibv_sge> pieces_;
  std::vector<Receive> spare_;
  std::uint64_t key_, their_key_ = 0, their_address_ = 0;
  std::uint32_t their_rkey_ = 0;
  std::string path_, wrong_;
  std::vector<std::byte> expected_;

  std::size_t bytes_ = 0;
  bool latency_ = false, receives_ = false, sent_any_ = false, armed_ = false;
  int moderation_ = 1, next_ = 0, reads_done_ = 0, ended_ = 0;
  std::uint64_t arrived_ = 0;
};

}  // namespace

std::unique_ptr<PairLink> make_verbs_pair(const PairOptions& options, const Nic& rail,
                                          std::size_t most_bytes) {
  return std::make_unique<VerbsPair>(options, rail, most_bytes);
}

}  // namespace weft
