// The implementation of make_verbs_pair (pair_link.h). verbs_pair.cc sets up a pair and checks the
// received bytes; verbs_pair_datapath.cc sends and receives messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "perf/collective/device_memory.h"
#include "perf/pair/pair_link.h"
#include "transport/verbs/queue_pair.h"

namespace weft {

// Returns the settings from the flags, and from WEFT_VERBS_* for absent flags.
VerbsSettings settings_of(const PairOptions& options);

class VerbsPair final : public PairLink {
 public:
  VerbsPair(const PairOptions& options, const Nic& rail, std::size_t most_bytes);

  std::string offer() override;
  void connect(const std::string& theirs) override;
  std::string path() const override { return path_; }
  PairUse use() const override { return {depth_, inline_bytes_, moderation_}; }
  bool one_sided() const override { return read_ || (!send_ && !latency_); }
  void prepare(const PairRole& role) override;
  std::string check() override;

  int post(int most) override;
  int last() const override { return o_.qps; }
  int post_last() override;
  PairProgress poll() override;
  std::vector<PairLink::Queue> queues() const override;
  void ping(std::uint64_t turn) override;
  bool arrived(std::uint64_t turn) override;
  void sleep() override;

 private:
  static constexpr int kRecvDepth = 512;  // as in perftest

  struct FreeMemory {
    void operator()(unsigned char* p) const { std::free(p); }
  };
  struct Queue {
    int out = 0;  // posted messages that have not completed
    int unsignalled = 0;
    int receives = 0;  // posted receives
    std::uint64_t sent = 0;
  };
  struct Receive {
    int q, slot;
  };

  // Offsets into the memory: one source per queue pair, then the targets of each queue pair.
  std::size_t source(int q) const { return stride_ * static_cast<std::size_t>(q); }
  std::size_t target(int q, int slot) const {
    return stride_ * static_cast<std::size_t>(o_.qps + q * slots_ + slot);
  }
  std::byte* at(std::size_t offset) const {
    return reinterpret_cast<std::byte*>(host_.get() + offset);
  }
  std::byte* last_byte(std::size_t offset) const { return at(offset) + bytes_ - 1; }
  // Returns a byte that differs between successive turns and is never 0, the byte of fresh memory.
  static std::byte stamp(std::uint64_t turn) { return static_cast<std::byte>(1 + turn % 255); }

  // ---- verbs_pair.cc
  void allocate();
  bool same(const std::byte* data, std::uint64_t turn) const;
  void compare(const std::byte* data, std::uint64_t message);
  void compare_late(const std::byte* data, std::uint64_t turn);

  // ---- verbs_pair_datapath.cc
  void wait_for_room();
  void post_to(int number, int n, bool last);
  [[noreturn]] void failed(const ibv_wc& wc, const char* what) const;
  int poll_sends();
  int poll_recvs();
  void post_receives();

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

}  // namespace weft
